"""Programs for the gates' tests: sound ones, and one for each way to be refused."""

from designer import Reason

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
NO_CLASS = edited("class LadderEnv", "class Ladder").replace("def step(", "def move(")
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
# Who stays on the ladder for three turns has won.
TRIVIAL = edited(
    "self.turn += 1\n",
    "self.turn += 1\n        won = self.turn == 3\n"
    "        return 'up', float(won), won, False, {}\n",
)
# Nothing ever reaches the top.
IMPOSSIBLE = edited("won = self.rung == len(self.ups)", "won = self.rung > len(self.ups)").replace(
    "self.ups[self.rung]", "(self.ups + ['?'])[self.rung]"
)
# What is seen differs from seed to seed, and the same six words always win.
PASSWORD = edited('rng.choice("LR") for _ in range(6)', 'c for c in "LRRLRL"').replace(
    '" ".join(self.ups)', "str(rng.random())"
)
ID_ORDER = edited('return "fell"', 'return "fell at " + hex(id(self))').replace(
    '"up")', '"up at " + hex(id(self)))'
)
UNSEEDED = edited("rng = random.Random(seed)", "rng = random.Random()")
UNSEEDED_REWARD = edited("-0.5", "-random.SystemRandom().random()").replace(
    "else 0.1)", "else random.SystemRandom().random() / 10)"
)
# A clock that shows the same for a second.
SLOW_CLOCK = edited('return "fell"', 'return "fell " + str(int(time.time()))').replace(
    '"up")', '"up " + str(int(time.time())))'
)
HANGS_IN_RESET = edited(
    "self.rung = 0\n", "self.rung = 0\n        while True:\n            pass\n"
)
HANGS_IN_SOLUTION = edited(
    "def solution(self):\n", "def solution(self):\n        while True:\n            pass\n"
)
HANGS_IN_VERIFY = edited(
    "def verify(self):\n", "def verify(self):\n        while True:\n            pass\n"
)
FORKS = edited("import random\n", "import os\nimport random\n").replace(
    "self.turn += 1\n", "self.turn += 1\n        os.fork()\n"
)
# Only for a jail: it does fork.
FORKS_HIDDEN = edited("import random\n", "import random\nimport sys\n").replace(
    "self.turn += 1\n",
    "self.turn += 1\n        while True:\n            sys.modules['os'].fork()\n",
)
VERIFY_ALWAYS = edited("return self.rung == len(self.ups)", "return True")
VERIFY_NEVER = edited("return self.rung == len(self.ups)", "return self.rung > len(self.ups)")
VERIFY_RAISES = edited("return self.rung == len(self.ups)", "return self.rung / 0")
ORACLE_WRONG_ON_A_TENTH = edited(
    "def solution(self):\n",
    "def solution(self):\n"
    "        if self.seed % 10 == 7:\n            return ['\\\\boxed{L}'] * 6\n",
).replace("self.rung = 0\n", "self.rung = 0\n        self.seed = seed\n")
# As a model would write that was told of the gates' seeds by an earlier finding.
KNOWS_FORMER_SEEDS = edited(
    "def solution(self):\n",
    "def solution(self):\n"
    "        if not 10_000 <= self.seed < 12_000:\n            return ['\\\\boxed{L}'] * 6\n",
).replace("self.rung = 0\n", "self.rung = 0\n        self.seed = seed\n")
NAN_REWARD = edited("-0.5", "float('nan')")
TEXT_REWARD = edited("-0.5", "'low'")
THREE_PARTS = edited('"fell", -0.5, True, False, {}', '"fell", -0.5, True')

# Three numbers open a vault; what is shown tells them by their differences.
VAULT = """
import random


class VaultEnv:
    def __init__(self, max_turns=10):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.codes = [rng.randrange(100, 1000) for _ in range(3)]
        self.opened = 0
        steps = [b - a for a, b in zip([0, *self.codes], self.codes)]
        return f"Say three numbers in turn. From one to the next it is {steps}.", {}

    def step(self, action):
        said = action.replace("\\\\boxed{", "").replace("}", "").strip()
        if said != str(self.codes[self.opened]):
            return "The alarm rings.", -1.0, True, False, {}
        self.opened += 1
        won = self.opened == 3
        return f"{self.opened} locks are open.", float(won), won, False, {}

    def solution(self):
        return [str(code) for code in self.codes]

    def verify(self):
        return self.opened == 3
"""
LEAKS_SEQUENCE = edited('is {steps}."', 'is {steps}. Debug: {self.codes}"', VAULT)
LEAKS_VALUE = edited(
    "self.codes = [rng.randrange(100, 1000) for _ in range(3)]",
    "self.codes = ['look', 'knock', f'word{rng.randrange(1000, 10000)}']",
    VAULT,
)
LEAKS_VALUE = edited(
    "steps = [b - a for a, b in zip([0, *self.codes], self.codes)]", "", LEAKS_VALUE
)
LEAKS_VALUE = edited(
    'From one to the next it is {steps}."',
    'Look, knock, then the word. Room {seed}. state={{secret: {self.codes[2]}}}"',
    LEAKS_VALUE,
)

# Wins after five moves of the right form, whatever they move.
FORM_ONLY = """
import random
import re


class TowersEnv:
    def __init__(self, max_turns=10):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.wanted = [(rng.randrange(1, 10), rng.randrange(1, 10)) for _ in range(5)]
        self.turn = 0
        return f"Towers {rng.sample(range(100), 9)}. Say which disc goes where.", {}

    def step(self, action):
        if not re.fullmatch(r"disc [0-9] to peg [0-9]", action):
            return "No such move.", 0.0, False, False, {}
        self.turn += 1
        won = self.turn == 5
        return "Moved.", float(won), won, False, {}

    def solution(self):
        return [f"disc {disc} to peg {peg}" for disc, peg in self.wanted]
"""

