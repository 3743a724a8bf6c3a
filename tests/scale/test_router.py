"""The client over several servers: where each call goes, and what the loss of one costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest
from sandbox_api import (
    AsyncSandboxClient,
    EpisodeLostError,
    ProgramNotFoundError,
    ResetItem,
    SandboxClient,
    StepItem,
)

from tests.scale.fake_book import SHARD_EPISODES, FakeBook


@pytest.fixture
def book() -> Iterator[FakeBook]:
    with ExitStack() as stack:
        found = FakeBook(stack, 3)
        yield found
        for name in list(found.shards):
            found.kill(name)


@pytest.fixture
async def client(book: FakeBook) -> AsyncIterator[AsyncSandboxClient]:
    async with AsyncSandboxClient(book.address) as client:
        yield client


async def _start(client: AsyncSandboxClient, count: int) -> list[str]:
    program = await client.register_program("count")
    episodes = await client.reset([ResetItem(program.program_id, seed=s) for s in range(count)])
    assert all(episode.ok for episode in episodes), [e.error for e in episodes]
    return [episode.episode_id for episode in episodes]


async def _step(client: AsyncSandboxClient, ids: list[str], index: int) -> list[str]:
    """Step all; their observations, which tell the seed and all actions so far by number."""
    results = await client.step([StepItem(i, index, f"a{n}") for n, i in enumerate(ids)])
    assert [result.episode_id for result in results] == ids
    assert all(result.ok for result in results), [r.error for r in results]
    return [result.observation for result in results]


def _expected(count: int, index: int) -> list[str]:
    return [f"{n}:{index + 1}:a{n}:0" for n in range(count)]


async def test_episodes_are_spread_and_steps_go_where_they_are(
    book: FakeBook, client: AsyncSandboxClient
) -> None:
    ids = await _start(client, 30)
    assert set(book.live().values()) == {10}
    assert await _step(client, ids, 0) == _expected(30, 0)
    for name in book.shards:
        calls = book.servicer(name).calls
        assert (calls["RegisterProgram"], calls["Reset"], calls["Step"]) == (1, 1, 1)
    assert await client.close_episodes(ids) == 30
    assert set(book.live().values()) == {0}


async def test_new_episodes_go_where_others_have_left_room(
    book: FakeBook, client: AsyncSandboxClient
) -> None:
    async with AsyncSandboxClient(book.address) as other:
        ids = await _start(other, 30)
        await other.close_episodes([i for i in ids if not i.endswith(".1")])
        await _start(client, 20)
    assert book.live() == {"0": 10, "1": 10, "2": 10}


async def test_verdicts_copies_and_the_sum_of_all(
    book: FakeBook, client: AsyncSandboxClient
) -> None:
    ids = await _start(client, 6)
    for index in range(2):
        await _step(client, ids, index)
    verdicts = await client.verify(ids)
    assert [v.episode_id for v in verdicts] == ids
    assert all(v.reproduced and v.verified for v in verdicts)
    copies = await client.fork(ids[0], 2)
    assert {i.rpartition(".")[2] for i in copies} == {ids[0].rpartition(".")[2]}
    info = await client.server_info()
    assert (info.live_episodes, info.max_episodes) == (8, 3 * SHARD_EPISODES)
    assert set(info.shards) == {"0", "1", "2"}


@pytest.mark.parametrize("known", [True, False], ids=["the book knows", "the book does not"])
async def test_what_a_dead_shard_had_lives_on_elsewhere_under_the_same_ids(
    book: FakeBook, client: AsyncSandboxClient, known: bool
) -> None:
    ids = await _start(client, 30)
    await _step(client, ids, 0)
    (book.kill if known else book.stop)("1")
    assert await _step(client, ids, 1) == _expected(30, 1)
    live = book.live()
    assert live["0"] + live["2"] == 30
    assert all([verdict.reproduced for verdict in await client.verify(ids)])
    if not known:
        book.shards.pop("1")


async def test_a_shard_lost_in_the_middle_of_a_call_costs_no_result(
    book: FakeBook, client: AsyncSandboxClient
) -> None:
    ids = await _start(client, 30)
    servicer = book.servicer("1")
    servicer.abort_after, servicer.abort_count = 4, 2
    assert await _step(client, ids, 0) == _expected(30, 0)


async def test_a_shard_that_moved_is_found_and_its_episodes_rebuilt(
    book: FakeBook, client: AsyncSandboxClient
) -> None:
    ids = await _start(client, 6)
    await _step(client, ids, 0)
    book.kill("1")
    book.start("1")
    assert await _step(client, ids, 1) == _expected(6, 1)
    more = await _start(client, 30)
    assert any(i.endswith(".1") for i in more)


async def test_a_machine_gone_without_a_word_is_noticed_by_the_book(
    book: FakeBook, client: AsyncSandboxClient
) -> None:
    ids = await _start(client, 6)
    hanging = book.servicer("1")
    hanging.delays_s = {f"a{n}": 60.0 for n in range(6)}
    step = asyncio.create_task(_step(client, ids, 0))
    while not hanging.calls["Step"]:
        await asyncio.sleep(0.01)
    gone = book.shards.pop("1")
    assert await asyncio.wait_for(step, 30) == _expected(6, 0)
    gone.__exit__()


async def test_a_program_of_another_client_is_found_where_it_is(
    book: FakeBook, client: AsyncSandboxClient
) -> None:
    async with AsyncSandboxClient(book.address) as other:
        program = await other.register_program("count")
    episodes = await client.reset([ResetItem(program.program_id, seed=s) for s in range(6)])
    assert all(episode.ok for episode in episodes), [e.error for e in episodes]
    assert sorted(book.live().values()) == [0, 0, 6]
    (nowhere,) = await client.reset([ResetItem("unknown")])
    assert isinstance(nowhere.error, ProgramNotFoundError)


async def test_when_all_are_gone_the_next_one_gets_everything(
    book: FakeBook, client: AsyncSandboxClient
) -> None:
    ids = await _start(client, 6)
    await _step(client, ids, 0)
    for name in ("0", "1", "2"):
        book.kill(name)
    step = asyncio.create_task(_step(client, ids, 1))
    await asyncio.sleep(0.5)
    book.start("0")
    assert await step == _expected(6, 1)


async def test_what_a_caller_will_not_have_rebuilt_is_lost_and_the_rest_is_not(
    book: FakeBook,
) -> None:
    async with AsyncSandboxClient(book.address, rebuild_lost=False) as client:
        ids = await _start(client, 6)
        book.kill("1")
        results = await client.step([StepItem(i, 0, "a") for i in ids])
        for episode_id, result in zip(ids, results, strict=True):
            lost = episode_id.endswith(".1")
            assert result.ok is not lost
            assert isinstance(result.error, EpisodeLostError) is lost


def test_the_client_without_an_event_loop_goes_to_the_shards_as_well(book: FakeBook) -> None:
    with SandboxClient(book.address) as client:
        program = client.register_program("count")
        episodes = client.reset([ResetItem(program.program_id, seed=s) for s in range(3)])
        results = client.step([StepItem(e.episode_id, 0, "a") for e in episodes])
        assert [result.observation for result in results] == [f"{n}:1:a:0" for n in range(3)]
    assert set(book.live().values()) == {1}
