from designer.families.programs.game import Game

P = {"n": 6, "q": 0, "t": 0, "g": 1, "s": 1}


class KeysEnv(Game):
    """Walk along a line, take the key, open the door. The key lies on a fixed side."""

    name = "keys"
    moves = "LRTO"

    def start(self):
        size = P["n"]
        side = 1 if P["q"] else -1
        turn = side if P["t"] else -side
        while True:
            self.at = self.rng.randrange(size)
            self.key = self.at + side * self.rng.randint(1, 2)
            self.door = self.key + turn * self.rng.randint(1, 3)
            places = (self.key, self.door)
            if all(0 <= place < size for place in places) and self.at != self.door:
                break
        self.has_key = False
        self.open = False
        self.far = self.togo()
        self.budget = self.far + P["s"]
        reach = abs(self.key - self.at)
        self.plan = ["R" if side > 0 else "L"] * reach + ["T"]
        self.plan += ["R" if turn > 0 else "L"] * abs(self.door - self.key) + ["O"]

    def togo(self):
        if self.open:
            return 0
        if self.has_key:
            return abs(self.door - self.at) + 1
        return abs(self.key - self.at) + abs(self.door - self.key) + 2

    def toward(self):
        what, place = ("door", self.door) if self.has_key else ("key", self.key)
        if place == self.at:
            return what + " here"
        return f"{what} {'R' if place > self.at else 'L'}{abs(place - self.at)}"

    def view(self):
        if P["g"] == 2:
            return self.toward()
        text = f"at {self.at}"
        if self.has_key:
            text += " key ok"
        elif P["g"] or self.at == self.key:
            text += f" key {self.key}"
        if P["g"] or self.at == self.door:
            text += f" door {self.door}"
        return text

    def play(self, move):
        before = self.togo()
        if move == "L":
            self.at = max(0, self.at - 1)
        elif move == "R":
            self.at = min(P["n"] - 1, self.at + 1)
        elif move == "T" and self.at == self.key:
            self.has_key = True
        elif move == "O" and self.at == self.door and self.has_key:
            self.open = True
        if self.togo() < before:
            return "near", 0.1
        return ("far" if self.togo() > before else "bump"), -0.1

    def score(self):
        return (self.far - self.togo()) / self.far

    def solved(self):
        return self.open
