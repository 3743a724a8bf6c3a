from designer.families.programs.tools import Task, message

P = {"n": 4, "q": 1, "k": 2}
BANKS = "abcde"


class QuotesEnv(Task):
    """Convert sums by the tool of the bank that the house goes by; the others differ."""

    def start(self, rng):
        numbers = rng.sample(range(100, 1000), P["k"])
        self.bills = {f"R{number}": rng.randint(11, 99) for number in numbers}
        rates = rng.sample(range(3, 20), P["n"])
        self.rates = dict(zip(BANKS, rates, strict=False))
        rate = self.rates[BANKS[P["q"]]]
        total = sum(self.bills.values()) * rate
        text = (
            f"Add up the bills {' and '.join(self.bills)} and convert the sum at our rate. "
            f"Banks {BANKS[: P['n']]}."
        )
        self.messages = [message(text, answer=total)]
        for bill in self.bills:
            self.call("bill", number=bill)
        self.call(f"quote_{BANKS[P['q']]}")
        self.answer(total)

    def quote(self, bank):
        if bank not in self.rates:
            raise LookupError("this bank is closed")
        return {"rate": self.rates[bank]}

    def tool_bill(self, number: str):
        """The sum of a bill."""
        return {"sum": self.bills[number]}

    def tool_quote_a(self):
        """The rate of bank a."""
        return self.quote("a")

    def tool_quote_b(self):
        """The rate of bank b."""
        return self.quote("b")

    def tool_quote_c(self):
        """The rate of bank c."""
        return self.quote("c")

    def tool_quote_d(self):
        """The rate of bank d."""
        return self.quote("d")

    def tool_quote_e(self):
        """The rate of bank e."""
        return self.quote("e")

    def tool_holidays(self):
        """When banks are closed."""
        return "on Sunday"