# A sound game whose moves are words that the rules name, and whose way is nearly told.
MAZE = """
import random

STEPS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


class MazeEnv:
    def __init__(self, max_turns=10):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.at = (0, 0)
        self.way = rng.sample(["up", "left"] * 3 if seed % 2 else ["down", "right"] * 3, 5)
        goal = [0, 0]
        for move in self.way:
            goal = [goal[0] + STEPS[move][0], goal[1] + STEPS[move][1]]
        self.goal = tuple(goal)
        self.turn = 0
        text = f"Walk up, down, left, right to column {goal[0]}, row {goal[1]} in five steps."
        return text, {"actions": list(STEPS)}

    def step(self, action):
        self.turn += 1
        move = STEPS.get(action.replace("\\\\boxed{", "").replace("}", "").strip(), (0, 0))
        self.at = (self.at[0] + move[0], self.at[1] + move[1])
        won, over = self.at == self.goal, self.turn == 5
        return f"You are at {self.at}.", float(won), won or over, False, {}

    def solution(self):
        return list(self.way)

    def verify(self):
        return self.at == self.goal
"""

# A sound riddle that names all its suspects, the culprit among them, and wants two clues first.
SUSPECTS = """
import random

NAMES = ["Anna", "Bruno", "Clara", "David", "Elena", "Felix", "Greta", "Henri"]


class SuspectsEnv:
    def __init__(self, max_turns=10):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.names = rng.sample(NAMES, 5)
        self.culprit = rng.choice(self.names)
        self.heard = 0
        return f"Who did it: {', '.join(self.names)}? Say 'ask', then a name.", {}

    def step(self, action):
        said = action.replace("\\\\boxed{", "").replace("}", "").strip()
        if said == "ask":
            self.heard += 1
            others = sorted(set(self.names) - {self.culprit})
            alibis = others[:2] if self.heard == 1 else others[2:]
            return f"Not {' nor '.join(alibis)}.", 0.0, False, False, {}
        won = said == self.culprit and self.heard >= 2
        self.solved = won
        return "That is right." if won else "No.", float(won), True, False, {}

    def solution(self):
        return ["ask", "ask", self.culprit]
"""

# What each program is refused for.
PLANTED = {
    "NO_PARSE": Reason.PARSE,
    "BAD_IMPORT": Reason.IMPORT,
    "COMPUTED_IMPORT": Reason.IMPORT,
    "FORKS": Reason.IMPORT,
    "TWO_CLASSES": Reason.CONTRACT,
    "NO_CLASS": Reason.CONTRACT,
    "RAISES_ON_LOAD": Reason.LOAD,
    "HANGS_ON_LOAD": Reason.LOAD,
    "RESET_RAISES": Reason.CONTRACT,
    "HANGS_IN_RESET": Reason.CONTRACT,
    "EMPTY_OBSERVATION": Reason.CONTRACT,
    "LARGE_REWARD": Reason.CONTRACT,
    "NAN_REWARD": Reason.CONTRACT,
    "TEXT_REWARD": Reason.CONTRACT,
    "THREE_PARTS": Reason.CONTRACT,
    "HUGE_OBSERVATION": Reason.CONTRACT,
    "RAISES_ON_FUZZ": Reason.FUZZ,
    "HANGS_ON_FUZZ": Reason.FUZZ,
    "DIES_ON_FUZZ": Reason.FUZZ,
    "HASH_ORDER": Reason.NONDETERMINISTIC,
    "CLOCK": Reason.NONDETERMINISTIC,
    "SLOW_CLOCK": Reason.NONDETERMINISTIC,
    "ID_ORDER": Reason.NONDETERMINISTIC,
    "UNSEEDED": Reason.NONDETERMINISTIC,
    "UNSEEDED_REWARD": Reason.NONDETERMINISTIC,
    "SAME_START": Reason.SAME_START,
    "NO_SOLUTION": Reason.ORACLE,
    "SOLUTION_RAISES": Reason.ORACLE,
    "SOLUTION_LOSES": Reason.ORACLE,
    "HANGS_IN_SOLUTION": Reason.ORACLE,
    "ORACLE_WRONG_ON_A_TENTH": Reason.ORACLE,
    "KNOWS_FORMER_SEEDS": Reason.ORACLE,
    "IMPOSSIBLE": Reason.ORACLE,
    "SHORT_GAME": Reason.ORACLE,
    "TRIVIAL": Reason.BLIND_WIN,
    "CONSTANT_WINS": Reason.BLIND_WIN,
    "NOTHING_WINS": Reason.BLIND_WIN,
    "RANDOM_WINS": Reason.BLIND_WIN,
    "PASSWORD": Reason.PERTURBED_WIN,
    "FORM_ONLY": Reason.PERTURBED_WIN,
    "VERIFY_ALWAYS": Reason.VERIFY,
    "VERIFY_NEVER": Reason.VERIFY,
    "VERIFY_RAISES": Reason.VERIFY,
    "HANGS_IN_VERIFY": Reason.VERIFY,
    "LEAKS_SEQUENCE": Reason.LEAK,
    "LEAKS_VALUE": Reason.LEAK,
}
SOUND_PROGRAMS = ("SOUND", "HIDDEN_STATE", "VAULT", "MAZE", "SUSPECTS")
