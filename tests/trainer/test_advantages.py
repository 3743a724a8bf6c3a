import pytest

from trainer.advantages import (
    designer_advantages,
    designer_scale,
    group_advantages,
    turn_advantages,
    turn_rewards,
)


def test_designer_advantage_is_against_the_same_skill_without_division():
    advantages = designer_advantages([1.0, 0.0, 0.4], ["math", "math", "logic"], 10.0)
    assert advantages == pytest.approx([5.0, -5.0, 0.0])


def test_designer_scale_is_capped():
    assert designer_scale(384, 24, 4) == 50.0
    assert designer_scale(64, 16, 4) == 16.0
    assert designer_scale(64, 16, 4, cap=8) == 8.0
    assert designer_scale(64, 0, 4) == 0.0


def test_group_advantage_is_normalised_and_skips_lost_plays():
    assert group_advantages([1.0, 0.0, None]) == pytest.approx([1.0, -1.0, 0.0])
    assert group_advantages([0.5, 0.5, 0.5]) == [0.0, 0.0, 0.0]
    assert group_advantages([1.0, None]) == [0.0, 0.0]


def test_turn_advantage_by_hand():
    # To go with gamma 0.5: [0.5, 1] and [0, 0]; baselines 0.25 and 0.5;
    # deviations +-0.25 and +-0.5, whose standard deviation is sqrt(0.15625).
    spread = 0.15625**0.5
    first, second = turn_advantages([[0.0, 1.0], [0.0, 0.0]], gamma=0.5, std_floor=0.1)
    assert first == pytest.approx([0.25 / spread, 0.5 / spread])
    assert second == pytest.approx([-0.25 / spread, -0.5 / spread])


def test_a_turn_only_one_play_reached_is_held_against_the_ends_of_all():
    long, short = turn_advantages([[0.0, 1.0], [0.0]], gamma=1.0, std_floor=1.0)
    assert long == pytest.approx([0.5, 0.5])
    assert short == pytest.approx([-0.5])


def test_turn_advantages_of_equal_or_lost_plays_teach_nothing():
    assert turn_advantages([[1.0], [1.0], None], gamma=0.9, std_floor=0.1) == [[0.0], [0.0], []]
    assert turn_advantages([[1.0], None], gamma=0.9, std_floor=0.1) == [[0.0], []]


def test_small_differences_are_not_blown_up_past_the_floor():
    advantages = turn_advantages([[0.01], [0.0]], gamma=0.9, std_floor=0.1)
    assert advantages[0] == pytest.approx([0.05])


def test_turn_rewards_end_in_the_episode_return():
    assert turn_rewards([0.1, -3.0, 0.7], 0.0, keep_steps=True) == [0.1, -1.0, 0.0]
    assert turn_rewards([0.1, -3.0, 0.7], 0.7, keep_steps=False) == [0.0, 0.0, 0.7]
