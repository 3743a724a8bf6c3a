from designer.families.programs.game import Game

P = {"n": 4, "o": 0, "k": 3, "s": 1}
ORDERS = [
    lambda v: v,
    lambda v: -v,
    lambda v: (v % 2, v),
    lambda v: (-(v % 2), v),
]


class SortEnv(Game):
    """Swap neighbours until the items stand in the wanted order."""

    name = "sort"
    moves = "12345"

    def start(self):
        self.moves = self.moves[: P["n"] - 1]
        self.want = sorted(range(1, P["n"] + 1), key=ORDERS[P["o"]])
        items = list(self.want)
        while True:
            self.rng.shuffle(items)
            if self.inversions(items) == P["k"]:
                break
        self.items = list(items)
        self.budget = P["k"] + P["s"]
        while self.inversions(items):
            for place in range(len(items) - 1):
                if self.rank(items[place]) > self.rank(items[place + 1]):
                    items[place], items[place + 1] = items[place + 1], items[place]
                    self.plan.append(str(place + 1))
                    break

    def rank(self, item):
        return self.want.index(item)

    def inversions(self, items):
        ranks = [self.rank(item) for item in items]
        size = len(ranks)
        return sum(ranks[i] > ranks[j] for i in range(size) for j in range(i + 1, size))

    def view(self):
        return "".join("abcdef"[item - 1] for item in self.items)

    def play(self, move):
        before = self.inversions(self.items)
        place = int(move) - 1
        items = self.items
        items[place], items[place + 1] = items[place + 1], items[place]
        if self.inversions(items) < before:
            return "near", 0.1
        return "far", -0.1

    def score(self):
        return (P["k"] - self.inversions(self.items)) / P["k"]

    def solved(self):
        return self.items == self.want
