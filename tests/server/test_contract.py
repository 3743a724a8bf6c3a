"""What every backend does: the service's promises, through gRPC."""

from __future__ import annotations

import asyncio
import platform
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from sandbox_api.types import Outcome, Phase, ProgramKind, ResetItem, StepItem, Trial
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc

import sandbox_server
from sandbox_server.config import ServerConfig
from tests.server.conftest import COUNTER, Sandbox

SLOW = """
class SlowEnv:
    def reset(self, seed=None):
        return "ready", {}
    def step(self, action):
        time.sleep(float(action))
        return "slept", 0.5, False, False, {}
"""


async def test_registering_describes_the_program(sandbox: Sandbox) -> None:
    program = await sandbox.register(COUNTER)
    assert program.outcome is Outcome.COMPLETED
    assert program.kind is ProgramKind.GAME
    assert program.entry == "CounterEnv"
    assert program.has_verify
    assert program.has_solution
    assert program.limits.max_processes == 1


async def test_the_same_program_gets_the_same_id_and_other_limits_another(
    sandbox: Sandbox,
) -> None:
    first = await sandbox.register(COUNTER)
    assert (await sandbox.register(COUNTER)).program_id == first.program_id
    assert (await sandbox.register(COUNTER, max_steps=3)).program_id != first.program_id


@pytest.mark.parametrize(
    ("source", "phase", "line", "exception"),
    [
        ("x = 1\ndef broken(:\n  pass", Phase.COMPILE, 2, "SyntaxError"),
        ("\nimport nowhere_to_be_found", Phase.LOAD, 2, "ModuleNotFoundError"),
        ("x = 1", Phase.CONSTRUCT, 0, "ContractError"),
        (
            "class AEnv:\n  def __init__(self):\n    1 / 0\n"
            "  def reset(self, seed=None): pass\n  def step(self, a): pass",
            Phase.CONSTRUCT,
            3,
            "ZeroDivisionError",
        ),
    ],
)
async def test_a_program_that_does_not_load_says_where(
    sandbox: Sandbox, source: str, phase: Phase, line: int, exception: str
) -> None:
    program = await sandbox.register(source)
    assert program.outcome is Outcome.PROGRAM_ERROR
    assert program.diagnostic is not None
    assert program.diagnostic.phase is phase
    assert program.diagnostic.line == line
    assert program.diagnostic.exception == exception
    episode = (await sandbox.reset([ResetItem(program.program_id)]))[0]
    assert not episode.ok


async def test_an_episode_plays_to_its_end_and_then_refuses_steps(sandbox: Sandbox) -> None:
    episode = await sandbox.start(COUNTER, seed=3)
    assert episode.observation.startswith("count to ")
    target = episode.info["target"]
    for index in range(target):
        result = await sandbox.step(episode, index)
        assert result.terminated == (index == target - 1)
    assert result.reward == 1.0
    after = await sandbox.step(episode, target)
    assert after.error is not None
    assert after.reward is None


async def test_a_failing_step_has_no_reward_and_says_why(sandbox: Sandbox) -> None:
    source = COUNTER.replace("won = self.count", "[][1]\n        won = self.count")
    result = await sandbox.play_one(source)
    assert result.outcome is Outcome.PROGRAM_ERROR
    assert result.reward is None
    assert result.diagnostic is not None
    assert result.diagnostic.exception == "IndexError"
    assert result.diagnostic.phase is Phase.STEP
    assert source.splitlines()[result.diagnostic.line - 1].strip() == "[][1]"
    await sandbox.still_works()


@pytest.mark.parametrize("reward", ["float('nan')", "float('inf')", "'much'", "None", "1 << 5000"])
async def test_a_reward_that_is_no_finite_number_is_refused(sandbox: Sandbox, reward: str) -> None:
    result = await sandbox.play_one(COUNTER.replace("float(won)", reward))
    assert result.outcome is Outcome.PROGRAM_ERROR
    assert result.reward is None
    await sandbox.still_works()


async def test_each_item_of_a_batch_fails_alone(sandbox: Sandbox) -> None:
    good = await sandbox.start(COUNTER)
    bad = await sandbox.start(
        COUNTER.replace("won = self.count", "1 / 0\n        won = self.count")
    )
    results = await sandbox.client.step(
        [
            StepItem(good.episode_id, 0, "+"),
            StepItem(bad.episode_id, 0, "+"),
            StepItem("no-such-episode", 0, "+"),
        ]
    )
    assert results[0].ok
    assert results[1].outcome is Outcome.PROGRAM_ERROR
    assert results[2].error is not None


