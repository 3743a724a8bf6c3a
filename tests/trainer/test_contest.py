import itertools
import math

import pytest

from sandbox_server import LocalServer
from trainer.contest import Contest, ContestSettings, OraclePolicy, ScriptedPolicy, pass_at_k
from trainer.evaluation import EvaluationError, RandomPolicy
from trainer.protocols import EvaluationItem

# A win is the action that the seed asks for, said twice; "fail" makes it fail.
ECHO = """
class EchoEnv:
    def reset(self, seed=None):
        self.word, self.said = "ab"[seed % 2], 0
        return f"Say {self.word} twice.", {"actions": ["a", "b"]}

    def step(self, action):
        if action == "fail":
            raise ValueError("as it was told")
        if action != self.word:
            return "No.", 0.0, True, False, {}
        self.said += 1
        return "Yes.", float(self.said == 2), self.said == 2, False, {}

    def solution(self):
        return [self.word] * 2
"""
ITEM = EvaluationItem("echo", "echo", ECHO)


@pytest.fixture(scope="module")
def address():
    with LocalServer(backend="process") as server:
        yield server.address


@pytest.fixture
async def client(address):
    from sandbox_api.client import AsyncSandboxClient

    async with AsyncSandboxClient(address) as client:
        yield client


@pytest.mark.parametrize(("tries", "wins"), [(1, 0), (1, 1), (4, 1), (5, 3), (6, 6), (6, 0)])
def test_pass_at_k_is_the_share_of_draws_that_hold_a_win(tries, wins):
    outcomes = [True] * wins + [False] * (tries - wins)
    for k in range(1, tries + 1):
        draws = list(itertools.combinations(outcomes, k))
        expected = sum(any(draw) for draw in draws) / len(draws)
        assert pass_at_k(tries, wins, k) == pytest.approx(expected)


async def test_the_oracle_wins_where_a_script_wins_half(client):
    settings = ContestSettings(seeds=4, samples=2, max_turns=3)
    contest = await Contest.register(client, [ITEM], settings)
    oracle = await contest.play(OraclePolicy(client))
    script = await contest.play(ScriptedPolicy(["a"]))
    assert [t.play.seed for t in oracle] == [t.play.seed for t in script]
    best, half = contest.summary(oracle), contest.summary(script)
    assert (best["n"], best["success"], best["pass_at_k"]) == (8, 1.0, {"1": 1.0, "2": 1.0})
    assert (half["success"], half["pass_at_k"]) == (0.5, {"1": 0.5, "2": 0.5})
    # Two turns of a win, one of a defeat; a script has no tokens.
    assert (half["turns"], half["tokens"]) == (1.5, 0.0)
    difference = contest.difference(script, oracle)
    assert difference["mean"] == pytest.approx(0.5)
    assert difference["tasks"] == 4
    # Of the differences 0, 1, 0, 1: sqrt(1/3) / 2.
    assert difference["se"] == pytest.approx(math.sqrt(1 / 3) / 2)


async def test_a_lost_episode_is_missing_and_no_zero(client):
    contest = await Contest.register(client, [ITEM], ContestSettings(seeds=2, max_turns=3))
    failed = await contest.play(ScriptedPolicy(["fail"]))
    summary = contest.summary(failed)
    assert (summary["n"], summary["lost"]) == (0, 2)
    assert math.isnan(summary["success"])
    assert contest.difference(failed, failed)["tasks"] == 0


async def test_a_random_policy_can_be_checked_against_what_chance_gives(client):
    settings = ContestSettings(seeds=100, max_turns=3)
    contest = await Contest.register(client, [ITEM], settings)
    summary = contest.summary(await contest.play(RandomPolicy(0)))
    low, high = summary["success_ci95"]
    assert low <= 0.25 <= high


async def test_an_empty_suite_and_a_broken_program_are_errors(client):
    with pytest.raises(EvaluationError, match="holds no environment"):
        await Contest.register(client, [], ContestSettings())
    broken = EvaluationItem("broken", "broken", "raise ValueError")
    with pytest.raises(EvaluationError, match="broken does not load"):
        await Contest.register(client, [broken], ContestSettings())
