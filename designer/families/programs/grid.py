from designer.families.programs.game import Game

P = {"n": 4, "w": 1, "q": 0, "g": 1, "s": 1}
FARTHEST = 8
STEPS = {"N": (0, 1), "S": (0, -1), "E": (1, 0), "W": (-1, 0)}


class GridEnv(Game):
    """Walk to the goal. It always lies in the same direction from the start."""

    name = "grid"
    moves = "NSEW"

    def start(self):
        size = P["n"]
        east = 1 if P["q"] in (0, 2) else -1
        north = 1 if P["q"] in (0, 1) else -1
        while True:
            across, up = self.rng.randint(1, size - 1), self.rng.randint(1, size - 1)
            if across + up < 3:
                continue
            x, y = self.rng.randrange(size), self.rng.randrange(size)
            self.goal = (x + east * across, y + north * up)
            self.at = (x, y)
            if not (0 <= self.goal[0] < size and 0 <= self.goal[1] < size):
                continue
            cells = [(a, b) for a in range(size) for b in range(size)]
            free = [cell for cell in cells if cell not in (self.at, self.goal)]
            self.walls = sorted(self.rng.sample(free, P["w"]))
            self.distance = self.distances()
            self.far = self.distance.get(self.at, FARTHEST + 1)
            if self.far <= FARTHEST:
                break
        self.budget = self.far + P["s"]
        at = self.at
        while at != self.goal:
            for move in self.moves:
                new = self.moved(at, move)
                if self.distance[new] < self.distance[at]:
                    self.plan.append(move)
                    at = new
                    break

    def beside(self, at, move):
        return at[0] + STEPS[move][0], at[1] + STEPS[move][1]

    def moved(self, at, move):
        new = self.beside(at, move)
        inside = 0 <= new[0] < P["n"] and 0 <= new[1] < P["n"]
        return new if inside and new not in self.walls else at

    def distances(self):
        found = {self.goal: 0}
        edge = [self.goal]
        while edge:
            cell = edge.pop(0)
            for move in self.moves:
                new = self.moved(cell, move)
                if new not in found:
                    found[new] = found[cell] + 1
                    edge.append(new)
        return found

    def toward(self):
        across, up = self.goal[0] - self.at[0], self.goal[1] - self.at[1]
        parts = [("N" if up > 0 else "S", abs(up)), ("E" if across > 0 else "W", abs(across))]
        blocked = [m for m in self.moves if self.beside(self.at, m) in self.walls]
        text = "goal " + "".join(f"{way}{far}" for way, far in parts if far)
        return text + (" wall " + "".join(blocked) if blocked else "")

    def view(self):
        if P["g"] == 2:
            return self.toward()
        text = f"at {self.at[0]}{self.at[1]}"
        if P["g"]:
            text += f" goal {self.goal[0]}{self.goal[1]}"
        if self.walls:
            text += " wall " + " ".join(f"{x}{y}" for x, y in self.walls)
        return text

    def play(self, move):
        before = self.at
        self.at = self.moved(before, move)
        if self.at == before:
            return "bump", -0.1
        if self.distance[self.at] < self.distance[before]:
            return "near", 0.1
        return "far", -0.1

    def score(self):
        return (self.far - self.distance[self.at]) / self.far

    def solved(self):
        return self.at == self.goal
