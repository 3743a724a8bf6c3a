"""The tenants file, and how a server is divided among those in it."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from pathlib import Path

import pytest
from sandbox_api.errors import CapacityError, QuotaError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.authentication import token_sha256
from sandbox_server.config import DEFAULT_TENANT, ServerConfig, TenantConfig
from sandbox_server.rate import Rate
from sandbox_server.tenants import TenantFileError, parts, read_tenants
from sandbox_server.work import Work
from tests.server.conftest import COUNTER
from tests.server.small import serving

HASH = "0" * 64


def read(tmp_path: Path, text: str) -> tuple[TenantConfig, ...]:
    path = tmp_path / "tenants.toml"
    path.write_text(text)
    return read_tenants(path)


def test_a_file_names_tenants_and_their_quotas(tmp_path: Path) -> None:
    text = f"""
    [tenant.trainer]
    token_sha256 = "{HASH}"
    weight = 3
    max_episodes = 4000
    steps_per_s = 100
    [tenant.designer]
    certificate = "designer.example"
    """
    assert read(tmp_path, text) == (
        TenantConfig("trainer", HASH, weight=3, max_episodes=4000, steps_per_s=100),
        TenantConfig("designer", certificate="designer.example"),
    )


WRONG = {
    "": "one table",
    "[[tenant": "no TOML",
    "[tenants.a]": "one table",
    "tenant.a = 3": "write it as a table",
    "[tenant.a]": "spadework token a",
    "[tenant.'A b']": "lower-case",
    "[tenant.a]\nmax_episode = 3": "did you mean 'max_episodes'",
    "[tenant.a]\nzzz = 3": "there are token_sha256",
    "[tenant.a]\nmax_episodes = '3'": "must be a whole number",
    "[tenant.a]\nmax_episodes = true": "must be a whole number",
    "[tenant.a]\nmax_episodes = -1": "must not be negative",
    "[tenant.a]\nsteps_per_s = nan": "must not be negative",
    "[tenant.a]\ntoken_sha256 = 'secret'": "64 lower-case hexadecimal",
    f"[tenant.a]\ntoken_sha256 = '{HASH}'\nweight = 0": "it is from 1 to",
    f"[tenant.a]\ntoken_sha256 = '{HASH}'\n[tenant.b]\ntoken_sha256 = '{HASH}'": "two tenants",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str) -> None:
    with pytest.raises(TenantFileError, match=WRONG[text]):
        read(tmp_path, text)


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(TenantFileError, match="No such file"):
        read_tenants(tmp_path / "none.toml")


def tenants(**quotas: int) -> tuple[TenantConfig, ...]:
    return (
        TenantConfig("trainer", HASH, weight=3, **quotas),
        TenantConfig("designer", "1" * 64),
    )


def test_without_tenants_a_server_is_one_part() -> None:
    config = ServerConfig()
    assert parts(config) == {DEFAULT_TENANT: config}


def test_what_is_not_given_by_number_goes_by_weight() -> None:
    divided = parts(ServerConfig(tenants=tenants(), max_episodes=4000))
    assert divided["trainer"].max_episodes == 3000
    assert divided["designer"].max_episodes == 1000
    assert divided["trainer"].max_running_steps == 3 * divided["designer"].max_running_steps
    assert divided["trainer"].cpu_weight == 3 * divided["designer"].cpu_weight


def test_a_number_is_kept_and_the_rest_is_divided() -> None:
    divided = parts(ServerConfig(tenants=tenants(max_episodes=10), max_episodes=4000))
    assert divided["trainer"].max_episodes == 10
    assert divided["designer"].max_episodes == 3990


def test_more_than_there_is_cannot_be_promised() -> None:
    with pytest.raises(TenantFileError, match="add up to 4000, with 1 more"):
        parts(ServerConfig(tenants=tenants(max_episodes=4000), max_episodes=4000))


def test_a_tenant_is_told_that_it_is_its_own_share_that_is_full() -> None:
    (config,) = parts(ServerConfig(tenants=tenants()[1:])).values()
    assert isinstance(config.full("x"), QuotaError)
    assert isinstance(ServerConfig().full("x"), CapacityError)


def test_a_rate_allows_bursts_of_a_second_and_says_when_to_come_again() -> None:
    now = 100.0
    rate = Rate(4, lambda: now)
    assert [rate.wait_s() for _ in range(5)] == [0, 0, 0, 0, 0.25]
    now += 0.25
    assert [rate.wait_s() for _ in range(2)] == [0, 0.25]
    now += 1_000
    assert sum(rate.wait_s() == 0 for _ in range(10)) == 4


def test_only_so_many_steps_of_a_tenant_run_at_once_and_all_get_their_turn() -> None:
    work = Work(dataclasses.replace(ServerConfig(), tenant="a", max_running_steps=2))
    started: list[int] = []

    def start(number: int) -> None:
        started.append(number)
        if number == 3:
            # It has ended while it waited.
            work.end_step()

    for number in range(5):
        if work.begin_step():
            start(number)
        else:
            work.wait(functools.partial(start, number))
    assert started == [0, 1]
    assert (work.pending_items, work.waiting_steps) == (5, 3)
    work.end_step()
    assert started == [0, 1, 2]
    work.end_step()
    assert started == [0, 1, 2, 3, 4]
    work.end_step()
    work.end_step()
    assert (work.pending_items, work.waiting_steps) == (0, 0)
    assert work.begin_step()


def test_steps_that_are_answered_as_they_start_need_no_stack() -> None:
    work = Work(dataclasses.replace(ServerConfig(), tenant="a", max_running_steps=1))
    assert work.begin_step()
    for _ in range(10_000):
        assert not work.begin_step()
        work.wait(work.end_step)
    work.end_step()
    assert (work.pending_items, work.waiting_steps) == (0, 0)


async def test_resets_and_replays_wait_for_their_turn_and_leave_it_when_cancelled() -> None:
    work = Work(dataclasses.replace(ServerConfig(), tenant="a", max_running_steps=4))
    ran: list[str] = []

    async def item(name: str, cost: int) -> None:
        async with work.item(cost):
            ran.append(name)
            await asyncio.sleep(0.01)

    assert work.begin_step(3)
    large, small, gone = (
        asyncio.create_task(item(name, cost)) for name, cost in (("l", 9), ("s", 1), ("g", 1))
    )
    await asyncio.sleep(0.02)
    # The small ones do not overtake the large one, which would never come.
    assert (ran, work.pending_items, work.waiting_steps) == ([], 4, 3)
    gone.cancel()
    work.end_step(3)
    await asyncio.gather(large, small)
    assert ran == ["l", "s"]
    assert (work.pending_items, work.waiting_steps) == (0, 0)
    assert work.begin_step(4)


def test_replayed_steps_count_against_the_rate() -> None:
    now = 100.0
    rate = Rate(4, lambda: now)
    assert rate.owed_s() == 0
    rate.take(10)
    assert (rate.owed_s(), rate.wait_s()) == (1.75, 1.75)
    now += 1.75
    assert (rate.owed_s(), rate.wait_s()) == (0, 0)


async def test_steps_of_resets_and_verifications_are_no_way_around_the_rate() -> None:
    tenants = (TenantConfig("a", token_sha256("t"), steps_per_s=5),)
    async with serving(tenants=tenants) as small:
        bearer = [("authorization", "Bearer t")]
        register = pb.RegisterProgramRequest(source=COUNTER)
        program = (await small.stub.RegisterProgram(register, metadata=bearer)).program_id
        item = pb.ResetItem(program_id=program, prefix_actions=["-"] * 40)

        async def reset() -> pb.ResetResult:
            call = small.stub.Reset(pb.ResetRequest(items=[item]), metadata=bearer)
            (result,) = [r async for response in call for r in response.results]
            return result

        first, second = await reset(), await reset()
        assert first.outcome == pb.OUTCOME_COMPLETED
        assert second.error.reason == pb.ERROR_REASON_QUOTA
        assert second.error.retry_delay_s > 5
        verify = pb.VerifyRequest(items=[pb.VerifyItem(episode_id=first.episode_id)])
        call = small.stub.Verify(verify, metadata=bearer)
        (verdict,) = [r async for response in call for r in response.results]
        assert verdict.error.reason == pb.ERROR_REASON_QUOTA
