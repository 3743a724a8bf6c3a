"""Several batches of steps in flight, by either face of the client."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandbox_api import (
    AsyncSandboxClient,
    EpisodeNotFoundError,
    InvalidRequestError,
    ResetItem,
    SandboxClient,
    StepItem,
    StepResult,
    UnavailableError,
    _dispatch,
)

from tests.api.fake_server import FakeServer, FakeServicer
from tests.api.test_async_client import start, steps


async def test_a_quick_batch_does_not_wait_for_a_slow_one(
    client: AsyncSandboxClient, servicer: FakeServicer
) -> None:
    ids = await start(client, 4)
    servicer.delays_s["slow"] = 1.0
    async with client.pipeline() as pipeline:
        pipeline.submit([StepItem(ids[0], 0, "slow")])
        pipeline.submit(steps(ids[1:]))
        first = await pipeline.results(at_least=3)
        assert {result.episode_id for result in first} == set(ids[1:])
        assert pipeline.in_flight == 1
        # Its neighbours go on meanwhile.
        pipeline.submit(steps(ids[1:], 1))
        second = await pipeline.results(at_least=4)
        assert [result.episode_id for result in second][-1] == ids[0]
        assert all(result.ok for result in second)
        assert await pipeline.results() == []


async def test_many_batches_are_in_flight_at_once(
    client: AsyncSandboxClient, servicer: FakeServicer
) -> None:
    ids = await start(client, 8)
    servicer.delays_s.update({f"a{n}": 0.3 for n in range(2)})
    async with client.pipeline() as pipeline:
        for n in range(0, 8, 2):
            pipeline.submit(steps(ids[n : n + 2]))
        assert pipeline.in_flight == 8
        found = [await pipeline.results(at_least=8, at_most=3) for _ in range(3)]
    assert [len(results) for results in found] == [3, 3, 2]
    assert {result.episode_id for results in found for result in results} == set(ids)
    assert servicer.max_in_flight == 8


async def test_every_step_of_every_episode_is_answered_once_and_in_order(
    client: AsyncSandboxClient,
) -> None:
    ids = await start(client, 60)
    seen: dict[str, list[int]] = {episode_id: [] for episode_id in ids}
    async with client.pipeline() as pipeline:
        for n in range(0, 60, 10):
            pipeline.submit(steps(ids[n : n + 10]))
        while results := await pipeline.results(at_least=7, at_most=11):
            for result in results:
                seen[result.episode_id].append(result.step_index)
            pipeline.submit(
                [
                    StepItem(result.episode_id, result.step_index + 1, "a")
                    for result in results
                    if result.step_index < 4
                ]
            )
    assert all(indices == [0, 1, 2, 3, 4] for indices in seen.values())


async def test_an_episode_has_one_step_in_flight(client: AsyncSandboxClient) -> None:
    ids = await start(client, 2)
    async with client.pipeline() as pipeline:
        pipeline.submit(steps(ids[:1]))
        for items in (steps(ids), steps([ids[1], ids[1]])):
            with pytest.raises(InvalidRequestError, match="in flight already"):
                pipeline.submit(items)
        # Nothing of what was refused was sent.
        assert [result.episode_id for result in await pipeline.results()] == ids[:1]
        pipeline.submit(steps(ids[:1], 1) + steps(ids[1:]))
        assert len(await pipeline.results(at_least=2)) == 2


async def test_it_is_bounded_by_results_that_nobody_takes(client: AsyncSandboxClient) -> None:
    ids = await start(client, 4)
    async with client.pipeline(max_items=3) as pipeline:
        pipeline.submit(steps(ids[:3]))
        with pytest.raises(InvalidRequestError, match="take `results`"):
            pipeline.submit(steps(ids[3:]))
        assert len(await pipeline.results(at_least=3)) == 3
        pipeline.submit(steps(ids[3:]))
        assert len(await pipeline.results()) == 1


async def test_lost_episodes_are_rebuilt_and_unknown_ones_are_data(
    client: AsyncSandboxClient, servicer: FakeServicer
) -> None:
    ids = await start(client, 3)
    async with client.pipeline() as pipeline:
        pipeline.submit(steps(ids))
        await pipeline.results(at_least=3)
        servicer.lose(ids[1])
        pipeline.submit([*steps(ids, 1), StepItem("nobody", 0, "a")])
        by_id = {r.episode_id: r for r in await pipeline.results(at_least=4)}
    assert all(by_id[episode_id].ok for episode_id in ids)
    assert isinstance(by_id["nobody"].error, EpisodeNotFoundError)


async def test_a_server_that_is_gone_answers_every_item_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_dispatch, "BACKOFF_FIRST_S", 0.01)
    address = "unix:/nowhere/at-all"
    async with (
        AsyncSandboxClient(address, max_retries=1) as client,
        client.pipeline() as pipeline,
    ):
        pipeline.submit(steps(["a", "b", "c"], 7))
        results = await pipeline.results(at_least=3)
    assert {result.episode_id for result in results} == {"a", "b", "c"}
    assert all(isinstance(result.error, UnavailableError) for result in results)
    assert {result.step_index for result in results} == {7}


async def test_closing_gives_up_what_is_in_flight(
    client: AsyncSandboxClient, servicer: FakeServicer
) -> None:
    ids = await start(client, 2)
    servicer.delays_s["a0"] = 60.0
    async with client.pipeline() as pipeline:
        pipeline.submit(steps(ids))
        waiting = asyncio.create_task(pipeline.results(at_least=2))
        await asyncio.sleep(0.05)
    assert await waiting == []
    assert pipeline.in_flight == 0
    # The client still works.
    servicer.delays_s.clear()
    assert len(await client.step(steps(ids[1:], 1))) == 1


def _play(client: SandboxClient, ids: list[str], turns: int) -> list[StepResult]:
    found = []
    with client.pipeline() as pipeline:
        half = len(ids) // 2
        pipeline.submit(steps(ids[:half]))
        pipeline.submit(steps(ids[half:]))
        while results := pipeline.results(at_least=half, at_most=half):
            # Somebody's generation, during which the others are stepped.
            time.sleep(0.005)
            found += results
            pipeline.submit(
                [
                    StepItem(result.episode_id, result.step_index + 1, "a")
                    for result in results
                    if result.step_index + 1 < turns
                ]
            )
    return found


def test_a_script_without_an_event_loop_has_it_too(server: FakeServer) -> None:
    with SandboxClient(server.address) as client:
        program = client.register_program("class CountEnv: ...")
        episodes = client.reset([ResetItem(program.program_id, seed=n) for n in range(10)])
        found = _play(client, [episode.episode_id for episode in episodes], 4)
        assert len(found) == 40
        assert all(result.ok for result in found)
        with client.pipeline() as pipeline, pytest.raises(InvalidRequestError):
            pipeline.submit(steps(["a", "a"]))