async def test_a_slow_episode_delays_no_other(sandbox: Sandbox) -> None:
    slow = await sandbox.start(SLOW)
    fast = await sandbox.start(SLOW)
    started = time.monotonic()
    arrived = {}
    items = [StepItem(slow.episode_id, 0, "1.5"), StepItem(fast.episode_id, 0, "0")]
    async for result in sandbox.client.step_stream(items):
        arrived[result.episode_id] = time.monotonic() - started
    assert arrived[fast.episode_id] < 0.75 < 1.4 < arrived[slow.episode_id]


async def test_a_repeated_step_is_answered_from_the_record(server, sandbox: Sandbox) -> None:
    episode = await sandbox.start(COUNTER, seed=1)
    async with grpc.aio.insecure_channel(server[1].address) as channel:
        stub = sandbox_pb2_grpc.SandboxServiceStub(channel)

        async def raw(index: int, action: str) -> pb.StepResult:
            item = pb.StepItem(episode_id=episode.episode_id, step_index=index, action=action)
            responses = [r async for r in stub.Step(pb.StepRequest(items=[item]))]
            return responses[0].results[0]

        first = await raw(0, "+")
        assert (await raw(0, "+")) == first
        other = await raw(0, "-")
        assert other.error.reason == pb.ERROR_REASON_STEP_ORDER
        skipped = await raw(5, "+")
        assert skipped.error.reason == pb.ERROR_REASON_STEP_ORDER
        second = await raw(1, "+")
        assert second.observation == "at 2"


async def test_the_server_truncates_at_max_turns(sandbox: Sandbox) -> None:
    program = await sandbox.register(COUNTER)
    episode = (await sandbox.reset([ResetItem(program.program_id, max_turns=2)]))[0]
    first = await sandbox.step(episode, 0, "-")
    assert not first.done
    second = await sandbox.step(episode, 1, "-")
    assert second.truncated
    assert not second.terminated


async def test_prefix_actions_rebuild_an_episode(sandbox: Sandbox) -> None:
    program = await sandbox.register(COUNTER)
    item = ResetItem(program.program_id, seed=2, prefix_actions=("+", "-"))
    episode = (await sandbox.reset([item]))[0]
    assert [r.observation for r in episode.prefix_results] == ["at 1", "at 1"]
    assert episode.observation == "at 1"
    assert (await sandbox.step(episode, 2)).observation == "at 2"


async def test_options_reach_the_constructor_and_the_reset(sandbox: Sandbox) -> None:
    source = """
class OptionsEnv:
    def __init__(self, size=3): self.size = size
    def reset(self, seed=None, options=None): return f"{self.size} {options}", {}
    def step(self, action): return "", 0.0, True, False, {}
"""
    program = await sandbox.register(source)
    item = ResetItem(program.program_id, options={"size": 7, "walls": True})
    episode = (await sandbox.reset([item]))[0]
    assert episode.observation == "7 {'walls': True}"


async def test_verify_replays_and_runs_the_oracle(sandbox: Sandbox) -> None:
    episode = await sandbox.start(COUNTER, seed=4)
    for index in range(episode.info["target"]):
        await sandbox.step(episode, index)
    verdict = (await sandbox.client.verify([episode.episode_id], run_oracle=True))[0]
    assert verdict.error is None
    assert verdict.reproduced
    assert verdict.verified is True
    assert verdict.oracle is not None
    assert verdict.oracle.terminated
    assert verdict.oracle.final_reward == 1.0


async def test_the_oracle_plays_more_seeds_in_one_process_up_to_one_that_loses(
    sandbox: Sandbox,
) -> None:
    # What the class keeps is no fault of a seed; what its solution does to it is.
    source = COUNTER.replace("class CounterEnv:", "class CounterEnv:\n    played = []\n")
    for old, new in (
        ("self.count = 0", "self.count, self.seed = 0, seed"),
        ("won = self", "self.played.append(action)\n        won = self"),
        ('return ["+"]', "return ['-'] if self.played or self.seed % 5 == 4 else ['+']"),
    ):
        assert old in source
        source = source.replace(old, new)
    episode = await sandbox.start(source)
    ids = [episode.episode_id]
    (verdict,) = await sandbox.client.verify(ids, oracle_seeds=[20, 21, 22, 24, 25])
    assert verdict.oracle is None
    assert [o.final_reward for o in verdict.oracles] == [1.0, 1.0, 1.0, 0.0]
    (verdict,) = await sandbox.client.verify(ids, run_oracle=True, oracle_seeds=[])
    assert verdict.oracles == ()
    (verdict,) = await sandbox.client.verify(ids, oracle_seeds=range(101))
    assert "at most 100" in str(verdict.error)
    await sandbox.still_works()


