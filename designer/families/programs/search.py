from designer.families.programs.game import Game

P = {"n": 5, "r": 3, "z": 0, "s": 1}


class SearchEnv(Game):
    """Find several numbers in turn; all of them lie in the same part of the range."""

    name = "search"
    moves = "0123456789"

    def start(self):
        size = P["n"]
        self.moves = self.moves[:size]
        zone = [
            [v for v in range(size) if v < size / 2],
            [v for v in range(size) if v >= size / 2],
            [v for v in range(size) if v % 2 == 0],
            [v for v in range(size) if v % 2 == 1],
        ][P["z"]]
        self.numbers = [self.rng.choice(zone) for _ in range(P["r"])]
        if len(set(self.numbers)) == 1:
            self.numbers[-1] = self.rng.choice([v for v in zone if v != self.numbers[0]])
        self.found = 0
        self.frames = []
        for number in self.numbers:
            low = self.rng.randrange(2)
            if number == 0 or number == size - 1:
                low = 0 if number == 0 else 1
            self.frames.append((low, low + size - 2))
        self.low, self.high = self.frames[0]
        self.budget = 2 * P["r"] + P["s"]
        self.plan = [str(number) for number in self.numbers]

    def view(self):
        return f"in {self.low}-{self.high} got {self.found}/{P['r']}"

    def play(self, move):
        guess = int(move)
        number = self.numbers[self.found]
        if guess == number:
            self.found += 1
            if self.found < P["r"]:
                self.low, self.high = self.frames[self.found]
            return "hit", 0.2
        outside = not self.low <= guess <= self.high
        if guess < number:
            self.low = max(self.low, guess + 1)
            return "more", -0.1 if outside else -0.02
        self.high = min(self.high, guess - 1)
        return "less", -0.1 if outside else -0.02

    def score(self):
        return self.found / P["r"]

    def solved(self):
        return self.found == P["r"]
