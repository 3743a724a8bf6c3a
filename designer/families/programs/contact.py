from designer.families.programs.tools import NAMES, Task, message

P = {"t": 0, "d": 1, "w": 3}
KINDS = ["team", "desk", "badge", "locker"]


class ContactEnv(Task):
    """Find the extension of somebody's contact; which record names the contact is not told."""

    def start(self, rng):
        kinds = KINDS[: P["w"]]
        self.extensions = dict(zip(NAMES, rng.sample(range(1000, 10000), len(NAMES)), strict=True))
        # Each record names somebody else: a ring of people, turned further for each kind.
        ring = rng.sample(NAMES, len(NAMES))
        self.records = {}
        self.people = {name: {} for name in NAMES}
        for turn, kind in enumerate(kinds, start=1):
            for place, name in enumerate(ring):
                code = f"{kind[0].upper()}{rng.randint(0, 9)}{place}{turn}"
                self.people[name][kind] = code
                self.records[code] = ring[(place + turn) % len(ring)]
        name = rng.choice(NAMES)
        of = "the contact of " * P["d"]
        text = f"What is the extension of {of}{name}? Records {', '.join(kinds)}."
        for _ in range(P["d"]):
            self.call("person", name=name)
            code = self.people[name][KINDS[P["t"] % P["w"]]]
            self.call("record", code=code)
            name = self.records[code]
        self.call("extension", name=name)
        self.answer(self.extensions[name])
        self.messages = [message(text, answer=self.extensions[name])]

    def tool_person(self, name: str):
        """The codes of somebody's records."""
        return self.people[name]

    def tool_record(self, code: str):
        """Whom a record names."""
        return {"names": self.records[code]}

    def tool_extension(self, name: str):
        """Somebody's telephone extension."""
        return {"extension": self.extensions[name]}

    def tool_canteen(self):
        """What the canteen offers."""
        return "soup"
