import math

import pytest

from trainer.rewards import (
    REWARDS,
    EnvironmentMeasure,
    designer_reward,
    eligible,
    episode_return,
    hint_regret,
    learnable,
    plateau,
    regime,
)


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
    assert regime(0.5, 0.1, 0.05) == "frontier"
    assert regime(0.97, 0.0, 0.0) == "mastered"
    assert regime(0.01, 0.0, math.nan) == "intractable"
    assert regime(0.5, -0.3, 0.1) == "misleading_hint"
    assert regime(0.5, -0.3, 0.2) == "frontier"
    assert learnable(0.2)
    assert not learnable(0.81)
