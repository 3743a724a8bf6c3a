import math
import random

import pytest

from trainer.rewards import (
    REGIME_PAIRS,
    REWARDS,
    EnvironmentMeasure,
    designer_reward,
    eligible,
    episode_return,
    hint_effect,
    hint_regret,
    learnable,
    plateau,
    regime,
)
from trainer.statistics import paired_difference


def measure(mean_return, *, regret=0.0, hinted=0.8, average=0.0):
    return EnvironmentMeasure(regret, hinted, [mean_return] * 4, average)


def test_episode_return_is_the_clipped_last_reward_of_a_terminated_episode():
    assert episode_return(0.4, terminated=True) == 0.4
    assert episode_return(7.0, terminated=True) == 1.0
    assert episode_return(-7.0, terminated=True) == -1.0
    assert episode_return(0.9, terminated=False) == 0.0


@pytest.mark.parametrize(
    ("mean_return", "expected"),
    [(0.4, 1), (0.5, 1), (0.6, 1), (0.275, 0.5), (0.725, 0.5), (0.15, 0), (0.85, 0), (-1, 0)],
)
def test_plateau(mean_return, expected):
    assert plateau(mean_return) == pytest.approx(expected)


def test_blend_is_four_tenths_regret_and_six_tenths_plateau():
    assert REWARDS["blend"](measure(0.5, regret=0.15)) == pytest.approx(1.0)
    assert REWARDS["blend"](measure(0.5, regret=0.075)) == pytest.approx(0.8)
    assert REWARDS["blend"](measure(0.275, regret=0.9)) == pytest.approx(0.7)
    assert REWARDS["blend"](measure(0.5)) == pytest.approx(0.6)


def test_the_other_named_rewards():
    coin = EnvironmentMeasure(0.3, 0.8, [0.0, 1.0, 0.0, 1.0], 0.2)
    assert REWARDS["regret"](coin) == 0.3
    assert REWARDS["plateau"](coin) == 1.0
    assert REWARDS["learning_potential"](coin) == pytest.approx(0.3)
    assert REWARDS["variance"](coin) == pytest.approx(1.0)
    assert REWARDS["learnability"](coin) == pytest.approx(0.25)
    sure = EnvironmentMeasure(0.0, 1.0, [1.0] * 4)
    assert REWARDS["variance"](sure) == pytest.approx(math.exp(-0.0625 / 0.02))
    assert REWARDS["learnability"](sure) == 0.0


def test_regret_is_never_negative():
    assert hint_regret(0.7, 0.4) == 0.0
    assert hint_regret(0.4, 0.7) == pytest.approx(0.3)


def test_only_eligible_environments_earn_anything():
    assert eligible(0.05, 0.5, hinted_floor=0.05)
    assert not eligible(0.04, 0.5, hinted_floor=0.05)
    assert not eligible(0.96, 1.0, hinted_floor=0.05)
    assert not eligible(0.5, 0.05, hinted_floor=0.05)
    assert not eligible(0.5, math.nan, hinted_floor=0.05)
    assert designer_reward("blend", measure(0.0, regret=0.9), hinted_floor=0.05) == 0.0
    assert designer_reward("blend", measure(0.5, regret=0.15), hinted_floor=0.05) == 1.0
    empty = EnvironmentMeasure(0.0, math.nan, [])
    assert designer_reward("blend", empty, hinted_floor=0.05) == 0.0


def test_regimes_and_the_learnable_band():
    assert regime(0.5, 0.1, 0.05, 8) == "frontier"
    assert regime(0.97, 0.0, 0.0, 8) == "mastered"
    assert regime(0.01, 0.0, math.nan, 1) == "intractable"
    assert regime(0.5, math.nan, math.nan, 0) == "frontier"
    assert regime(0.5, -0.3, 0.1, 8) == "misleading_hint"
    assert regime(0.97, -0.3, 0.1, 8) == "misleading_hint"
    # 2.36 standard errors at eight pairs, 2.13 at sixteen.
    assert regime(0.5, -0.3, 0.135, 8) == "frontier"
    assert regime(0.5, -0.3, 0.135, 16) == "misleading_hint"
    assert learnable(0.2)
    assert not learnable(0.81)


def test_a_few_plays_that_agree_tell_nothing_of_a_hint():
    # Their standard error is 0, which is no certainty.
    assert regime(0.5, -1.0, 0.0, REGIME_PAIRS - 1) == "frontier"
    assert regime(0.0, 1.0, 0.0, REGIME_PAIRS - 1) == "intractable"
    assert regime(0.5, -1.0, 0.0, REGIME_PAIRS) == "misleading_hint"


def test_what_only_its_password_opens_is_told_apart_and_earns_nothing():
    assert regime(0.0, 1.0, 0.0, 8) == "password_only"
    assert regime(0.0, 0.5, 0.19, 8) == "password_only"
    assert regime(0.0, 0.25, 0.16, 8) == "intractable"
    assert regime(0.06, 0.9, 0.01, 8) == "frontier"
    only = EnvironmentMeasure(1.0, 1.0, [0.0] * 8)
    for name in REWARDS:
        assert designer_reward(name, only, hinted_floor=0.05) == 0.0


@pytest.mark.parametrize("pairs", [8, 16, 32])
def test_a_hint_that_changes_nothing_is_seldom_called_misleading(pairs):
    # Independent fair plays in both arms, the worst case for few discrete differences.
    rng = random.Random(5)
    runs = 2000
    called = 0
    for _ in range(runs):
        plain = [float(rng.random() < 0.5) for _ in range(pairs)]
        hinted = [float(rng.random() < 0.5) for _ in range(pairs)]
        called += hint_effect(*paired_difference(plain, hinted)) < 0
    assert called / runs < 0.04


@pytest.mark.parametrize(("pairs", "found"), [(8, 0.19), (16, 0.75), (32, 0.99)])
def test_how_often_a_hint_that_halves_the_wins_is_found(pairs, found):
    rng = random.Random(6)
    runs = 500
    called = 0
    for _ in range(runs):
        luck = [rng.random() for _ in range(pairs)]
        plain = [float(u < 0.6) for u in luck]
        hinted = [float(u < 0.3) for u in luck]
        called += hint_effect(*paired_difference(plain, hinted)) < 0
    assert called / runs == pytest.approx(found, abs=0.06)
