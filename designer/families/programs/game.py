import random

CLUE = ""
FAIL_CREDIT = 0.5
BAD_MOVE = -0.1


def read_move(action, moves):
    text = str(action)
    if "\\boxed{" in text:
        text = text.rsplit("\\boxed{", 1)[1].split("}", 1)[0]
    move = text.strip()[:1]
    for candidate in (move, move.lower(), move.upper()):
        if candidate and candidate in moves:
            return candidate
    return None


class Game:
    """Turns, moves and ends. A family gives start, view, play, score and finished."""

    name = ""
    moves = ""

    def __init__(self, max_turns=20):
        self.max_turns = max_turns
        self.turn = 0
        self.over = True
        self.budget = 0
        self.plan = []

    def reset(self, seed=None):
        self.rng = random.Random(seed)
        self.turn = 0
        self.over = False
        self.budget = 0
        self.plan = []
        self.start()
        text = self.name + " " + "".join(self.moves) + " " + self.look()
        if CLUE:
            text += "\n\nHINT: " + CLUE
        return text, {"actions": list(self.moves)}

    def look(self):
        return self.view() + " left " + str(self.budget - self.turn)

    def step(self, action):
        if self.over:
            return "over", 0.0, True, False, {}
        self.turn += 1
        move = read_move(action, self.moves)
        if move is None:
            text, reward = "bad move", BAD_MOVE
            self.idle()
        else:
            text, reward = self.play(move)
        solved = self.solved()
        terminated = solved or self.finished() or self.turn >= self.budget
        truncated = not terminated and self.turn >= self.max_turns
        self.over = terminated or truncated
        if terminated:
            reward = 1.0 if solved else FAIL_CREDIT * max(0.0, min(1.0, self.score()))
        view = ("solved" if solved else "failed") if self.over else self.look()
        return (text + " " + view).strip(), round(float(reward), 4), terminated, truncated, {}

    def idle(self):
        """What a bad move does to the world: nothing, unless time itself matters."""

    def finished(self):
        return False

    def solution(self):
        return list(self.plan)

    def verify(self):
        return self.turn > 0 and self.over and self.solved()
