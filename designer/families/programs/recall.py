from designer.families.programs.game import Game

P = {"l": 3, "a": 3, "t": 0, "v": 1}


class RecallEnv(Game):
    """Say back a list of letters, changed by a rule that is the same every time."""

    name = "recall"
    moves = "abcde"

    def start(self):
        count, letters = P["l"], self.moves[: P["a"]]
        self.moves = letters
        while True:
            self.items = [self.rng.choice(letters) for _ in range(count)]
            if len(set(self.items)) > 1:
                break
        if P["t"] == 1:
            self.plan = [letters[(letters.index(c) + 1) % len(letters)] for c in self.items]
        elif P["t"] == 2:
            self.plan = [letters[-1 - letters.index(c)] for c in self.items]
        elif P["t"] == 3:
            self.plan = self.items[::-1]
        else:
            self.plan = list(self.items)
        self.right = 0
        self.budget = count

    def view(self):
        item = f"item {self.turn + 1}"
        if P["v"] or self.turn == 0:
            item += " of " + "".join(self.items)
        return item

    def play(self, move):
        truth = self.plan[self.turn - 1]
        if move == truth:
            self.right += 1
            return "yes", 0.1
        return "no it was " + truth, -0.1

    def score(self):
        return self.right / self.budget

    def solved(self):
        return self.right == self.budget
