import random
from collections import Counter

import pytest

from trainer.replay import draw_levels, level_weights


def test_weights_by_hand():
    # Ranks 2, 1, 3 at temperature 1: 1/2, 1, 1/3 over 11/6; ages 1, 0, 3 over 4.
    weights = level_weights([0.2, 0.9, 0.1], [1, 0, 3], temperature=1.0, staleness=0.25)
    ranks = [3 / 11, 6 / 11, 2 / 11]
    expected = [0.75 * a + 0.25 * b for a, b in zip(ranks, [0.25, 0.0, 0.75], strict=True)]
    assert weights == pytest.approx(expected)
    assert sum(weights) == pytest.approx(1.0)


def test_a_low_temperature_takes_the_best_and_a_high_one_all_alike():
    cold = level_weights([1, 3, 2], [1, 1, 1], temperature=0.05, staleness=0.0)
    assert cold[1] > 0.999
    hot = level_weights([1, 3, 2], [1, 1, 1], temperature=1e9, staleness=0.0)
    assert hot == pytest.approx([1 / 3] * 3)


def test_staleness_alone_goes_by_age():
    assert level_weights([5, 1], [1, 3], temperature=1.0, staleness=1.0) == [0.25, 0.75]
    assert level_weights([5, 1], [0, 0], temperature=1.0, staleness=1.0) == [0.5, 0.5]
    assert level_weights([], [], temperature=1.0, staleness=0.5) == []


def test_levels_are_drawn_by_their_weight_and_once():
    rng = random.Random(0)
    first = Counter(draw_levels([0.7, 0.2, 0.1], 1, rng)[0] for _ in range(3_000))
    assert first[0] / 3_000 == pytest.approx(0.7, abs=0.05)
    for _ in range(20):
        assert sorted(draw_levels([0.7, 0.2, 0.1], 5, rng)) == [0, 1, 2]
    assert sorted(draw_levels([1.0, 0.0], 2, rng)) == [0, 1]
    assert draw_levels([], 3, rng) == []
