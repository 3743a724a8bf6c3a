"""Between tenants: what is one's is not there for another, whatever it knows of it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import grpc
import pytest
from sandbox_api import Access
from sandbox_api.client import CHANNEL_OPTIONS
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import LocalServer
from sandbox_server.authentication import token_sha256
from tests.security.attack import HELPERS
from tests.server.conftest import COUNTER, JAILS, stepping
from tests.wire import Wire

TOKENS = {name: secrets.token_urlsafe(32) for name in ("victim", "attacker")}


@pytest.fixture(scope="module", params=JAILS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Address of a server of two tenants."""
    file = tmp_path_factory.mktemp("tenants") / "tenants.toml"
    file.write_text(
        "".join(
            f'[tenant.{name}]\ntoken_sha256 = "{token_sha256(token)}"\n'
            for name, token in TOKENS.items()
        )
    )
    options = ["--tenants", str(file)]
    with LocalServer(backend=request.param, max_episodes=200, options=options) as server:
        yield server.address


@contextlib.asynccontextmanager
async def as_tenant(address: str, name: str) -> AsyncIterator[Wire]:
    access = Access(token=TOKENS[name])
    async with access.channel(address, CHANNEL_OPTIONS) as channel:
        wire = Wire(channel)
        wire.stub = access.authorized(wire.stub)
        yield wire


@pytest.fixture
async def victim(shared: str) -> AsyncIterator[Wire]:
    async with as_tenant(shared, "victim") as wire:
        yield wire


@pytest.fixture
async def attacker(shared: str) -> AsyncIterator[Wire]:
    async with as_tenant(shared, "attacker") as wire:
        yield wire


async def _step(wire: Wire, episode_id: str) -> pb.ItemError:
    return (await wire.act((episode_id, 0, "+")))[0].error


async def _verify(wire: Wire, episode_id: str) -> pb.ItemError:
    return (await wire.verify(episode_id)).error


async def _fork(wire: Wire, episode_id: str) -> pb.ItemError:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await wire.stub.Fork(pb.ForkRequest(episode_id=episode_id, copies=1))
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND
    reason = pb.ERROR_REASON_EPISODE_NOT_FOUND
    return pb.ItemError(reason=reason, message=failed.value.details())


async def _reset(wire: Wire, program_id: str) -> pb.ItemError:
    return (await wire.reset(pb.ResetItem(program_id=program_id)))[0].error


_Try = Callable[[Wire, str], Awaitable[pb.ItemError]]


@pytest.mark.parametrize("attempt", [_step, _verify, _fork])
async def test_anothers_episode_is_as_one_that_never_was(
    victim: Wire, attacker: Wire, attempt: _Try
) -> None:
    (episode,) = await victim.start(COUNTER, max_processes=4)
    stolen = await attempt(attacker, episode)
    made_up = await attempt(attacker, secrets.token_urlsafe(16))
    assert stolen.reason == pb.ERROR_REASON_EPISODE_NOT_FOUND
    # Not even that there is one can be learned.
    assert stolen == made_up
    (result,) = await victim.act((episode, 0, "+"))
    assert result.observation == "at 1"
    await victim.close(episode)


async def test_anothers_episode_cannot_be_closed(victim: Wire, attacker: Wire) -> None:
    (episode,) = await victim.start(COUNTER)
    closed = await attacker.stub.Close(pb.CloseRequest(episode_ids=[episode] * 3))
    assert closed.closed == 0
    (result,) = await victim.act((episode, 0, "+"))
    assert result.observation == "at 1"
    await victim.close(episode)


async def test_anothers_program_is_as_one_that_never_was(victim: Wire, attacker: Wire) -> None:
    program_id = await victim.register(COUNTER + "# the victim's")
    stolen = await _reset(attacker, program_id)
    assert stolen.reason == pb.ERROR_REASON_PROGRAM_NOT_FOUND
    made_up = await _reset(attacker, "0" * 64)
    assert stolen.message.replace(program_id[:16], "") == made_up.message.replace("0" * 16, "")


async def test_a_tenant_is_told_nothing_of_what_another_does(victim: Wire, attacker: Wire) -> None:
    before = await attacker.load()
    episodes = await victim.start(COUNTER + "# busy", 5)
    await victim.act(*[(episode, 0, "+") for episode in episodes])
    assert await attacker.load() == before
    await victim.close(*episodes)
    assert await attacker.load() == before


async def test_programs_of_two_tenants_share_no_folder(victim: Wire, attacker: Wire) -> None:
    telling = 'return said(f\'{os.stat("/tmp").st_dev} {os.listdir("/tmp")}\')'
    hiding = HELPERS + stepping("open('/tmp/secret', 'w').write('x')\n" + telling)
    (hidden,) = await victim.start(hiding)
    (hid,) = await victim.act((hidden, 0, "{}"))
    (spy,) = await attacker.start(HELPERS + stepping(telling))
    (seen,) = await attacker.act((spy, 0, "{}"))
    device, _, files = seen.observation.partition(" ")
    assert files == "[]"
    assert hid.observation.endswith("['secret']")
    assert not hid.observation.startswith(device + " ")
    await victim.close(hidden)
    await attacker.close(spy)


STRANGERS = {
    "no token": (),
    "an empty token": (("authorization", "Bearer "),),
    "no scheme": (("authorization", TOKENS["victim"]),),
    "another scheme": (("authorization", f"Basic {TOKENS['victim']}"),),
    "the hash in the place of the token": (
        ("authorization", f"Bearer {token_sha256(TOKENS['victim'])}"),
    ),
    "a blank more": (("authorization", f"Bearer  {TOKENS['victim']}"),),
    "other case": (("authorization", f"Bearer {TOKENS['victim'].swapcase()}"),),
    "half of it": (("authorization", f"Bearer {TOKENS['victim'][:20]}"),),
    "the tenant's name": (("authorization", "Bearer victim"), ("tenant", "victim")),
    "a right and a wrong one": (
        ("authorization", f"Bearer {TOKENS['victim']}"),
        ("authorization", "Bearer x"),
    ),
}


@pytest.mark.parametrize("shown", STRANGERS)
async def test_a_stranger_is_refused(shared: str, shown: str) -> None:
    async with grpc.aio.insecure_channel(shared) as channel:
        wire = Wire(channel)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await wire.stub.GetServerInfo(pb.GetServerInfoRequest(), metadata=STRANGERS[shown])
        assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED
        for token in TOKENS.values():
            assert token not in (failed.value.details() or "")
