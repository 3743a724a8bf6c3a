"""The client's stream of steps: shared, ended by either side, and opened again."""

from __future__ import annotations

import asyncio
import time

import pytest
from sandbox_api import (
    AsyncSandboxClient,
    ResetItem,
    StepItem,
    UnauthenticatedError,
    UnavailableError,
    _dispatch,
    _play,
)

from tests.api.fake_server import FakeServicer


async def _start(client: AsyncSandboxClient, count: int) -> list[str]:
    program = await client.register_program("class CountEnv: ...")
    episodes = await client.reset([ResetItem(program.program_id, seed=n) for n in range(count)])
    return [episode.episode_id for episode in episodes]


async def test_all_batches_share_one_stream(client: AsyncSandboxClient, servicer: FakeServicer):
    ids = await _start(client, 40)
    for turn in range(5):
        batches = [[StepItem(i, turn, "a") for i in ids[n : n + 7]] for n in range(0, 40, 7)]
        for results in await asyncio.gather(*map(client.step, batches)):
            assert all(r.ok and r.step_index == turn for r in results)
    assert servicer.calls["Play"] == 1
    assert sorted(servicer.messages) == [5] * 5 + [7] * 25


async def test_a_stream_that_has_counted_its_last_item_is_followed_by_another(
    client: AsyncSandboxClient, servicer: FakeServicer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_play, "_MOST_ITEMS", 8)
    ids = await _start(client, 3)
    for turn in range(6):
        results = await client.step([StepItem(i, turn, "a") for i in ids])
        assert [r.observation for r in results] == [f"{n}:{turn + 1}:a:0" for n in range(3)]
    assert servicer.calls["Play"] == 3


async def test_a_server_that_ends_every_stream_is_an_error(
    client: AsyncSandboxClient, servicer: FakeServicer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_dispatch, "BACKOFF_FIRST_S", 0.01)
    ids = await _start(client, 2)
    servicer.end_streams = 1_000
    results = await client.step([StepItem(i, 0, "a") for i in ids])
    assert all(isinstance(r.error, UnavailableError) for r in results)
    servicer.end_streams = 0
    assert all(r.ok for r in await client.step([StepItem(i, 0, "a") for i in ids]))


async def test_a_stream_that_the_server_ends_is_replaced_without_a_wait(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    ids = await _start(client, 2)
    assert (await client.step([StepItem(ids[0], 0, "a")]))[0].ok
    servicer.end_streams = 1
    started = time.monotonic()
    # The first of these may meet the end of the stream: it is sent again on another.
    results = await client.step([StepItem(i, 1 - n, "a") for n, i in enumerate(ids)])
    assert all(r.ok for r in results)
    assert time.monotonic() - started < 5.0
    assert servicer.calls["Play"] == 2
    assert servicer.executed == 3


async def test_a_step_that_is_cancelled_leaves_the_others_their_stream(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    ids = await _start(client, 3)
    servicer.delays_s = {"slow": 0.5, "never": 600.0}
    never = asyncio.create_task(client.step([StepItem(ids[0], 0, "never")]))
    slow = asyncio.create_task(client.step([StepItem(ids[1], 0, "slow")]))
    await asyncio.sleep(0.1)
    never.cancel()
    assert (await client.step([StepItem(ids[2], 0, "a")]))[0].ok
    assert (await slow)[0].ok
    assert servicer.calls["Play"] == 1


async def test_who_waits_says_so(
    client: AsyncSandboxClient, servicer: FakeServicer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_play, "_STILL_THERE_S", 0.05)
    (episode_id,) = await _start(client, 1)
    servicer.delays_s["slow"] = 1.0
    assert (await client.step([StepItem(episode_id, 0, "slow")]))[0].ok
    assert servicer.messages.count(0) >= 3
    said = len(servicer.messages)
    await asyncio.sleep(0.3)
    # Nobody waits any more, so nothing is said.
    assert len(servicer.messages) <= said + 1


async def test_a_refused_stream_is_an_error_of_each_item(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    ids = await _start(client, 2)
    servicer.refuse_streams = True
    results = await client.step([StepItem(i, 0, "a") for i in ids])
    assert all(isinstance(r.error, UnauthenticatedError) for r in results)


async def test_a_client_that_is_closed_and_used_again_opens_another_stream(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    (episode_id,) = await _start(client, 1)
    for turn in range(3):
        assert (await client.step([StepItem(episode_id, turn, "a")]))[0].ok
        await client.aclose()
    assert servicer.calls["Play"] == 3
