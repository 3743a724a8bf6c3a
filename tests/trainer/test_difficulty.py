"""Windows of difficulty: where they begin, when they move, where they end."""

import random

from trainer.difficulty import Window

RULE = {"tries": 8, "promote_at": 0.9}


def drawn(window):
    rng = random.Random(0)
    return {window.draw(rng) for _ in range(200)}


def test_a_window_begins_with_the_easiest_and_grows_to_its_width_before_it_moves():
    window = Window(size=10, width=4)
    seen = [drawn(window)]
    for _ in range(5):
        assert window.take_in(window.top, [True] * 8, **RULE)
        seen.append(drawn(window))
    assert seen == [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}]


def test_a_window_can_begin_higher():
    assert drawn(Window(size=10, width=4, top=6)) == {3, 4, 5, 6}


def test_the_window_moves_up_by_one_once_there_are_enough_tries():
    window = Window(size=10, width=4, top=3)
    assert not window.take_in(3, [True] * 7, **RULE)
    assert (window.low, window.tried) == (0, 7)
    assert window.take_in(3, [True], **RULE)
    assert (window.low, window.top, window.tried, window.won) == (1, 4, 0, 0)


def test_nine_of_ten_are_enough_and_seven_of_eight_are_not():
    window = Window(size=10, width=4, top=3)
    assert not window.take_in(3, [True] * 7 + [False], **RULE)
    assert window.top == 3
    assert window.take_in(3, [True] * 9 + [False], **RULE)


def test_early_failures_are_forgotten_after_a_verdict():
    window = Window(size=10, width=4, top=3)
    window.take_in(3, [False] * 8, **RULE)
    assert window.take_in(3, [True] * 8, **RULE)


def test_only_the_top_counts():
    window = Window(size=10, width=4, top=3)
    for difficulty in (0, 1, 2):
        assert not window.take_in(difficulty, [True] * 50, **RULE)
    assert (window.top, window.tried) == (3, 0)


def test_the_last_window_stays():
    window = Window(size=5, width=4, top=3)
    assert window.take_in(3, [True] * 8, **RULE)
    assert not window.take_in(4, [True] * 80, **RULE)
    assert (window.low, window.top) == (1, 4)


def test_a_window_is_no_wider_than_what_there_is():
    window = Window(size=2, width=4, top=3)
    assert drawn(window) == {0, 1}
    assert not window.take_in(1, [True] * 8, **RULE)


def test_a_window_goes_on_from_its_state():
    window = Window(size=10, width=4, top=3)
    window.take_in(3, [True] * 8, **RULE)
    window.take_in(4, [True, False], **RULE)
    other = Window(size=10, width=4)
    other.restore(window.state())
    assert other == window
