from designer.families.programs.game import Game

P = {"n": 6, "t": 0, "k": 3, "s": 1}
# Presses until all are lit, by lamps; the same for every seed.
DISTANCE: dict[tuple[int, ...], int] = {}
FLIPS = [(0, 1), (-1, 0, 1), (0, 1, 3), (1, 2)]


class RingEnv(Game):
    """Light every lamp of a ring, where each button flips several of them."""

    name = "ring"
    moves = "abcdefgh"

    def start(self):
        size = P["n"]
        self.moves = self.moves[:size]
        if not DISTANCE:
            self.measure()
        far = max(DISTANCE.values())
        wanted = min(P["k"], far)
        self.lamps = self.rng.choice(
            sorted(lamps for lamps, steps in DISTANCE.items() if steps == wanted)
        )
        self.far = wanted
        self.budget = wanted + P["s"]
        lamps = self.lamps
        while DISTANCE[lamps]:
            best = min(self.moves, key=lambda move: DISTANCE[self.pressed(lamps, move)])
            self.plan.append(best)
            lamps = self.pressed(lamps, best)

    def measure(self):
        lit = (1,) * P["n"]
        DISTANCE[lit] = 0
        edge = [lit]
        while edge:
            lamps = edge.pop(0)
            for move in self.moves:
                new = self.pressed(lamps, move)
                if new not in DISTANCE:
                    DISTANCE[new] = DISTANCE[lamps] + 1
                    edge.append(new)

    def pressed(self, lamps, move):
        new = list(lamps)
        for offset in FLIPS[P["t"]]:
            lamp = (self.moves.index(move) + offset) % P["n"]
            new[lamp] = 1 - new[lamp]
        return tuple(new)

    def view(self):
        return "".join(map(str, self.lamps))

    def play(self, move):
        before = DISTANCE[self.lamps]
        self.lamps = self.pressed(self.lamps, move)
        return move, 0.1 if DISTANCE[self.lamps] < before else -0.1

    def score(self):
        return (self.far - DISTANCE[self.lamps]) / self.far

    def solved(self):
        return DISTANCE[self.lamps] == 0
