"""The fits, on data of which the law is known."""

from __future__ import annotations

import random

import pytest

from spadework.scale import laws

SIZES = (1, 4, 16, 64, 256, 500, 1_000, 2_500, 5_000)


def _noisy(values: list[float], share: float, seed: int = 0) -> list[float]:
    chance = random.Random(seed)
    return [value * chance.lognormvariate(0.0, share) for value in values]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, -0.3])
def test_a_power_law_gives_its_exponent_back(exponent: float):
    found = laws.slope(SIZES, [3.0 * size**exponent for size in SIZES])
    assert found.value == pytest.approx(exponent)
    assert found.scale == pytest.approx(3.0)
    assert found.high - found.low == pytest.approx(0.0, abs=1e-6)


def test_the_interval_holds_the_exponent_in_19_of_20_tries():
    held = 0
    for seed in range(200):
        ys = _noisy([2.0 * size**0.8 for size in SIZES * 2], 0.1, seed)
        found = laws.slope(SIZES * 2, ys)
        held += found.low <= 0.8 <= found.high
    assert 180 <= held <= 199


def test_a_straight_line_has_no_bend_and_gives_its_prices_back():
    xs = SIZES * 2
    law = laws.line(xs, _noisy([5.0 + 0.1 * x for x in xs], 0.03))
    assert law.bend is None
    assert law.fixed == pytest.approx(5.0, rel=0.1)
    assert law.each == law.beyond == pytest.approx(0.1, rel=0.1)
    assert law.half == pytest.approx(50.0, rel=0.2)
    assert law.at(50_000) == pytest.approx(5_005.0, rel=0.1)


def test_a_bend_is_found_where_it_is():
    xs = SIZES * 2
    law = laws.line(
        xs, _noisy([1.0 + 0.1 * min(x, 256) + 0.3 * max(0, x - 256) for x in xs], 0.03)
    )
    assert law.bend is not None
    assert 64 <= law.bend <= 500
    assert law.each == pytest.approx(0.1, rel=0.3)
    assert law.beyond == pytest.approx(0.3, rel=0.2)


def test_no_price_is_negative():
    law = laws.line([1, 10, 100, 1_000], [10.0, 9.0, 8.5, 8.0])
    assert min(law.fixed, law.each, law.beyond) >= 0
    assert law.half is None


@pytest.mark.parametrize(
    ("exponent", "verdict"), [(0.7, "not worse"), (1.0, "not worse"), (1.5, "worse")]
)
def test_growth_is_judged_at_the_large_end(exponent: float, verdict: str):
    # Up to 500 everything is linear.
    ys = [x if x <= 500 else 500 * (x / 500) ** exponent for x in SIZES * 2]
    found = laws.end_slope(SIZES * 2, _noisy(ys, 0.005))
    assert found is not None
    assert found.verdict == verdict


def test_what_the_points_cannot_tell_stays_open():
    found = laws.end_slope([1_000, 2_500, 5_000], [1.0, 4.0, 5.0])
    assert found is not None
    assert found.verdict == "open"


def test_too_few_points_have_no_law():
    with pytest.raises(ValueError, match="three points"):
        laws.slope([1, 2], [1.0, 2.0])
    with pytest.raises(ValueError, match="positive"):
        laws.slope([1, 2, 3], [1.0, 0.0, 2.0])
    with pytest.raises(ValueError, match="two sizes"):
        laws.line([1, 1], [1.0, 2.0])
    assert laws.end_slope([1, 2], [1.0, 2.0]) is None