async def test_plays_are_tried_in_one_process_up_to_one_that_fails(sandbox: Sandbox) -> None:
    source = COUNTER.replace("won = self", "1 / (action != '!')\n        won = self")
    episode = await sandbox.start(source, max_steps=6)
    trials = [Trial(4, ("+",) * 6), Trial(4, ("-",) * 6), Trial(5, ()), Trial(6, ("+", "!"))]
    (verdict,) = await sandbox.client.verify([episode.episode_id], trials=[*trials, trials[0]])
    assert verdict.error is None
    won, cut, empty, failed = verdict.trials
    assert (won.final_reward, won.terminated, won.truncated) == (1.0, True, False)
    assert (cut.final_reward, cut.terminated, cut.truncated) == (0.0, False, True)
    assert (empty.final_reward, empty.outcome) == (None, Outcome.COMPLETED)
    assert (failed.final_reward, failed.outcome) == (None, Outcome.PROGRAM_ERROR)
    for bad in ([trials[0]] * 101, [Trial(0, ("x" * 10_000_000,))], [Trial(0, ("",) * 100_000)]):
        (verdict,) = await sandbox.client.verify([episode.episode_id], trials=bad)
        assert "trial" in str(verdict.error) or "bytes" in str(verdict.error)
    await sandbox.still_works()


async def test_a_solution_that_fails_on_a_later_seed_is_an_outcome(sandbox: Sandbox) -> None:
    source = COUNTER.replace("self.count = 0", "self.count, self.seed = 0, seed")
    source = source.replace('return ["+"]', 'return ["+"] * (1 // (self.seed != 7))')
    episode = await sandbox.start(source)
    (verdict,) = await sandbox.client.verify([episode.episode_id], oracle_seeds=[6, 7, 8])
    won, failed = verdict.oracles
    assert won.terminated
    assert failed.outcome is Outcome.PROGRAM_ERROR
    assert failed.diagnostic is not None
    assert failed.diagnostic.phase is Phase.SOLUTION


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("str(list({'ant', 'bee', 'cat', 'dog', 'eel', 'fox', 'gnu', 'hen'}))", "observation"),
        ("str(time.time_ns())", "observation"),
    ],
)
async def test_verify_finds_what_does_not_reproduce(
    sandbox: Sandbox, expression: str, field: str
) -> None:
    source = COUNTER.replace('f"at {self.count}"', expression)
    episode = await sandbox.start(source)
    assert (await sandbox.step(episode, 0)).ok
    verdict = (await sandbox.client.verify([episode.episode_id]))[0]
    assert not verdict.reproduced
    assert verdict.divergence is not None
    assert verdict.divergence.step_index == 0
    assert verdict.divergence.field == field


@pytest.mark.parametrize(
    ("honest", "fickle", "field"),
    [
        ("float(won), won", "0.5 + PLAYED, won", "reward"),
        ("won, False, {}", "PLAYED, False, {}", "terminated"),
        ("won, False, {}", "won, PLAYED, {}", "truncated"),
        ("float(won), won", "1 / (1 - PLAYED), won", "outcome"),
        ("float(won), won", "1 / PLAYED, won", "outcome"),
    ],
    ids=["reward", "terminated", "truncated", "fails in play", "fails in replay"],
)
async def test_verify_compares_everything_under_another_hash_seed(
    sandbox: Sandbox, honest: str, fickle: str, field: str
) -> None:
    played = "(__import__('os').environ['PYTHONHASHSEED'] == '0')"
    source = COUNTER.replace(honest, fickle.replace("PLAYED", played))
    episode = await sandbox.start(source)
    await sandbox.step(episode, 0, "-")
    verdict = (await sandbox.client.verify([episode.episode_id]))[0]
    assert verdict.error is None
    assert not verdict.reproduced
    assert verdict.divergence is not None
    assert (verdict.divergence.step_index, verdict.divergence.field) == (0, field)
    # What an unreproduced episode's verify() would say means nothing.
    assert verdict.verified is None


