import itertools

from designer.families.programs.tools import NAMES, Task, message

P = {"n": 4, "q": 1, "k": 2, "s": 1}
ISSUERS = "abcde"
# What each service is asked with, and what it answers with.
LINKS = ["name", "account", "card", "limit"]


class ChainEnv(Task):
    """Hand each service's answer to the next; all of them take the tokens of one issuer."""

    def start(self, rng):
        self.tokens = {
            issuer: f"T{number}"
            for issuer, number in zip(
                ISSUERS[: P["n"]], rng.sample(range(100, 1000), P["n"]), strict=True
            )
        }
        columns = [NAMES, *(rng.sample(range(1000, 10000), len(NAMES)) for _ in LINKS[1:])]
        self.next = [dict(zip(a, b, strict=True)) for a, b in itertools.pairwise(columns)]
        self.left = P["s"]
        key = owner = rng.choice(NAMES)
        token = self.tokens[ISSUERS[P["q"]]]
        self.call("token", issuer=ISSUERS[P["q"]])
        for number, link in enumerate(LINKS[: P["k"]]):
            arguments = {link: key, "token": token}
            self.call("customer" if link == "name" else link, **arguments)
            key = self.next[number][key]
        text = (
            f"Which is the {LINKS[P['k']]} of {owner}? Each service wants a token: "
            f"issuers {ISSUERS[: P['n']]}, refusals left {P['s']}."
        )
        self.messages = [message(text, answer=key)]
        self.answer(key)

    def serve(self, number, key, token):
        if self.left < 0:
            raise PermissionError("locked")
        if token != self.tokens[ISSUERS[P["q"]]]:
            self.left -= 1
            raise PermissionError("this token is refused")
        if key not in self.next[number]:
            raise LookupError("there is none")
        return {LINKS[number + 1]: self.next[number][key]}

    def tool_token(self, issuer: str):
        """A token of an issuer, a letter."""
        return {"token": self.tokens[issuer]}

    def tool_customer(self, name: str, token: str):
        """The account of a customer."""
        return self.serve(0, name, token)

    def tool_account(self, account: int, token: str):
        """The card of an account."""
        return self.serve(1, account, token)

    def tool_card(self, card: int, token: str):
        """The limit of a card."""
        return self.serve(2, card, token)

    def tool_branches(self):
        """Where the bank has branches."""
        return "in ten towns"
