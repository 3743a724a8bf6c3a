"""Programs for the gates' tests: one that is sound, and one for each way to be refused."""

SOUND = '''
import random


class LadderEnv:
    """Climb to the top rung; which way is up changes with the seed."""

    def __init__(self, max_turns=10):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.ups = [rng.choice("LR") for _ in range(6)]
        self.rung = 0
        self.turn = 0
        self.over = False
        rules = ". Answer each with \\\\boxed{L} or \\\\boxed{R}."
        return "Arrows: " + " ".join(self.ups) + rules, {}

    def step(self, action):
        if self.over:
            return "over", 0.0, True, False, {}
        self.turn += 1
        said = action.rsplit("\\\\boxed{", 1)[-1].split("}", 1)[0].strip()
        if said == self.ups[self.rung]:
            self.rung += 1
            won = self.rung == len(self.ups)
            self.over = won
            return ("top" if won else "up"), (1.0 if won else 0.1), won, False, {}
        self.over = True
        return "fell", -0.5, True, False, {}

    def solution(self):
        return ["\\\\boxed{" + up + "}" for up in self.ups]

    def verify(self):
        return self.rung == len(self.ups)
'''


def edited(old: str, new: str, program: str = SOUND) -> str:
    """The program with one passage changed."""
    assert old in program, old
    return program.replace(old, new)


NO_PARSE = edited("self.turn += 1\n", "self.turn +=\n")
BAD_IMPORT = edited("import random\n", "import random\nimport torch.nn\n")
COMPUTED_IMPORT = edited("import random\n", "import random\nos = __import__('o' + 's')\n")
TWO_CLASSES = SOUND + "\n\nclass OtherEnv:\n    pass\n"
NO_CLASS = edited("class LadderEnv", "class Ladder")
RAISES_ON_LOAD = SOUND + "\n\nraise RuntimeError('no')\n"
HANGS_ON_LOAD = SOUND + "\n\nwhile True:\n    pass\n"
RESET_RAISES = edited("self.rung = 0\n", "self.rung = 0 / 0\n")
EMPTY_OBSERVATION = edited('return "Arrows: "', 'return " ", {}\n        return "Arrows: "')
LARGE_REWARD = edited("(1.0 if won else 0.1)", "(1.0 if won else 3.0)").replace("-0.5", "-7.5")
HUGE_OBSERVATION = edited('return "fell"', 'return "fell" * 100_000')
RAISES_ON_FUZZ = edited("self.turn += 1\n", "self.turn += 1\n        action.encode('ascii')\n")
HANGS_ON_FUZZ = edited(
    "self.turn += 1\n", "self.turn += 1\n        while len(action) > 9_000:\n            pass\n"
)
DIES_ON_FUZZ = edited("import random\n", "import random\nimport sys\n").replace(
    "self.turn += 1\n",
    "self.turn += 1\n        if not action:\n            sys.modules['os']._exit(3)\n",
)
HASH_ORDER = edited('return "fell"', 'return "fell " + " ".join({"a", "b", "c", "d", "e", "f"})')
CLOCK = edited('"up")', '"up " + str(time.time_ns()))').replace(
    'return "fell"', 'return "fell " + str(time.time_ns())'
)
SAME_START = edited("rng = random.Random(seed)", "rng = random.Random(7)")
HIDDEN_STATE = edited('" ".join(self.ups)', '"? " * 6')
NO_SOLUTION = edited("def solution", "def answer")
SOLUTION_RAISES = edited("def solution(self):\n", "def solution(self):\n        1 / 0\n")
SOLUTION_LOSES = edited("for up in self.ups]", "for up in self.ups[::-1] + ['L']]").replace(
    "[::-1]", "[:-1]"
)
SHORT_GAME = edited("range(6)", "range(2)")
CONSTANT_WINS = edited("if said == self.ups[self.rung]", "if said in 'LR' and said")
NOTHING_WINS = edited(
    "if said == self.ups[self.rung]", "if not said or said == self.ups[self.rung]"
)
RANDOM_WINS = edited("if said == self.ups[self.rung]", "if random.Random(said).random() < 0.9")
