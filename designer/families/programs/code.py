from designer.families.programs.game import Game

P = {"l": 3, "k": 5, "o": 1, "u": 0, "s": 2}


class CodeEnv(Game):
    """Open a lock letter by letter; each try says hit, later in the code, or absent."""

    name = "code"
    moves = "abcdef"

    def start(self):
        self.moves = self.moves[: P["k"]]
        letters = [c for c in self.moves if c != self.moves[P["u"]]]
        code = self.rng.sample(letters, P["l"])
        if P["o"] == 1:
            code.sort()
        elif P["o"] == 2:
            code.sort(reverse=True)
        self.plan = code
        self.got = 0
        self.later = {self.rng.choice(code[1:])}
        self.out = set()
        self.budget = P["l"] + P["s"]

    def view(self):
        text = "".join(self.plan[: self.got]) + "_" * (P["l"] - self.got)
        if self.later:
            text += " later " + "".join(sorted(self.later))
        if self.out:
            text += " not " + "".join(sorted(self.out))
        return text

    def play(self, move):
        if move == self.plan[self.got]:
            self.got += 1
            self.later = set()
            return "hit", 0.2
        stale = move in self.out or move in self.later
        if move in self.plan[self.got :]:
            self.later.add(move)
            return "later", -0.1 if stale else 0.0
        self.out.add(move)
        return "not", -0.1 if stale else -0.02

    def score(self):
        return self.got / P["l"]

    def solved(self):
        return self.got == P["l"]
