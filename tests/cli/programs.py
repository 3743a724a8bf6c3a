"""Programs that the command line's tests play."""

# The door is left or right by the seed; the oracle knows which.
DOOR = '''
class DoorEnv:
    """Walk through the door three times."""

    def __init__(self, max_turns=8):
        self.max_turns = max_turns

    def reset(self, seed=None):
        self.door = ["left", "right"][(seed or 0) % 2]
        self.walked = 0
        self.turn = 0
        return f"The door is on the {self.door}.", {"actions": ["left", "right"]}

    def step(self, action):
        self.turn += 1
        if action != self.door:
            return "A wall.", -1.0, True, False, {}
        self.walked += 1
        won = self.walked == 3
        info = {"actions": ["left", "right"]}
        return f"Walked {self.walked} times.", float(won), won, False, info

    def solution(self):
        return [self.door] * 3

    def verify(self):
        return self.walked == 3
'''

RAISES = """
class RaisesEnv:
    def reset(self, seed=None):
        return "Ready.", {}

    def step(self, action):
        raise ValueError("no such thing")
"""

BROKEN = "class BrokenEnv:\n    def reset(self seed):\n"