async def test_a_verify_and_a_solution_that_fail_are_outcomes(sandbox: Sandbox) -> None:
    source = COUNTER.replace("return self.count == self.target", "raise KeyError('v')").replace(
        'return ["+"] * self.target', "1 / 0"
    )
    episode = await sandbox.start(source)
    verdict = (await sandbox.client.verify([episode.episode_id], run_oracle=True))[0]
    assert verdict.reproduced
    assert verdict.verify_outcome is Outcome.PROGRAM_ERROR
    assert verdict.verified is None
    assert verdict.diagnostic is not None
    assert verdict.diagnostic.phase is Phase.VERIFY
    assert verdict.oracle is not None
    assert verdict.oracle.outcome is Outcome.PROGRAM_ERROR
    assert verdict.oracle.final_reward is None
    assert verdict.oracle.diagnostic is not None
    assert verdict.oracle.diagnostic.phase is Phase.SOLUTION
    await sandbox.still_works()


async def test_verify_reproduces_a_failing_step(sandbox: Sandbox) -> None:
    source = COUNTER.replace("won = self.count", "1 / 0\n        won = self.count")
    episode = await sandbox.start(source)
    await sandbox.step(episode, 0)
    verdict = (await sandbox.client.verify([episode.episode_id]))[0]
    assert verdict.reproduced


async def test_closing_twice_is_fine(sandbox: Sandbox) -> None:
    episode = await sandbox.start(COUNTER)
    assert await sandbox.client.close_episodes([episode.episode_id]) == 1
    assert await sandbox.client.close_episodes([episode.episode_id]) == 0


async def test_close_answers_a_step_in_work(sandbox: Sandbox) -> None:
    episode = await sandbox.start(SLOW)
    step = asyncio.create_task(sandbox.step(episode, 0, "5"))
    await asyncio.sleep(0.3)
    started = time.monotonic()
    await sandbox.client.close_episodes([episode.episode_id])
    result = await step
    assert result.error is not None
    assert result.reward is None
    assert time.monotonic() - started < 2


async def test_server_info_tells_version_runtimes_limits_and_isolation(sandbox: Sandbox) -> None:
    info = await sandbox.client.server_info()
    assert info.version == sandbox_server.__version__
    assert info.backend == sandbox.backend
    assert info.isolation
    assert info.runtimes == {"stdlib": platform.python_version()}
    defaults = ServerConfig()
    assert info.default_limits == defaults.default_limits
    assert info.max_limits == defaults.max_limits
    assert info.max_episodes == defaults.max_episodes
    assert info.max_batch_items == defaults.max_batch_items


async def test_server_info_tells_the_load(sandbox: Sandbox) -> None:
    before = await sandbox.client.server_info()
    assert before.jails == 2
    episode = await sandbox.start(SLOW + "# another program")
    step = asyncio.create_task(sandbox.step(episode, 0, "0.5"))
    await asyncio.sleep(0.2)
    busy = await sandbox.client.server_info()
    assert busy.live_episodes >= 1
    assert busy.pending_items == 1
    assert busy.programs == before.programs + 1
    await step
    await sandbox.client.close_episodes([episode.episode_id])
    after = await sandbox.client.server_info()
    assert after.pending_items == 0
    assert after.steps_total == before.steps_total + 1
    assert after.ended_total["closed"] == before.ended_total.get("closed", 0) + 1


async def test_health_and_reflection_answer(server) -> None:
    async with grpc.aio.insecure_channel(server[1].address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        status = await health.Check(health_pb2.HealthCheckRequest())
        assert status.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection.ServerReflectionInfo(iter([request]))
        names = [s.name async for r in call for s in r.list_services_response.service]
        assert "sandbox_api.v1.SandboxService" in names


async def test_a_hundred_items_in_one_call_come_back_in_order(sandbox: Sandbox) -> None:
    program = await sandbox.register(COUNTER)
    items = [ResetItem(program.program_id, seed=i) for i in range(100)]
    episodes = await sandbox.reset(items)
    again = await sandbox.reset(items)
    assert [e.observation for e in episodes] == [e.observation for e in again]
    results = await sandbox.client.step([StepItem(e.episode_id, 0, "-") for e in episodes])
    assert [r.episode_id for r in results] == [e.episode_id for e in episodes]
    await sandbox.client.close_episodes([e.episode_id for e in episodes + again])
