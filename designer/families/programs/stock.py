from designer.families.programs.tools import Task, message, needs

P = {"n": 5, "q": 2, "k": 1, "s": 1}
BAYS = "abcdef"
ITEMS = ["milk", "fish", "peas", "ham", "eggs", "figs", "rice", "tea"]


class StockEnv(Task):
    """Move goods to the cold bay, whose letter nobody tells; carts are few."""

    def start(self, rng):
        names = rng.sample(ITEMS, P["k"])
        numbers = rng.sample(range(100, 1000), len(ITEMS))
        self.codes = {name: f"S{number}" for name, number in zip(ITEMS, numbers, strict=True)}
        self.bays = {code: "dock" for code in self.codes.values()}
        self.weights = {code: rng.randint(10, 99) for code in self.codes.values()}
        self.carts = P["k"] + P["s"]
        cold = BAYS[P["q"]]
        self.messages = [
            message(
                f"Move {' and '.join(names)} to the cold bay. "
                f"Bays {BAYS[: P['n']]}, carts left {self.carts}.",
                criterion=[needs(("bays", self.codes[name]), "==", cold) for name in names],
            ),
            message(
                "What do they weigh together?",
                answer=sum(self.weights[self.codes[name]] for name in names),
            ),
        ]
        for name in names:
            self.call("find", item=name)
            self.call("move", code=self.codes[name], bay=cold)
        self.answer("done")
        for name in names:
            self.call("weigh", code=self.codes[name])
        self.answer(self.messages[1].answer)

    def tool_find(self, item: str):
        """Find the code of an item."""
        return {"code": self.codes[item]}

    def tool_move(self, code: str, bay: str):
        """Move goods to a bay, a letter. Takes a cart."""
        if bay not in BAYS[: P["n"]] or len(bay) != 1 or code not in self.bays:
            raise ValueError("no such bay or code")
        if not self.carts:
            raise RuntimeError("no cart is left")
        self.carts -= 1
        self.bays[code] = bay
        return {"carts left": self.carts}

    def tool_weigh(self, code: str):
        """Weigh goods by their code."""
        return {"weight": self.weights[code]}

    def tool_hours(self):
        """When the warehouse is open."""
        return "8 to 18"
