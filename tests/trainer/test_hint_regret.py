"""Hint regret where it is known: a bandit with a closed form, 200 runs."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits

from bench.hint_regret import Bandit, estimate, expected_term
from sandbox_server import LocalServer
from trainer.environments import ActiveEnvironment
from trainer.policies import Policy
from trainer.rollouts import play_all
from trainer.trajectories import HINTED, PLAIN, Play, Trajectory

RUNS, PLAYS = 200, 16
TOLD = Bandit((0.1, 0.3, 0.8), follows=0.6)
# Nobody follows its hint, and its arms are as good as alike.
DEAF = Bandit((0.45, 0.5, 0.55), follows=0.0)
# Four standard errors: one run in 16,000 fails by chance, and the seeds are fixed.
FAR = 4.0


def variance(bandit: Bandit, paired: bool) -> float:
    return (bandit.paired_variance if paired else bandit.unpaired_variance) / PLAYS


def test_the_closed_form_by_hand() -> None:
    bandit = Bandit((0.0, 1.0), follows=0.5)
    # Half of the plain pulls win, three quarters of the hinted ones.
    assert bandit.regret == pytest.approx(0.25)
    assert bandit.unpaired_variance == pytest.approx(0.25 + 0.1875)
    # Luck decides nothing here: the difference is that of two choices, which are independent.
    assert bandit.paired_variance == pytest.approx(0.25 + 0.1875)
    # Arms that are alike differ by luck alone, which pairs share.
    assert Bandit((0.5, 0.5), follows=1.0).paired_variance == 0.0


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("bandit", [TOLD, DEAF, Bandit((0.2, 0.4, 0.5, 0.9), 1.0)])
def test_estimate_and_standard_error_agree_with_theory(bandit: Bandit, paired: bool) -> None:
    found = estimate(bandit, PLAYS, RUNS, paired=paired)
    expected = variance(bandit, paired)
    assert statistics.fmean(found.regrets) == pytest.approx(
        bandit.regret, abs=FAR * math.sqrt(expected / RUNS)
    )
    # The squares of what the runs report are unbiased for the variance; their own spread says
    # how near their mean must come.
    squares = [error**2 for error in found.errors]
    near = FAR * statistics.stdev(squares) / math.sqrt(RUNS)
    assert statistics.fmean(squares) == pytest.approx(expected, abs=near)
    # And so is the spread of the estimates, whose relative error is sqrt(2 / (runs - 1)).
    seen = statistics.variance(found.regrets)
    assert seen == pytest.approx(expected, rel=FAR * math.sqrt(2 / (RUNS - 1)))


def test_a_fair_coin_unpaired_is_as_uncertain_as_the_reward_is_wide() -> None:
    coin = Bandit((0.5, 0.5), follows=0.0)
    assert math.sqrt(variance(coin, paired=False)) == pytest.approx(0.177, abs=5e-4)
    unpaired = estimate(coin, PLAYS, RUNS, paired=False)
    # No regret at all, and about a third of the full term; paired, nothing.
    assert 0.25 < expected_term(unpaired.regrets) < 0.45
    paired = estimate(coin, PLAYS, RUNS, paired=True)
    assert expected_term(paired.regrets) == 0.0
    assert set(paired.errors) == {0.0}


class Puller(Policy):
    """Pulls the arm drawn for each play."""

    def __init__(self, arms: dict[tuple[str, int], int]) -> None:
        self._arms = arms

    async def act(self, episode) -> str:
        play = episode.trajectory.play
        return str(self._arms[play.arm, play.seed])


async def test_the_sandbox_plays_the_same_bandit() -> None:
    rng = random.Random(1)
    seeds = [rng.getrandbits(40) for _ in range(100)]
    arms = {
        (arm, seed): TOLD.pull(rng, hinted=arm == HINTED)
        for arm in (PLAIN, HINTED)
        for seed in seeds
    }
    with LocalServer(backend="process") as server:
        async with AsyncSandboxClient(server.address) as client:
            program = await client.register_program(TOLD.program())
            plays = [
                Play("bandit", program.program_id, seed, arm=arm, hint="the last arm")
                for arm, seed in arms
            ]
            played, _ = await play_all(client, Puller(arms), plays, max_concurrent=64)
    plain = [t for t in played if t.play.arm == PLAIN]
    hinted = [t for t in played if t.play.arm == HINTED]
    for trajectory in played:
        play = trajectory.play
        assert trajectory.episode_return == TOLD.episode(play.seed, arms[play.arm, play.seed])
    environment = ActiveEnvironment(
        env_id="bandit",
        slot=0,
        skill="",
        family="",
        source="",
        hint="",
        max_turns=1,
        program_id=program.program_id,
        limits=program.limits,
        created_step=1,
    )
    environment.measure_regret(plain, hinted)
    assert environment.pairs == 100
    expected = math.sqrt(TOLD.paired_variance / 100)
    assert environment.regret == pytest.approx(TOLD.regret, abs=FAR * expected)
    assert environment.regret_se == pytest.approx(expected, rel=0.3)


def test_arms_on_different_seeds_have_an_unpaired_error():
    plain, hinted = [0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 1.0]

    def played(arm, returns):
        return [Trajectory(Play("e", "p", n, arm=arm), episode_return=r) for n, r in returns]

    environment = ActiveEnvironment("e", 0, "", "", "", "", 1, "p", Limits(), created_step=1)
    arms = (played(PLAIN, enumerate(plain)), played(HINTED, enumerate(hinted)))
    environment.measure_regret(*arms, paired=False)
    # Variances 1/3 and 1/4, each over four plays.
    assert environment.regret_se == pytest.approx(math.sqrt(1 / 12 + 1 / 16))
    environment.measure_regret(*arms)
    assert environment.regret_se == pytest.approx(0.25)
    assert environment.regret == 0.25
