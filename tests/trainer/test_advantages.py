import pytest

from trainer import config_checks
from trainer.advantages import (
    CREDITS,
    ESTIMATORS,
    Estimator,
    credit_to_go,
    designer_advantages,
    designer_scale,
    generalised_advantages,
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


def estimate(name, *groups, credit="episode", **settings):
    """One advantage a turn, of plays each of whose turns decides one token."""
    tokens = [[[1] * len(play or [0.0]) for play in group] for group in groups]
    return Estimator(name, credit, **settings)(groups, tokens)


def test_a_configuration_offers_what_there_is():
    assert (*ESTIMATORS, "ppo") == config_checks.ESTIMATORS
    assert tuple(CREDITS) == config_checks.CREDITS


def test_grpo_is_normalised_in_the_group_and_skips_lost_plays():
    (group,) = estimate("grpo", [[0.3, 1.0], [0.0], None])
    assert group == [pytest.approx([1.0, 1.0]), pytest.approx([-1.0]), [0.0]]


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "reinforce++"])
@pytest.mark.parametrize("credit", CREDITS)
def test_plays_that_do_not_differ_teach_nothing(name, credit):
    alike = [[0.2, 0.8], [0.2, 0.8], None]
    alone = [[0.5], None]
    assert estimate(name, alike, alone, credit=credit) == [
        [[0.0] * 2, [0.0] * 2, [0.0]],
        [[0.0]] * 2,
    ]


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("credit", CREDITS)
def test_a_step_without_a_play_has_no_advantages(name, credit):
    assert estimate(name, credit=credit) == []
    assert estimate(name, [None, None], credit=credit) == [[[0.0], [0.0]]]


def test_wins_of_different_length_are_worth_the_same_to_the_group():
    assert estimate("grpo", [[0.0, 1.0], [1.0]], credit="to_go") == [[[0.0, 0.0], [0.0]]]


def test_grpo_of_rewards_to_go_by_hand():
    # To go with gamma 0.5: [0.5, 1] and [0, 0]; baselines 0.25 and 0.5;
    # deviations +-0.25 and +-0.5, whose standard deviation is sqrt(0.15625).
    spread = 0.15625**0.5
    ((first, second),) = estimate("grpo", [[0.0, 1.0], [0.0, 0.0]], credit="to_go", gamma=0.5)
    assert first == pytest.approx([0.25 / spread, 0.5 / spread])
    assert second == pytest.approx([-0.25 / spread, -0.5 / spread])


def test_a_turn_only_one_play_reached_is_held_against_the_ends_of_all():
    plays = [[0.0, 1.0], [0.0]]
    ((long, short),) = estimate("grpo", plays, credit="to_go", gamma=1.0, std_floor=1.0)
    assert long == pytest.approx([0.5, 0.5])
    assert short == pytest.approx([-0.5])
    ((long, short),) = estimate("rloo", plays, credit="to_go", gamma=1.0)
    assert long == pytest.approx([1.0, 1.0])
    assert short == pytest.approx([-1.0])


def test_small_differences_are_not_blown_up_past_the_floor():
    ((first, _),) = estimate("grpo", [[0.01], [0.0]], credit="to_go")
    assert first == pytest.approx([0.05])


def test_a_turn_may_be_held_to_its_own_reward():
    ((first, second),) = estimate("centred", [[0.2, 1.0], [0.0, 0.4]], credit="turn")
    assert first == pytest.approx([0.1, 0.3])
    assert second == pytest.approx([-0.1, -0.3])


def test_centred_advantages_are_not_divided():
    ((first, second, third),) = estimate("centred", [[0.9], [0.3], [0.0, 0.0]])
    assert [*first, *second] == pytest.approx([0.5, -0.1])
    assert third == pytest.approx([-0.4, -0.4])


def test_rloo_holds_a_play_against_the_others():
    ((first, second, third, lost),) = estimate("rloo", [[1.0], [0.5], [0.0], None])
    assert [*first, *second, *third, *lost] == pytest.approx([0.75, 0.0, -0.75, 0.0])


def test_rloo_is_the_groups_deviation_times_n_over_n_minus_1():
    plays = [[0.1], [0.9], [0.4], [0.7]]
    (left_out,), (centred,) = estimate("rloo", plays), estimate("centred", plays)
    for one, other in zip(left_out, centred, strict=True):
        assert one == pytest.approx([a * 4 / 3 for a in other])


def test_reinforce_is_normalised_over_all_tokens_of_the_step():
    groups = [[[1.0], [0.0, 0.0]], [[0.5], None]]
    tokens = [[[2], [1, 3]], [[4], [7]]]
    result = Estimator("reinforce++")(groups, tokens)
    # 2 tokens at 1, 4 at 0, 4 at 0.5: mean 0.4, variance (0.72 + 0.64 + 0.04) / 10.
    spread = 0.14**0.5
    assert result[0][0] == pytest.approx([0.6 / spread])
    assert result[0][1] == pytest.approx([-0.4 / spread] * 2)
    assert result[1] == [pytest.approx([0.1 / spread]), [0.0]]


def test_reinforce_with_a_baseline_centres_each_group_first():
    result = Estimator("reinforce++-baseline")([[[1.0], [0.0]], [[0.5], [0.5]]], [[[1], [1]]] * 2)
    # Deviations 0.5, -0.5, 0 and 0: mean 0, variance 0.125.
    assert result[0] == [pytest.approx([2**0.5]), pytest.approx([-(2**0.5)])]
    assert result[1] == [[0.0], [0.0]]


def test_generalised_advantages_by_hand():
    # Surprises: 0.1 + 0.5 * 0.6 - 0.2 = 0.2, and 1 - 0.6 = 0.4; lambda 0.5.
    assert generalised_advantages([0.1, 1.0], [0.2, 0.6], gamma=0.5, decay=0.5) == pytest.approx(
        [0.2 + 0.25 * 0.4, 0.4]
    )


def test_generalised_advantages_go_from_the_critics_word_to_what_came():
    rewards, values = [0.0, 0.3, 1.0], [0.5, 0.4, 0.7]
    trusting = generalised_advantages(rewards, values, gamma=0.9, decay=0.0)
    assert trusting == pytest.approx([0.9 * 0.4 - 0.5, 0.3 + 0.9 * 0.7 - 0.4, 1.0 - 0.7])
    seeing = generalised_advantages(rewards, values, gamma=0.9, decay=1.0)
    to_go = credit_to_go(rewards, 0.9)
    assert seeing == pytest.approx([g - v for g, v in zip(to_go, values, strict=True)])
    assert generalised_advantages([], [], gamma=0.9, decay=0.9) == []


def test_turn_rewards_end_in_the_episode_return():
    assert turn_rewards([0.1, -3.0, 0.7], 0.0, keep_steps=True) == [0.1, -1.0, 0.0]
    assert turn_rewards([0.1, -3.0, 0.7], 0.7, keep_steps=False) == [0.0, 0.0, 0.7]
