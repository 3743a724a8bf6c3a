from designer.families.programs.tools import NAMES, Task, message

P = {"n": 5, "q": 2, "k": 2, "s": 1}
LINES = "abcdef"


class LinkEnv(Task):
    """Read values over the one line that works; too many refused calls end the service."""

    def start(self, rng):
        self.wanted = rng.sample(NAMES, P["k"])
        self.values = {name: rng.randint(10, 99) for name in NAMES}
        self.line = ""
        self.refused = 0
        self.messages = [
            message(
                f"Add up the values of {' and '.join(self.wanted)}. "
                f"Connect first: lines {LINES[: P['n']]}, refusals left {P['s']}.",
                answer=sum(self.values[name] for name in self.wanted),
            )
        ]
        self.call("connect", line=LINES[P["q"]])
        for name in self.wanted:
            self.call("read", name=name)
        self.answer(self.messages[0].answer)

    def tool_connect(self, line: str):
        """Connect over a line, a letter. A refusal counts, and the service ends at too many."""
        if self.refused > P["s"]:
            raise ConnectionError("the service has ended")
        if line != LINES[P["q"]]:
            self.refused += 1
            raise ConnectionError("refused")
        self.line = line
        return "connected"

    def tool_read(self, name: str):
        """Read somebody's value; needs a connection."""
        if not self.line:
            raise ConnectionError("not connected")
        return self.values[name]

    def tool_status(self):
        """What the service says of itself."""
        return {"connected": bool(self.line), "ended": self.refused > P["s"]}
