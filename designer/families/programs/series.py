from designer.families.programs.game import Game

P = {"k": 5, "d": 1, "u": 0, "h": 2, "m": 4}


class SeriesEnv(Game):
    """Say the next letter of a series that moves round a ring by fixed steps."""

    name = "series"
    moves = "abcdefgh"

    def start(self):
        self.moves = self.moves[: P["k"]]
        place = self.rng.randrange(P["k"])
        parity = self.rng.randrange(2)
        letters = [self.moves[place]]
        for index in range(P["h"] - 1 + P["m"]):
            extra = P["u"] if (index + parity) % 2 else 0
            place = (place + P["d"] + extra) % P["k"]
            letters.append(self.moves[place])
        self.letters = letters
        self.plan = letters[P["h"] :]
        self.right = 0
        self.budget = P["m"]

    def view(self):
        end = P["h"] + self.turn
        return "next " + "".join(self.letters[max(0, end - 4) : end])

    def play(self, move):
        if move == self.plan[self.turn - 1]:
            self.right += 1
            return "yes", 0.1
        return "no", -0.1

    def score(self):
        return self.right / self.budget

    def solved(self):
        return self.right == self.budget
