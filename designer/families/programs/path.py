from designer.families.programs.game import Game

P = {"a": 1, "b": 2, "d": 1, "k": 3, "s": 1}
CEILING = 60


class PathEnv(Game):
    """Turn one number into another with three operations whose meaning is fixed."""

    name = "make"
    moves = "abc"

    def start(self):
        while True:
            self.value = self.rng.randint(1, 9)
            reached = self.forward(self.value)
            easy = self.repeated(self.value)
            targets = sorted(v for v, far in reached.items() if far == P["k"] and v not in easy)
            if targets:
                break
        self.target = self.rng.choice(targets)
        self.distance = self.backward()
        self.far = self.distance[self.value]
        self.budget = self.far + P["s"]
        value = self.value
        while value != self.target:
            best = min(self.moves, key=lambda move: self.togo(self.applied(value, move)))
            self.plan.append(best)
            value = self.applied(value, best)

    def applied(self, value, move):
        new = {"a": value + P["a"], "b": value * P["b"], "c": value - P["d"]}[move]
        return new if 0 <= new <= CEILING else value

    def repeated(self, start):
        """What one operation alone reaches; such a target would be won by a constant."""
        values = set()
        for move in self.moves:
            value = start
            for _ in range(P["k"] + P["s"]):
                value = self.applied(value, move)
                values.add(value)
        return values

    def forward(self, start):
        found, edge = {start: 0}, [start]
        while edge:
            value = edge.pop(0)
            for move in self.moves:
                new = self.applied(value, move)
                if new not in found:
                    found[new] = found[value] + 1
                    edge.append(new)
        return found

    def backward(self):
        sources = {}
        for value in range(CEILING + 1):
            for move in self.moves:
                sources.setdefault(self.applied(value, move), []).append(value)
        found, edge = {self.target: 0}, [self.target]
        while edge:
            value = edge.pop(0)
            for source in sources.get(value, []):
                if source not in found:
                    found[source] = found[value] + 1
                    edge.append(source)
        return found

    def togo(self, value):
        return self.distance.get(value, CEILING)

    def view(self):
        return f"{self.target} from {self.value}"

    def play(self, move):
        before = self.togo(self.value)
        self.value = self.applied(self.value, move)
        better = self.togo(self.value) < before
        return move, 0.1 if better else -0.1

    def score(self):
        return (self.far - self.togo(self.value)) / self.far

    def solved(self):
        return self.value == self.target
