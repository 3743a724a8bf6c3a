from designer.families.programs.game import Game

P = {"w": 0, "m": 6, "b": 1, "s": 0}
WAVES = [(0, 3), (0, 2, 4, 2), (0, 1, 4), (3, 0, 5, 1), (0, 4, 1, 2)]


class TradeEnv(Game):
    """Buy low and sell high on a price that repeats; one piece can be held."""

    name = "trade"
    moves = "BSW"

    def start(self):
        wave = WAVES[P["w"]]
        phase = self.rng.randrange(len(wave))
        floor = P["b"] + self.rng.randrange(3)
        self.prices = [floor + wave[(phase + i) % len(wave)] for i in range(P["m"])]
        self.held = 0
        self.cash = 0
        self.clock = 0
        self.budget = P["m"]
        best, self.plan = self.best(0, 0)
        self.goal = max(1, best - P["s"])

    def best(self, clock, held):
        if clock == P["m"]:
            return (0, []) if not held else (-99, [])
        price = self.prices[clock]
        choices = [("W", 0, held)]
        choices.append(("S", price, 0) if held else ("B", -price, 1))
        results = []
        for move, gain, after in choices:
            later, plan = self.best(clock + 1, after)
            results.append((gain + later, [move, *plan]))
        return max(results, key=lambda result: result[0])

    def gain(self):
        return self.cash

    def view(self):
        price = self.prices[min(self.clock, P["m"] - 1)]
        return f"price {price} hold {self.held} gain {self.cash}/{self.goal}"

    def idle(self):
        self.clock += 1

    def play(self, move):
        price = self.prices[self.clock]
        before, _ = self.best(self.clock, self.held)
        before += self.cash
        if move == "B" and not self.held:
            self.cash -= price
            self.held = 1
            text = "bought"
        elif move == "S" and self.held:
            self.cash += price
            self.held = 0
            text = "sold"
        else:
            text = "wait"
        self.clock += 1
        after = self.best(self.clock, self.held)[0] + self.cash
        return text, 0.05 if after >= before else -0.1

    def score(self):
        return 0.0 if self.held else self.cash / self.goal

    def solved(self):
        return not self.held and self.cash >= self.goal
