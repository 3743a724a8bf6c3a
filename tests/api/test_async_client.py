"""The asynchronous client against a server that misbehaves."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from sandbox_api import (
    AsyncSandboxClient,
    CapacityError,
    EpisodeLostError,
    EpisodeNotFoundError,
    InternalError,
    Limits,
    Outcome,
    ProgramNotFoundError,
    ResetItem,
    StepItem,
    StepOrderError,
    UnavailableError,
    _async,
    _dispatch,
    _play,
)

from tests.api.fake_server import FakeServer, FakeServicer


async def start(client: AsyncSandboxClient, count: int) -> list[str]:
    program = await client.register_program("class CountEnv: ...")
    episodes = await client.reset([ResetItem(program.program_id, seed=n) for n in range(count)])
    assert all(episode.ok for episode in episodes)
    return [episode.episode_id for episode in episodes]


def steps(ids: list[str], index: int = 0) -> list[StepItem]:
    return [StepItem(episode_id, index, f"a{n}") for n, episode_id in enumerate(ids)]


@pytest.fixture
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dispatch, "BACKOFF_FIRST_S", 0.01)


async def test_register_returns_the_program_and_its_limits(client: AsyncSandboxClient):
    program = await client.register_program("x", limits=Limits(step_timeout_s=7.0))
    assert program.outcome is Outcome.COMPLETED
    assert program.limits.step_timeout_s == 7.0
    assert program.tools == [{"type": "function"}]


async def test_a_program_that_does_not_load_is_data(client: AsyncSandboxClient):
    program = await client.register_program("syntax error")
    assert program.outcome is Outcome.PROGRAM_ERROR
    assert program.diagnostic is not None
    assert program.diagnostic.line == 3


async def test_reset_and_step_keep_the_order_of_items(client: AsyncSandboxClient):
    ids = await start(client, 20)
    results = await client.step(steps(ids))
    assert [r.episode_id for r in results] == ids
    assert [r.observation for r in results] == [f"{n}:1:a{n}:0" for n in range(20)]
    assert results[0].reward == 0.01
    assert results[0].info == {"n": 1}


async def test_results_out_of_order_and_twice_are_put_right(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    servicer.reverse = True
    ids = await start(client, 10)
    results = await client.step(steps(ids))
    assert [r.observation for r in results] == [f"{n}:1:a{n}:0" for n in range(10)]


async def test_a_batch_over_the_servers_bound_is_split(server: FakeServer):
    server.servicer.max_batch_items = 7
    async with AsyncSandboxClient(server.address) as client:
        ids = await start(client, 20)
        results = await client.step(steps(ids))
        assert server.servicer.calls["Reset"] == 3
        assert server.servicer.calls["Step"] == 3
        assert [r.observation for r in results] == [f"{n}:1:a{n}:0" for n in range(20)]
        assert await client.close_episodes(ids) == 20
        assert server.servicer.calls["Close"] == 3


async def test_a_batch_over_the_message_bound_is_split(
    client: AsyncSandboxClient, servicer: FakeServicer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_async, "MAX_CALL_CHARACTERS", 5)
    ids = await start(client, 4)
    results = await client.step([StepItem(i, 0, "xxx") for i in ids[:2]] + steps(ids)[2:])
    assert [r.observation for r in results[:2]] == ["0:1:xxx:0", "1:1:xxx:0"]
    assert all(r.ok for r in results)
    assert servicer.calls["Step"] == 3


async def test_an_empty_batch_makes_no_call(client: AsyncSandboxClient, servicer: FakeServicer):
    assert await client.step([]) == []
    assert await client.reset([]) == []
    assert servicer.calls["Step"] == servicer.calls["Reset"] == 0


async def test_only_refused_items_are_sent_again_after_the_delay_asked_for(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    ids = await start(client, 10)
    servicer.refuse_once = {"a3", "a7"}
    servicer.retry_delay_s = 0.3
    started = time.monotonic()
    results = await client.step(steps(ids))
    assert time.monotonic() - started >= 0.3
    assert all(r.ok for r in results)
    assert servicer.items["Step"] == 12
    assert servicer.executed == 10


async def test_refused_resets_are_sent_again(client: AsyncSandboxClient, servicer: FakeServicer):
    servicer.refuse_once = {2}
    ids = await start(client, 4)
    assert servicer.items["Reset"] == 5
    assert len(set(ids)) == 4


async def test_retries_end_and_the_error_is_the_items(
    server: FakeServer, quick_backoff: None, monkeypatch: pytest.MonkeyPatch
):
    async with AsyncSandboxClient(server.address, max_retries=2) as client:
        ids = await start(client, 2)
        original = FakeServicer._step

        def refuse(self, index, item):
            result = original(self, index, item)
            if item.action == "a1":
                result.Clear()
                result.index = index
                self._refuse(result.error)
            return result

        monkeypatch.setattr(FakeServicer, "_step", refuse)
        server.servicer.retry_delay_s = 0.0
        ok, refused = await client.step(steps(ids))
    assert ok.ok
    assert isinstance(refused.error, CapacityError)
    assert refused.outcome is None
    assert refused.reward is None
    assert server.servicer.calls["Step"] == 4  # one with progress, then 1 + 2 without


async def test_unavailable_in_mid_stream_keeps_what_arrived(
    client: AsyncSandboxClient, servicer: FakeServicer, quick_backoff: None
):
    ids = await start(client, 10)
    servicer.abort_after, servicer.abort_count = 6, 1
    results = await client.step(steps(ids))
    assert all(r.ok for r in results)
    assert servicer.items["Step"] == 10 + 4
    assert servicer.executed == 10


async def test_unavailable_for_good_is_an_error_of_each_item(
    server: FakeServer, quick_backoff: None
):
    async with AsyncSandboxClient(server.address, max_retries=1) as client:
        ids = await start(client, 3)
        server.servicer.abort_count = 100
        results = await client.step(steps(ids))
    assert all(isinstance(r.error, UnavailableError) for r in results)
    assert "draining" in str(results[0].error)


async def test_an_item_without_an_answer_is_an_internal_error(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    program = await client.register_program("x")
    servicer.skip = {1}
    first, second, third = await client.reset([ResetItem(program.program_id)] * 3)
    assert first.ok
    assert third.ok
    assert isinstance(second.error, InternalError)


async def test_a_missed_deadline_sends_the_same_step_again(
    server: FakeServer, quick_backoff: None
):
    async with AsyncSandboxClient(server.address, timeout_margin_s=0.2) as client:
        program = await client.register_program("x", limits=Limits(step_timeout_s=0.1))
        (episode,) = await client.reset([ResetItem(program.program_id)])
        server.servicer.delays_s["slow"] = 0.45
        asyncio.get_running_loop().call_later(0.5, server.servicer.delays_s.clear)
        (result,) = await client.step([StepItem(episode.episode_id, 0, "slow")])
    assert result.ok
    assert server.servicer.calls["Step"] >= 2
    assert server.servicer.executed == 1


async def test_the_deadline_of_a_batch_follows_its_longest_item(
    client: AsyncSandboxClient, servicer: FakeServicer, monkeypatch: pytest.MonkeyPatch
):
    timeouts_s = []
    original = _play.PlayingStub.Step

    def step(self, request, timeout):
        timeouts_s.append(timeout)
        return original(self, request, timeout)

    monkeypatch.setattr(_play.PlayingStub, "Step", step)
    ids = await start(client, 2)
    await client.step([StepItem(ids[0], 0, "a", timeout_s=1.5), StepItem(ids[1], 0, "b", 40.0)])
    assert servicer.item_timeouts_s == [1.5, 40.0]
    await client.step([StepItem(ids[0], 1, "a")])
    assert timeouts_s == [pytest.approx(70.0, abs=1.0), pytest.approx(32.0, abs=1.0)]
    await client.reset([ResetItem("nothing", timeout_s=7.0)])
    assert 41.0 < servicer.deadlines_s[-1] < 43.0


async def test_a_slow_item_delays_no_other(client: AsyncSandboxClient, servicer: FakeServicer):
    ids = await start(client, 5)
    servicer.delays_s["a2"] = 0.5
    started = time.monotonic()
    stream = client.step_stream(steps(ids))
    arrived = [(result.episode_id, time.monotonic() - started) async for result in stream]
    assert arrived[-1][0] == ids[2]
    assert all(at < 0.4 for _, at in arrived[:4])


async def test_episodes_arrive_with_their_items_index(client: AsyncSandboxClient):
    program = await client.register_program("class CountEnv: ...")
    items = [ResetItem(program.program_id, seed=n) for n in range(3)] + [ResetItem("nothing")]
    started = {index: episode async for index, episode in client.reset_stream(items)}
    assert [started[index].ok for index in range(4)] == [True, True, True, False]
    # As `reset` would: they can be stepped, and rebuilt where they are lost.
    ids = [started[index].episode_id for index in range(3)]
    assert all(result.ok for result in await client.step(steps(ids)))
    assert all(client.ledger.get(episode_id) is not None for episode_id in ids)


async def test_results_that_are_left_hold_up_nobody(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    ids = await start(client, 3)
    servicer.delays_s["a2"] = 60.0
    stream = client.step_stream(steps(ids))
    await anext(stream)
    await stream.aclose()
    assert client._dispatcher.budget.in_use == 0
    assert all(r.ok for r in await client.step(steps(ids[:2], 1)))
    assert servicer.calls["Play"] == 1


async def test_items_in_flight_are_bounded(server: FakeServer):
    async with AsyncSandboxClient(server.address, max_in_flight_items=8) as client:
        ids = await start(client, 40)
        await asyncio.gather(*(client.step(steps(ids[n : n + 5])) for n in range(0, 40, 5)))
    assert server.servicer.executed == 40
    assert server.servicer.max_in_flight <= 8


async def test_the_budget_survives_cancelled_waiters():
    budget = _dispatch.ItemBudget(4)

    async def hold(count: int) -> None:
        async with budget.hold(count):
            await asyncio.sleep(0.05)

    first = asyncio.create_task(hold(4))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(hold(3))
    last = asyncio.create_task(hold(2))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(first, last)
    assert budget.in_use == 0


async def test_a_program_fault_is_data_and_carries_no_reward(client: AsyncSandboxClient):
    (episode_id,) = await start(client, 1)
    (result,) = await client.step([StepItem(episode_id, 0, "raise")])
    assert result.error is None
    assert result.outcome is Outcome.PROGRAM_ERROR
    assert result.reward is None
    assert result.diagnostic is not None
    assert result.diagnostic.exception == "ValueError"


async def test_a_step_out_of_order_is_the_callers_error(client: AsyncSandboxClient):
    (episode_id,) = await start(client, 1)
    (result,) = await client.step([StepItem(episode_id, 5, "a")])
    assert isinstance(result.error, StepOrderError)


async def test_a_repeated_step_runs_nothing(client: AsyncSandboxClient, servicer: FakeServicer):
    (episode_id,) = await start(client, 1)
    first = await client.step([StepItem(episode_id, 0, "a")])
    again = await client.step([StepItem(episode_id, 0, "a")])
    assert first == again
    assert servicer.executed == 1


async def test_an_unknown_episode_is_an_error_and_not_rebuilt(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    (result,) = await client.step([StepItem("nobody", 0, "a")])
    assert isinstance(result.error, EpisodeNotFoundError)
    assert servicer.calls["Reset"] == 0


async def test_an_unknown_program_is_an_error(client: AsyncSandboxClient):
    (episode,) = await client.reset([ResetItem("nothing")])
    assert isinstance(episode.error, ProgramNotFoundError)
    assert episode.outcome is None


async def test_a_lost_episode_is_rebuilt_under_the_same_id(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    ids = await start(client, 6)
    await client.step(steps(ids))
    await client.step(steps(ids, 1))
    servicer.lose(ids[1], ids[4])
    results = await client.step(steps(ids, 2))
    assert [r.episode_id for r in results] == ids
    assert [r.observation for r in results] == [f"{n}:3:a{n}:0" for n in range(6)]
    assert servicer.calls["Reset"] == 2  # both in one call
    results = await client.step(steps(ids, 3))
    assert all(r.ok for r in results)
    assert await client.close_episodes(ids) == 6


async def test_a_repeat_of_the_last_step_survives_a_rebuild(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    (episode_id,) = await start(client, 1)
    first = await client.step([StepItem(episode_id, 0, "a")])
    servicer.lose(episode_id)
    assert await client.step([StepItem(episode_id, 0, "a")]) == first


async def test_a_restarted_server_gets_its_programs_and_episodes_back(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    ids = await start(client, 5)
    await client.step(steps(ids))
    servicer.restart()
    results = await client.step(steps(ids, 1))
    assert [r.observation for r in results] == [f"{n}:2:a{n}:0" for n in range(5)]
    assert servicer.calls["RegisterProgram"] == 2


async def test_reset_after_a_restart_registers_again(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    program = await client.register_program("x")
    servicer.restart()
    (episode,) = await client.reset([ResetItem(program.program_id)])
    assert episode.ok


async def test_an_episode_started_with_a_prefix_is_rebuilt_whole(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    program = await client.register_program("x")
    (episode,) = await client.reset([ResetItem(program.program_id, prefix_actions=("p", "q"))])
    assert [r.observation for r in episode.prefix_results] == ["0:1:p:0", "0:2:q:0"]
    servicer.lose(episode.episode_id)
    (result,) = await client.step([StepItem(episode.episode_id, 2, "r")])
    assert result.observation == "0:3:r:0"


@pytest.mark.parametrize("played", [0, 2])
async def test_a_program_that_is_not_deterministic_cannot_be_rebuilt(
    client: AsyncSandboxClient, servicer: FakeServicer, played: int
):
    servicer.deterministic = False
    ids = await start(client, 2)
    for index in range(played):
        await client.step(steps(ids, index))
    servicer.lose(ids[1])
    ok, lost = await client.step(steps(ids, played))
    assert ok.ok
    assert isinstance(lost.error, EpisodeLostError)
    assert "not deterministic" in str(lost.error)
    assert len(servicer.closed_ids) == 1  # the useless copy


async def test_rebuilding_can_be_turned_off(server: FakeServer):
    async with AsyncSandboxClient(server.address, rebuild_lost=False) as client:
        (episode_id,) = await start(client, 1)
        server.servicer.lose(episode_id)
        (result,) = await client.step([StepItem(episode_id, 0, "a")])
    assert isinstance(result.error, EpisodeLostError)
    assert server.servicer.calls["Reset"] == 1


async def test_a_closed_episode_is_not_rebuilt(client: AsyncSandboxClient, servicer: FakeServicer):
    (episode_id,) = await start(client, 1)
    assert await client.close_episodes([episode_id]) == 1
    assert await client.close_episodes([episode_id]) == 0
    (result,) = await client.step([StepItem(episode_id, 0, "a")])
    assert isinstance(result.error, EpisodeNotFoundError)
    assert servicer.calls["Reset"] == 1


async def test_verify_tells_verify_and_oracle_and_rebuilds(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    ids = await start(client, 2)
    await client.step(steps(ids))
    await client.step([StepItem(ids[1], 1, "b")])
    servicer.lose(ids[1])
    short, long = await client.verify(ids, run_oracle=True)
    assert short.reproduced
    assert short.verified is False
    assert long.verified is True
    assert long.episode_id == ids[1]
    assert long.oracle is not None
    assert long.oracle.final_reward == 1.0
    (unknown,) = await client.verify(["nobody"])
    assert isinstance(unknown.error, EpisodeLostError)


async def test_forks_go_on_alone_and_can_be_rebuilt(
    client: AsyncSandboxClient, servicer: FakeServicer
):
    (episode_id,) = await start(client, 1)
    await client.step([StepItem(episode_id, 0, "a")])
    servicer.lose(episode_id)
    copies = await client.fork(episode_id, 2)
    servicer.lose(copies[0])
    results = await client.step([StepItem(c, 1, f"c{n}") for n, c in enumerate(copies)])
    assert [r.observation for r in results] == ["0:2:c0:0", "0:2:c1:0"]
    with pytest.raises(EpisodeLostError):
        await client.fork("nobody", 1)


async def test_server_info_is_plain_values(client: AsyncSandboxClient):
    info = await client.server_info()
    assert info.backend == "fake"
    assert info.runtimes == {"stdlib": "3.11.7"}
    assert info.max_batch_items == 4096


async def test_no_server_is_one_clear_error(quick_backoff: None):
    async with AsyncSandboxClient("127.0.0.1:1", max_retries=1) as client:
        with pytest.raises(UnavailableError):
            await client.server_info()


async def test_a_single_call_that_is_cancelled_by_the_server_is_made_again(
    client: AsyncSandboxClient, monkeypatch: pytest.MonkeyPatch, quick_backoff: None
):
    # What a gRPC server does, silently, to calls past its bound on calls in flight.
    original = FakeServicer.GetServerInfo
    refused = 0

    async def cancel_once(self, request, context):
        nonlocal refused
        if not refused:
            refused += 1
            await context.abort(grpc.StatusCode.CANCELLED, "too many")
        return await original(self, request, context)

    monkeypatch.setattr(FakeServicer, "GetServerInfo", cancel_once)
    assert (await client.server_info()).backend == "fake"
