"""Bounds of an engine with groups, and what one engine's groups know of another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import runtime
from sandbox_server.config import ServerConfig
from sandbox_server.engine import Engine
from sandbox_server.worker import frames, group_frames
from tests.server.conftest import COUNTER


@asynccontextmanager
async def running(**settings: object) -> AsyncIterator[Engine]:
    config = ServerConfig(backend="process", **settings)  # type: ignore[arg-type]
    engine = Engine(config, {"stdlib": runtime.ensure("stdlib")})
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def register(engine: Engine, *, source: str = COUNTER) -> pb.RegisterProgramResponse:
    return await engine.register(pb.RegisterProgramRequest(source=source, group_mode=True))


async def reset(engine: Engine, program: pb.RegisterProgramResponse) -> pb.ResetResult:
    return await engine.reset(0, pb.ResetItem(program_id=program.program_id))


async def test_episodes_of_groups_count_against_the_bound_on_live_ones() -> None:
    async with running(group_size=2, max_episodes=3) as engine:
        program = await register(engine)
        # The registration's own process is gone when it is reaped.
        while engine.jails.live:
            await asyncio.sleep(0.01)
        started = [await reset(engine, program) for _ in range(4)]
        assert [bool(result.episode_id) for result in started] == [True, True, True, False]
        assert started[3].error.reason == pb.ERROR_REASON_CAPACITY
        assert (engine.jails.live, len(engine.groups)) == (3, 2)
        engine.close_episodes([started[0].episode_id])
        assert engine.jails.live == 2
        # A group takes no more than it was made for, in all its life.
        assert (await reset(engine, program)).episode_id
        assert len(engine.groups) == 2
        assert (await reset(engine, program)).error.reason == pb.ERROR_REASON_CAPACITY
        engine.close_episodes([result.episode_id for result in started])
        assert (engine.jails.live, len(engine.groups)) == (1, 1)


async def test_tenants_do_not_share_a_group() -> None:
    async with running(group_size=8) as one, running(group_size=8) as other:
        # Each tenant has an engine: see `sandbox_server/tenants.py`.
        for engine in (one, other):
            assert (await reset(engine, await register(engine))).episode_id
        assert (len(one.groups), len(other.groups)) == (1, 1)
        assert one.jails is not other.jails


async def test_a_server_without_group_mode_gives_each_episode_its_own_process() -> None:
    async with running() as engine:
        program = await register(engine)
        assert program.group_size == 1
        assert (await reset(engine, program)).episode_id
        assert len(engine.groups) == 0


async def test_episodes_started_together_by_one_that_hangs_in_reset_start_all_the_same() -> None:
    source = COUNTER.replace("self.count = 0", "self.count = 0\n        while seed == 3: pass")
    async with running(group_size=8) as engine:
        program = await register(engine, source=source)
        items = [
            pb.ResetItem(program_id=program.program_id, seed=seed, timeout_s=0.7)
            for seed in range(8)
        ]
        started = await asyncio.gather(*[engine.reset(n, item) for n, item in enumerate(items)])
        assert started[3].outcome == pb.OUTCOME_TIME_LIMIT
        # Those that waited behind it come again by themselves, as clients do.
        for seed in (0, 1, 2, 4, 5, 6, 7):
            if started[seed].error.reason:
                assert started[seed].error.reason == pb.ERROR_REASON_EPISODE_LOST
                assert (await engine.reset(seed, items[seed])).outcome == pb.OUTCOME_COMPLETED


async def test_steps_of_programs_with_other_limits_are_counted_out_as_they_were_counted_in() -> (
    None
):
    async with running(group_size=8) as engine:
        for grouped in (True, False):
            ids = []
            for most_bytes in (1_000, 2**20):
                limits = pb.Limits(max_observation_bytes=most_bytes)
                request = pb.RegisterProgramRequest(
                    source=COUNTER, limits=limits, group_mode=grouped
                )
                program = await engine.register(request)
                ids += [(await reset(engine, program)).episode_id for _ in range(3)]
            sink = _Sink()
            items = [pb.StepItem(episode_id=episode_id, action="-") for episode_id in ids]
            engine.steps(items, 0, sink)
            while len(sink.results) < len(items):
                await asyncio.sleep(0.01)
            assert all(r.outcome == pb.OUTCOME_COMPLETED for r in sink.results)
            assert (engine.work.pending_items, engine.work._running) == (0, 0)


class _Sink:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.results: list[pb.StepResult] = []

    def __call__(self, result: pb.StepResult) -> None:
        self.results.append(result)

    def put_all(self, results: list[pb.StepResult], size: int) -> None:
        self.results += results


@pytest.mark.parametrize("slow", ["reset", "step"])
async def test_a_group_closed_while_it_is_rebuilt_harms_no_other_program(
    slow: str, tmp_path: Path
) -> None:
    """Its process ends with a request that nobody waits for any more."""
    mark = tmp_path / "rebuilt"
    wait = f"while os.path.exists({str(mark)!r}): time.sleep(0.05)"
    source = f"""
