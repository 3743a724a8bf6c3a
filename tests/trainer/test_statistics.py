import math

import pytest

from trainer.statistics import (
    bootstrap_interval,
    mean,
    mean_interval,
    paired_difference,
    standard_error,
    wilson_interval,
)


def test_wilson_interval_of_half_of_ten():
    # Hand: z = 1.96: centre (0.5 + 0.19207) / 1.38415 = 0.5, half width 0.26341.
    low, high = wilson_interval(5, 10)
    assert (low, high) == pytest.approx((0.23659, 0.76341), abs=1e-4)


def test_wilson_interval_of_no_success_does_not_collapse():
    low, high = wilson_interval(0, 10)
    assert low == 0.0
    assert high == pytest.approx(0.27753, abs=1e-4)


def test_paired_difference_leaves_out_the_pair_of_a_lost_play():
    difference, error, pairs = paired_difference([0.0, 1.0, None, 0.0], [1.0, 1.0, 1.0, None])
    assert difference == pytest.approx(0.5)
    assert error == pytest.approx(math.sqrt(0.5) / math.sqrt(2))
    assert pairs == 2


def test_pairing_shrinks_the_error_of_what_the_arms_share():
    plain = [0.0, 1.0] * 8
    hinted = [r + 0.1 for r in plain]
    assert paired_difference(plain, hinted)[1] == pytest.approx(0.0, abs=1e-12)
    assert standard_error(plain) > 0.1


def test_mean_interval_is_symmetric_and_empty_is_nan():
    low, high = mean_interval([0.0, 1.0, 0.0, 1.0])
    assert low + high == pytest.approx(1.0)
    assert math.isnan(mean([]))
    assert math.isnan(bootstrap_interval([]).low)


def test_bootstrap_interval_holds_the_mean_and_repeats():
    values = [0.0] * 30 + [1.0] * 10
    low, high = bootstrap_interval(values)
    assert low < 0.25 < high
    assert (low, high) == bootstrap_interval(values)
