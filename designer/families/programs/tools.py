import json

from spadework_env import Criterion, Message, ToolEnv

CLUE = ""
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "June"]


class Task(ToolEnv):
    """A world with tools, the user's messages, and the plan that does what they ask."""

    def setup(self, rng):
        self.plan = []
        self.start(rng)
        if CLUE:
            self.messages[0].text += "\n\nHINT: " + CLUE

    def call(self, name, /, **arguments):
        text = json.dumps({"name": name, "arguments": arguments})
        self.plan.append("<tool_call>" + text + "</tool_call>")

    def answer(self, value):
        self.plan.append(f"<answer>{value}</answer>")

    def solution(self):
        return list(self.plan)


def needs(path, op, expected):
    return Criterion(path, op, expected)


def message(text, answer=None, criterion=None):
    return Message(text, answer, criterion)
