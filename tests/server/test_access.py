"""Who gets in: tokens, certificates, TLS, and where nobody is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from sandbox_api import Access, ResetItem, SandboxClient, StepItem
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.errors import (
    EpisodeNotFoundError,
    InvalidRequestError,
    ProgramNotFoundError,
    QuotaError,
    UnauthenticatedError,
    UnavailableError,
)
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import LocalServer
from sandbox_server.authentication import token_sha256
from sandbox_server.config import AddressError, ServerConfig, TenantConfig
from sandbox_server.transport import check_exposure
from tests.server.conftest import COUNTER

TOKENS = {"trainer": "t" * 43, "designer": "d" * 43}


def tenants_file(folder: Path, **extra: str) -> Path:
    path = folder / "tenants.toml"
    path.write_text(
        "".join(
            f'[tenant.{name}]\ntoken_sha256 = "{token_sha256(token)}"\n{extra.get(name, "")}\n'
            for name, token in TOKENS.items()
        )
    )
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalServer, Path]]:
    """A server with two tenants, and its audit log."""
    folder = tmp_path_factory.mktemp("tenants")
    quotas = tenants_file(folder, designer="max_episodes = 3\nsteps_per_s = 5")
    log = folder / "audit.jsonl"
    options = ["--tenants", str(quotas), "--audit-log", str(log)]
    with LocalServer(backend="process", options=options) as server:
        yield server, log


def client(server: LocalServer, name: str) -> AsyncSandboxClient:
    return AsyncSandboxClient(server.address, access=Access(token=TOKENS[name]), max_retries=0)


@pytest.mark.parametrize("token", ["", "x" * 43, TOKENS["trainer"][:-1], TOKENS["trainer"] + "t"])
async def test_only_a_right_token_gets_in(shared: tuple[LocalServer, Path], token: str) -> None:
    async with AsyncSandboxClient(shared[0].address, access=Access(token=token)) as stranger:
        with pytest.raises(UnauthenticatedError, match="SPADEWORK_TOKEN"):
            await stranger.server_info()


async def test_a_strangers_message_is_not_even_read(shared: tuple[LocalServer, Path]) -> None:
    async with grpc.aio.insecure_channel(shared[0].address) as channel:
        # It would be RESOURCE_EXHAUSTED if the server looked at how long it is.
        call = channel.stream_stream("/sandbox_api.v1.SandboxService/RegisterProgram")()
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_health_may_be_asked_by_anybody(shared: tuple[LocalServer, Path]) -> None:
    async with grpc.aio.insecure_channel(shared[0].address) as channel:
        said = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert said.status == health_pb2.HealthCheckResponse.SERVING


async def test_what_is_anothers_is_not_there(shared: tuple[LocalServer, Path]) -> None:
    async with client(shared[0], "trainer") as mine, client(shared[0], "designer") as others:
        program = await mine.register_program(COUNTER)
        (episode,) = await mine.reset([ResetItem(program.program_id)])
        assert (await others.server_info()).live_episodes == 0
        raw = others._connected()
        reset = pb.ResetRequest(items=[pb.ResetItem(program_id=program.program_id)])
        (refused,) = [r async for m in raw.Reset(reset) for r in m.results]
        assert refused.error.reason == ProgramNotFoundError.reason
        step = pb.StepRequest(items=[pb.StepItem(episode_id=episode.episode_id, action="+")])
        (refused,) = [r async for m in raw.Step(step, timeout=30) for r in m.results]
        assert refused.error.reason == EpisodeNotFoundError.reason
        verify = pb.VerifyRequest(items=[pb.VerifyItem(episode_id=episode.episode_id)])
        (refused,) = [r async for m in raw.Verify(verify) for r in m.results]
        assert refused.error.reason == EpisodeNotFoundError.reason
        fork = pb.ForkRequest(episode_id=episode.episode_id, copies=1)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await raw.Fork(fork)
        assert failed.value.code() is grpc.StatusCode.NOT_FOUND
        close = pb.CloseRequest(episode_ids=[episode.episode_id])
        assert (await raw.Close(close)).closed == 0
        assert (await mine.server_info()).live_episodes == 1
        (result,) = await mine.step([StepItem(episode.episode_id, 0, "+")])
        assert result.observation == "at 1"
        assert await mine.close_episodes([episode.episode_id]) == 1


async def test_a_quota_of_episodes_is_the_tenants_own(shared: tuple[LocalServer, Path]) -> None:
    async with client(shared[0], "trainer") as trainer, client(shared[0], "designer") as designer:
        program = await designer.register_program(COUNTER)
        episodes = await designer.reset([ResetItem(program.program_id, seed=i) for i in range(5)])
        refused = [e.error for e in episodes if not e.ok]
        assert len(refused) == 2
        assert all(isinstance(error, QuotaError) for error in refused)
        assert "tenant designer: 3 of at most 3 episodes are live" in str(refused[0])
        program = await trainer.register_program(COUNTER)
        others = await trainer.reset([ResetItem(program.program_id, seed=i) for i in range(5)])
        assert all(episode.ok for episode in others)
        await designer.close_episodes([e.episode_id for e in episodes if e.ok])
        await trainer.close_episodes([e.episode_id for e in others])


async def test_over_its_rate_a_tenant_waits_and_loses_no_step(
    shared: tuple[LocalServer, Path],
) -> None:
    token = Access(token=TOKENS["designer"])
    async with AsyncSandboxClient(shared[0].address, access=token) as designer:
        program = await designer.register_program(COUNTER)
        (episode,) = await designer.reset([ResetItem(program.program_id)])
        started = time.monotonic()
        for index in range(10):
            (result,) = await designer.step([StepItem(episode.episode_id, index, "-")])
            assert result.ok, result.error
        # Five at once and five more at five a second.
        assert time.monotonic() - started > 0.7
        await designer.close_episodes([episode.episode_id])


async def test_the_audit_log_says_who_did_what_and_holds_no_secret(
    shared: tuple[LocalServer, Path],
) -> None:
    server, log = shared
    secret = "# a secret of the program's author\n"
    async with client(server, "trainer") as trainer:
        program = await trainer.register_program(secret + COUNTER)
        (episode,) = await trainer.reset([ResetItem(program.program_id)])
        await trainer.step([StepItem(episode.episode_id, 0, "a secret action")])
        await trainer.verify([episode.episode_id])
        await trainer.close_episodes([episode.episode_id])
    async with AsyncSandboxClient(server.address, access=Access(token="wrong")) as stranger:
        with pytest.raises(UnauthenticatedError):
            await stranger.server_info()
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    mine = [line for line in lines if line.get("program") == program.program_id]
    assert [(line["event"], line["outcome"]) for line in mine] == [
        ("register", "COMPLETED"),
        ("reset", "COMPLETED"),
        ("end", "closed"),
    ]
    assert {line["tenant"] for line in mine} == {"trainer"}
    assert mine[1]["peer"]
    assert mine[1]["episode"] == mine[2]["episode"] == episode.episode_id[:8]
    assert ("verify", "REPRODUCED") in {(line["event"], line.get("outcome")) for line in lines}
    assert lines[-1]["event"] == "refused"
    for word in ("secret", episode.episode_id, *TOKENS.values(), "wrong"):
        assert word not in text
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_one_tenants_burst_does_not_hold_up_anothers_steps(tmp_path: Path) -> None:
    busy = COUNTER.replace(
        "        won = ",
        "        end = time.process_time() + 0.05\n"
        "        while time.process_time() < end: pass\n        won = ",
    )
    options = ["--tenants", str(tenants_file(tmp_path)), "--max-episodes", "400"]
    with LocalServer(backend="nsjail", options=options) as server:
        async with client(server, "trainer") as trainer, client(server, "designer") as designer:
            burst = await designer.register_program("import time\n" + busy)
            many = await designer.reset([ResetItem(burst.program_id, seed=i) for i in range(160)])
            program = await trainer.register_program(COUNTER)
            few = await trainer.reset([ResetItem(program.program_id, seed=i) for i in range(4)])
            # Some eight seconds of CPU time.
            work = asyncio.create_task(
                designer.step([StepItem(e.episode_id, 0, "-") for e in many])
            )
            await asyncio.sleep(0.2)
            started = time.monotonic()
            results = await trainer.step([StepItem(e.episode_id, 0, "-") for e in few])
            waited_s = time.monotonic() - started
            assert all(result.ok for result in results)
            assert not work.done()
            assert all(result.ok for result in await work)
            assert waited_s < (time.monotonic() - started) / 3


# -- where it listens --------------------------------------------------------------------


REFUSED = [
    (ServerConfig(address="0.0.0.0:0"), "--allow-unauthenticated"),
    (ServerConfig(address="[::]:0"), "--allow-unauthenticated"),
    (ServerConfig(address="sandbox.example:1"), "--tenants FILE"),
    (ServerConfig(address="0.0.0.0:0", tenants=(TenantConfig("a", "0" * 64),)), "in the clear"),
    (ServerConfig(tls_client_ca="x"), "need TLS"),
    (ServerConfig(tls_certificate="x"), "needs both"),
    (ServerConfig(tenants=(TenantConfig("a", certificate="a"),)), "--tls-client-ca"),
]


@pytest.mark.parametrize(("config", "told"), REFUSED, ids=range(len(REFUSED)))
def test_a_server_is_not_opened_by_accident(config: ServerConfig, told: str) -> None:
    with pytest.raises(AddressError, match=told):
        check_exposure(config)


@pytest.mark.parametrize(
    "config",
    [
        ServerConfig(address="127.0.0.1:0"),
        ServerConfig(address="[::1]:0"),
        ServerConfig(address="localhost:0"),
        ServerConfig(address="unix:/run/x"),
        ServerConfig(address="0.0.0.0:0", allow_unauthenticated=True),
    ],
    ids=lambda config: config.address,
)
def test_on_this_machine_or_when_said_anybody_is_let_in(config: ServerConfig) -> None:
    check_exposure(config)


def test_the_server_says_so_in_one_line_and_does_not_start() -> None:
    command = [sys.executable, "-m", "sandbox_server", "--address", "0.0.0.0:0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "--allow-unauthenticated" in done.stderr.splitlines()[-1]


def test_a_client_keeps_its_token_from_the_wire() -> None:
    with (
        SandboxClient("sandbox.example:1", access=Access(token="t")) as client,
        pytest.raises(InvalidRequestError, match="in the clear"),
    ):
        client.server_info()
    assert "secret" not in repr(Access(token="secret"))


def test_the_environment_says_who_a_client_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPADEWORK_TOKEN", "t\n")
    monkeypatch.setenv("SPADEWORK_TLS_CA", "/ca.pem")
    monkeypatch.setenv("SPADEWORK_ALLOW_PLAINTEXT", "1")
    expected = Access(token="t", ca_file="/ca.pem", allow_plaintext=True)
    assert Access.from_environment() == expected


# -- TLS ---------------------------------------------------------------------------------


class Certificates:
    """An authority, a server's certificate, and a client's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = self._write("ca.pem", self.authority.cert_pem)
        self.server = self.issue("server", "127.0.0.1")
        self.client = self.issue("client", "trainer.example", common_name="trainer.example")

    def issue(self, name: str, identity: str, common_name: str | None = None) -> tuple[str, str]:
        made = self.authority.issue_cert(identity, common_name=common_name)
        chain = self._write(f"{name}.pem", made.cert_chain_pems[0])
        return chain, self._write(f"{name}.key", made.private_key_pem)

    def _write(self, name: str, blob: trustme.Blob) -> str:
        path = self.folder / name
        blob.write_to_path(path)
        return str(path)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@contextlib.contextmanager
