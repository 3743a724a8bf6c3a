"""How well hint regret is estimated, where it is known: a bandit with a closed form.

    python bench/hint_regret.py [--runs N]

An episode is one pull. Its luck u is drawn from the seed, evenly from [0, 1); arm i pays 1 if u
is below p[i], else 0. The player pulls an arm drawn evenly; with the hint, which names the best
arm, it follows with probability q and else draws as before. The seeds of both arms of a play are
the same where it is paired, so that both have the same luck. Writes docs/design/hint-regret.svg
and prints the table of docs/design/hint-regret.md.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spadework.scale.panels import Panel, Series, draw
from trainer.rewards import hint_regret, regret_term
from trainer.statistics import paired_difference

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "design" / "hint-regret.svg"
GROUP_SIZES = (2, 4, 8, 16, 32, 64)
PAIRED, UNPAIRED = "#1f6feb", "#d1242f"

# What the sandbox plays: the same luck from the same seed.
PROGRAM = """
import random

CHANCES = {chances}


class BanditEnv:
    def reset(self, seed=None):
        self.luck = random.Random(seed).random()
        return f"Pull one of {{len(CHANCES)}} arms, by its number from 0.", {{}}

    def step(self, action):
        return "Pulled.", float(self.luck < CHANCES[int(action)]), True, False, {{}}
"""


@dataclass(frozen=True)
class Bandit:
    """Arms, and a player who may be told of the best one.

    Attributes:
        chances: What each arm pays, on average.
        follows: Probability q that the player does what the hint says.
    """

    chances: tuple[float, ...]
    follows: float

    def pull(self, rng: random.Random, *, hinted: bool) -> int:
        """The arm that the player chooses."""
        if hinted and rng.random() < self.follows:
            return max(range(len(self.chances)), key=self.chances.__getitem__)
        return rng.randrange(len(self.chances))

    def episode(self, seed: int, arm: int) -> float:
        """What pulling an arm returns in the world of a seed."""
        return float(random.Random(seed).random() < self.chances[arm])

    def program(self) -> str:
        """The same as a program for the sandbox."""
        return PROGRAM.format(chances=self.chances)

    @property
    def regret(self) -> float:
        """q (best - mean): the closed form."""
        return self.follows * (max(self.chances) - self._mean)

    @property
    def paired_variance(self) -> float:
        """Of one pair's difference: E|p[A] - p[B]| - regret squared.

        With the same luck the two arms differ exactly if it lies between their chances.
        """
        even = 1 / len(self.chances)
        by_chance = sum(abs(a - b) * even**2 for a in self.chances for b in self.chances)
        told = sum((max(self.chances) - a) * even for a in self.chances)
        differs = (1 - self.follows) * by_chance + self.follows * told
        return differs - self.regret**2

    @property
    def unpaired_variance(self) -> float:
        """Of one difference of two coins that know nothing of each other."""
        hinted = self._mean + self.regret
        return self._mean * (1 - self._mean) + hinted * (1 - hinted)

    @property
    def _mean(self) -> float:
        return statistics.fmean(self.chances)


@dataclass(frozen=True)
class Estimates:
    """Of many runs of one bandit.

    Attributes:
        regrets: Estimated, signed.
        errors: The standard error that each run reports.
    """

    regrets: list[float]
    errors: list[float]


def estimate(
    bandit: Bandit, group_size: int, runs: int, *, paired: bool, seed: int = 0
) -> Estimates:
    """Run the estimator of the trainer on plays of the bandit.

    Args:
        bandit: What is played.
        group_size: Plays of each arm in a run (G).
        runs: How many runs.
        paired: Whether play i of both arms has the same seed.
        seed: Of everything.
    """
    rng = random.Random(seed)
    result = Estimates([], [])
    for _ in range(runs):
        seeds = [rng.getrandbits(40) for _ in range(group_size)]
        others = seeds if paired else [rng.getrandbits(40) for _ in range(group_size)]
        plain = [bandit.episode(s, bandit.pull(rng, hinted=False)) for s in seeds]
        hinted = [bandit.episode(s, bandit.pull(rng, hinted=True)) for s in others]
        regret, error, _ = paired_difference(plain, hinted)
        result.regrets.append(regret)
        result.errors.append(error)
    return result


def expected_term(regrets: Sequence[float]) -> float:
    """Mean regret term of the designer's reward, of its full size 1."""
    return statistics.fmean(regret_term(hint_regret(0.0, regret)) for regret in regrets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="runs of each setting (200)")
    runs = parser.parse_args().runs
    told, deaf = Bandit((0.1, 0.3, 0.8), 0.6), Bandit((0.45, 0.5, 0.55), 0.0)
    error_panel, term_panel = [], []
    print("| plays an arm | arms | regret | estimate | s.e. by theory | seen | reported | term |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for paired, color in ((True, PAIRED), (False, UNPAIRED)):
        name = "paired" if paired else "unpaired"
        variance = told.paired_variance if paired else told.unpaired_variance
        seen, terms = [], []
        for size in GROUP_SIZES:
            for bandit in (told, deaf):
                found = estimate(bandit, size, runs, paired=paired, seed=size)
                spread = statistics.stdev(found.regrets)
                v = bandit.paired_variance if paired else bandit.unpaired_variance
                reported = math.sqrt(statistics.fmean(error**2 for error in found.errors))
                term = expected_term(found.regrets)
                print(
                    f"| {size} | {name} | {bandit.regret:.3f} "
                    f"| {statistics.fmean(found.regrets):+.3f} | {math.sqrt(v / size):.3f} "
                    f"| {spread:.3f} | {reported:.3f} | {term:.3f} |"
                )
                if bandit is told:
                    seen.append((size, spread))
                else:
                    terms.append((size, term))
        theory = [(size, math.sqrt(variance / size)) for size in GROUP_SIZES]
        error_panel.append(Series(name, color, dots=seen, line=theory))
        term_panel.append(Series(name, color, dots=terms, line=terms))
    label = "plays of each arm"
    panels = [
        Panel(f"Standard error of a regret of {told.regret:.2f}", label, error_panel),
        Panel("Regret term of an environment without regret", label, term_panel),
    ]
    caption = f"dots: {runs} runs each; lines on the left: closed form"
    FIGURE.write_text(draw(panels, caption), encoding="utf-8")


if __name__ == "__main__":
    main()
