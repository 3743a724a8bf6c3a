import math

import numpy as np
import pytest

from trainer.diversity import (
    environment_class,
    flooding_class,
    novelties,
    similarities,
    vendi_score,
)


def test_the_vendi_score_of_copies_is_one_and_of_strangers_their_number():
    assert vendi_score(np.ones((5, 5))) == pytest.approx(1.0)
    assert vendi_score(np.eye(5)) == pytest.approx(5.0)
    assert math.isnan(vendi_score(np.zeros((0, 0))))


def test_the_vendi_score_by_hand():
    # Eigenvalues of [[1, s], [s, 1]] / 2 are (1 + s) / 2 and (1 - s) / 2.
    a, b = 0.75, 0.25
    expected = math.exp(-(a * math.log(a) + b * math.log(b)))
    assert vendi_score(np.array([[1.0, 0.5], [0.5, 1.0]])) == pytest.approx(expected)
    # Two pairs of copies are two items.
    pairs = np.kron(np.eye(2), np.ones((2, 2)))
    assert vendi_score(pairs) == pytest.approx(2.0)


def test_similarity_is_the_cosine_of_rows_of_three_tokens():
    # a b c d has abc, bcd; a b c e has abc, bce: one of two shared.
    kernel = similarities(["a b c d", "a b c e", "x y z"])
    assert kernel[0, 1] == pytest.approx(0.5)
    assert kernel[0, 2] == 0.0
    assert np.diag(kernel) == pytest.approx(1.0)
    assert similarities(["a"], ["a", "b c d"]).tolist() == [[1.0, 0.0]]


def test_a_class_floods_from_half_of_four_on():
    assert flooding_class(["maze"] * 3) == ("", 1.0)
    assert flooding_class(["maze", "maze", "lock", "code"]) == ("maze", 0.5)
    assert flooding_class(["maze", "keys", "lock", "code"]) == ("", 0.25)
    assert math.isnan(flooding_class([])[1])
    assert environment_class("class MazeEnv:\n    pass\n", "") == "MazeEnv"
    assert environment_class("class MazeEnv:\n    pass\n", "grid") == "grid"


def test_novelty_is_the_distance_to_the_nearest_program():
    step = ["a b c d", "a b c e", "x y z"]
    assert novelties(step, []) == pytest.approx([0.5, 0.5, 1.0])
    assert novelties(step, ["x y z", "a b c d"]) == pytest.approx([0.0, 0.5, 0.0], abs=1e-12)
    assert novelties(["a b c"], []) == [1.0]
    assert novelties([], ["a b c"]) == []
