from designer.families.programs.game import Game

P = {"n": 4, "d": 1, "x": 0, "k": 3, "s": 1}


class SwitchEnv(Game):
    """Light every lamp. Which switch works which lamp has to be found out."""

    name = "lamps"
    moves = "abcdef"

    def start(self):
        size = P["n"]
        self.moves = self.moves[:size]
        self.wires = {}
        for index, move in enumerate(self.moves):
            lamp = (index + P["d"]) % size
            self.wires[move] = size - 1 - lamp if P["x"] else lamp
        self.lamps = [1] * size
        pressed = self.rng.sample(self.moves, P["k"])
        for move in pressed:
            self.lamps[self.wires[move]] = 0
        self.plan = sorted(pressed)
        self.budget = P["k"] + P["s"]

    def view(self):
        return "".join(map(str, self.lamps))

    def play(self, move):
        lamp = self.wires[move]
        self.lamps[lamp] = 1 - self.lamps[lamp]
        if self.lamps[lamp]:
            return f"{move} lit {lamp + 1}", 0.1
        return f"{move} cut {lamp + 1}", -0.1

    def score(self):
        return 1 - (P["n"] - sum(self.lamps)) / P["k"]

    def solved(self):
        return all(self.lamps)