import os, time

class Env:
    def reset(self, seed=None):
        {wait if slow == "reset" else "pass"}
        return "ready", {{}}

    def step(self, action):
        if action == "exit":
            os._exit(1)
        {wait if slow == "step" else "pass"}
        return "done", 0.0, False, False, {{}}
"""
    async with running(group_size=3) as engine:
        other = await reset(engine, await register(engine))
        program = await register(engine, source=source)
        started = [await reset(engine, program) for _ in range(3)]
        ids = [result.episode_id for result in started]
        assert [r.outcome for r in await step(engine, 0, "go", *ids)] == [pb.OUTCOME_COMPLETED] * 3
        mark.touch()
        (ended,) = await step(engine, 1, "exit", ids[0])
        assert ended.outcome == pb.OUTCOME_EXITED
        async with asyncio.timeout(30):
            while not is_asked(engine, frames.RESET if slow == "reset" else group_frames.STEPS):
                await asyncio.sleep(0.02)
        engine.close_episodes(ids)
        async with asyncio.timeout(30):
            # What ends later is heard of, too: the other program's first of all.
            while len(engine.groups) > 1:
                await asyncio.sleep(0.02)
            again = await reset(engine, await register(engine, source=COUNTER + "# again"))
            for episode in (other, again):
                (result,) = await step(engine, 0, "+", episode.episode_id)
                assert result.outcome == pb.OUTCOME_COMPLETED
            engine.close_episodes([other.episode_id, again.episode_id])
            while engine.jails.live or any(j._channels for j in engine.jails._jails.values()):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("left", [1, 0], ids=["another lives on", "all others are closed"])
async def test_an_episode_that_joins_while_its_group_is_rebuilt_starts_and_ends_no_other(
    left: int,
) -> None:
    at_step = "def step(self, action):"
    leaving = f"{at_step}\n        if action == 'exit': os._exit(1)"
    source = "import os\n" + COUNTER.replace(at_step, leaving)
    async with running(group_size=4) as engine:
        program = await register(engine, source=source)
        culprit, other = [(await reset(engine, program)).episode_id for _ in range(2)]
        (group,) = engine.groups._all
        sink = _Sink()
        engine.steps([pb.StepItem(episode_id=culprit, action="exit")], 0, sink)
        async with asyncio.timeout(30):
            while group._serves:
                await asyncio.sleep(0)
        assert group._channel is None
        joining = asyncio.create_task(reset(engine, program))
        await asyncio.sleep(0)
        assert group.joined == 3
        if not left:
            engine.close_episodes([other])
        async with asyncio.timeout(30):
            joined = await joining
        assert joined.outcome == pb.OUTCOME_COMPLETED, joined
        ids = [joined.episode_id, *[other] * left]
        for result in await step(engine, 0, "-", *ids):
            assert result.outcome == pb.OUTCOME_COMPLETED, result
        assert engine.groups.rebuilds_total == 1
        engine.close_episodes(ids)


def is_asked(engine: Engine, op: int) -> bool:
    """Whether the new process of a group that is being rebuilt has such a request to answer."""
    channels = [group._channel for group in engine.groups._all if not group._serves]
    return any(c is not None and c._pending and c._op() == op for c in channels)


async def step(engine: Engine, index: int, action: str, *ids: str) -> list[pb.StepResult]:
    sink = _Sink()
    items = [pb.StepItem(episode_id=i, step_index=index, action=action) for i in ids]
    engine.steps(items, 0, sink)
    async with asyncio.timeout(30):
        while len(sink.results) < len(items):
            await asyncio.sleep(0.01)
    return sink.results
