"""Tool-use programs for the gates' tests: sound ones, and one for each way to be refused."""

from programs import edited

from designer import Reason

TOOLS = '''
import json
from spadework_env import Criterion, Message, ToolEnv


class ParcelEnv(ToolEnv):
    def setup(self, rng):
        names = rng.sample(["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn"], 4)
        codes = rng.sample(range(1000, 9999), 4)
        self.codes = {name: f"P{code}" for name, code in zip(names, codes)}
        self.parcels = {code: {"status": "stored", "grams": rng.randint(100, 900)}
                        for code in self.codes.values()}
        self.name, self.code = names[0], self.codes[names[0]]
        self.total = 0
        self.messages = [
            Message(f"Please send the parcel of {self.name}.",
                    criterion=Criterion(("parcels", self.code, "status"), "==", "sent")),
            Message("What did it weigh, in grams?", answer=self.parcels[self.code]["grams"],
                    criterion=lambda: self.total == 1),
        ]

    def tool_find(self, name: str):
        """Find the code of somebody's parcel."""
        return {"code": self.codes[name]}

    def tool_weigh(self, code: str):
        """Weigh a parcel."""
        return {"grams": self.parcels[code]["grams"]}

    def tool_send(self, code: str):
        """Send a parcel."""
        self.parcels[code]["status"] = "sent"
        self.total += 1
        return "sent"

    def solution(self):
        return [
            _call("find", name=self.name),
            _call("send", code=self.code),
            "<answer>done</answer>",
            _call("weigh", code=self.code),
            f"<answer>{self.parcels[self.code]['grams']}</answer>",
        ]


def _call(name, /, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
'''

# The solution knows the code without asking; a tool tells it to whoever asks.
KNOWING = edited('            _call("find", name=self.name),\n', "", TOOLS)

# Tools of somebody else's, with no criteria and one call an action.
FOREIGN = """
import json, random, re

class ShelfEnv:
    def __init__(self, max_turns=10):
        self.max_turns = max_turns
    def get_tools(self):
        shelf = {"shelf": {"type": "integer"}}
        text = {"type": "object", "properties": shelf, "required": ["shelf"]}
        return [{"type": "function", "function": {"name": "look", "parameters": text}}]
    def reset(self, seed=None):
        rng = random.Random(seed)
        self.books = [f"B{rng.randint(10000, 99999)}" for _ in range(12)]
        self.asked, self.seen, self.turn = rng.randrange(12), set(), 0
        return f"Which book stands on shelf {self.asked}?", {"criteria": "none", "state": 3}
    def step(self, action):
        self.turn += 1
        out = self.turn >= self.max_turns
        call = re.search(r'"shelf": *(\\d+)', action)
        if call and int(call[1]) < 12:
            self.seen.add(int(call[1]))
            return self.books[int(call[1])], 0.0, False, out, {}
        if "<answer>" in action:
            won = self.books[self.asked] in action and len(self.seen) > 1
            return "over", float(won), True, False, {}
        return "look or answer", 0.0, False, out, {}
    def solution(self):
        call = '<tool_call>{"name": "look", "arguments": {"shelf": %d}}</tool_call>'
        other = (self.asked + 1) % 12
        return [call % other, call % self.asked, f"<answer>{self.books[self.asked]}</answer>"]
"""

MET_AT_RESET = edited('"==", "sent"', '"in", ["stored", "sent"]', TOOLS)
FUNCTION_MET_AT_RESET = edited("self.total == 1", "self.total >= 0", TOOLS)
WRONG_TYPE = edited('"status"), "==", "sent"', '"grams"), "==", "sent"', TOOLS)
WRONG_TYPE_IN_FUNCTION = edited("self.total == 1", 'self.total == "1"', TOOLS)
NEVER_SET = edited(
    '("parcels", self.code, "status"), "==", "sent"', '"dispatched", "==", 1', TOOLS
)
INSIDE_A_TEXT = edited('"status"),', '"status", "now"),', TOOLS)
NO_ORDER = edited("self.total == 1", 'self.total > "0"', TOOLS)
CODE_UNTOLD = edited('{"code": self.codes[name]}', '{"known": name in self.codes}', TOOLS)
WEIGHT_UNTOLD = (
    edited('{"grams": self.parcels[code]["grams"]}', '"heavy"', TOOLS)
    .replace("rng.sample(range(1000, 9999), 4)", "[1111, 2222, 3333, 4444]")
    .replace("rng.sample([", "list([")
    .replace('"Finn"], 4)', '"Finn"])')
)

PLANTED = {
    "MET_AT_RESET": Reason.CRITERION,
    "FUNCTION_MET_AT_RESET": Reason.CRITERION,
    "WRONG_TYPE": Reason.CRITERION,
    "WRONG_TYPE_IN_FUNCTION": Reason.CRITERION,
    "NEVER_SET": Reason.CRITERION,
    "INSIDE_A_TEXT": Reason.CRITERION,
    "NO_ORDER": Reason.CRITERION,
    "CODE_UNTOLD": Reason.UNREVEALED,
    "WEIGHT_UNTOLD": Reason.UNREVEALED,
}
SOUND_PROGRAMS = ("TOOLS", "KNOWING", "FOREIGN")
