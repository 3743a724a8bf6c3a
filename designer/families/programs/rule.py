from designer.families.programs.game import Game

P = {"m": 6, "t": 0, "h": 1}
TESTS = [
    lambda v: v % 2 == 0,
    lambda v: v % 2 == 1,
    lambda v: v > 4,
    lambda v: v < 5,
    lambda v: v % 3 == 0,
    lambda v: 2 < v < 7,
]


class RuleEnv(Game):
    """Say of each number whether it obeys a hidden rule, learning from the answers."""

    name = "rule"
    moves = "yn"

    def start(self):
        test = TESTS[P["t"]]
        while True:
            numbers = self.rng.sample(range(10), min(10, P["m"] + P["h"]))
            self.numbers, self.shown = numbers[: P["m"]], numbers[P["m"] :]
            truths = [test(v) for v in self.numbers]
            if 2 <= sum(truths) <= len(truths) - 2:
                break
        self.plan = ["y" if truth else "n" for truth in truths]
        self.right = 0
        self.budget = len(self.numbers)
        self.known = " ".join(f"{v}{'y' if test(v) else 'n'}" for v in self.shown)

    def view(self):
        text = self.known + " " if self.known else ""
        return text + f"is {self.numbers[min(self.turn, self.budget - 1)]}"

    def play(self, move):
        self.idle()
        if move == self.plan[self.turn - 1]:
            self.right += 1
            return "yes", 0.1
        return "no", -0.1

    def idle(self):
        number, truth = self.numbers[self.turn - 1], self.plan[self.turn - 1]
        self.known = f"{self.known} {number}{truth}".strip()

    def score(self):
        return 2 * self.right / self.budget - 1

    def solved(self):
        return self.right == self.budget