def serving(*options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "sandbox_server", "--backend", "process"]
    command += ["--address", "127.0.0.1:0", "--log-level", "error", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["address"]
        finally:
            server.terminate()


def info(address: str, access: Access) -> str:
    with SandboxClient(address, access=access, max_retries=0, timeout_margin_s=5) as client:
        return client.server_info().backend


def test_over_tls_a_client_checks_the_server(certificates: Certificates, tmp_path: Path) -> None:
    chain, key = certificates.server
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other")
    with serving("--tls-certificate", chain, "--tls-key", key) as address:
        assert info(address, Access(ca_file=certificates.ca)) == "process"
        with pytest.raises(UnavailableError):
            info(address, Access(ca_file=other.ca))
        with pytest.raises(UnavailableError):
            info(address, Access())


def test_a_key_that_is_not_the_certificates_is_named(certificates: Certificates) -> None:
    chain, key = certificates.server[0], certificates.client[1]
    command = [sys.executable, "-m", "sandbox_server", "--backend", "process"]
    command += ["--address", "127.0.0.1:0", "--tls-certificate", chain, "--tls-key", key]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert f"see whether {chain} and {key}" in done.stderr.splitlines()[-1]


def test_a_renewed_certificate_is_taken_up(certificates: Certificates, tmp_path: Path) -> None:
    chain, key = certificates.server
    with serving("--tls-certificate", chain, "--tls-key", key) as address:
        assert info(address, Access(ca_file=certificates.ca)) == "process"
        (tmp_path / "new").mkdir()
        new = Certificates(tmp_path / "new")
        for old, renewed in zip(certificates.server, new.server, strict=True):
            os.replace(renewed, old)
        assert info(address, Access(ca_file=new.ca)) == "process"


def test_over_mutual_tls_a_certificate_is_who_one_is(
    certificates: Certificates, tmp_path: Path
) -> None:
    chain, key = certificates.server
    file = tmp_path / "tenants.toml"
    file.write_text(
        '[tenant.trainer]\ncertificate = "trainer.example"\n'
        '[tenant.both]\ncertificate = "both.example"\n'
        f'token_sha256 = "{token_sha256("b" * 43)}"\n'
    )
    options = ["--tls-certificate", chain, "--tls-key", key]
    options += ["--tls-client-ca", certificates.ca, "--tenants", str(file)]

    def access(name: str, token: str = "") -> Access:
        mine, mine_key = certificates.issue(name, f"{name}.example")
        return Access(token, certificates.ca, mine, mine_key)

    with serving(*options) as address:
        assert info(address, access("trainer")) == "process"
        with pytest.raises(UnavailableError):
            info(address, Access(ca_file=certificates.ca))
        with pytest.raises(UnauthenticatedError):
            info(address, access("stranger"))
        with pytest.raises(UnauthenticatedError, match="also present its token"):
            info(address, access("both"))
        with pytest.raises(UnauthenticatedError, match="also show its client certificate"):
            info(address, access("trainer", "b" * 43))
        assert info(address, access("both", "b" * 43)) == "process"


def test_a_token_command_prints_the_token_and_what_the_server_needs() -> None:
    command = [sys.executable, "-m", "spadework", "token", "trainer"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    token = done.stdout.strip()
    assert len(token) >= 43
    assert done.stderr == f'[tenant.trainer]\ntoken_sha256 = "{token_sha256(token)}"\n'
