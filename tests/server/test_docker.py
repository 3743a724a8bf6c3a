"""What the docker backend asks of its engine, and what it does where it does not get it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from sandbox_api import ResetItem, SandboxClient, StepItem

from sandbox_server import LocalServer, owner, runtime
from sandbox_server.backends import BackendError, docker, docker_container, docker_image
from sandbox_server.backends.ids import is_zygote
from sandbox_server.config import ServerConfig
from sandbox_server.engine import Engine
from sandbox_server.worker import container as inside
from sandbox_server.worker import syscalls
from tests.server.as_nobody import NOBODY
from tests.server.conftest import COUNTER

ENGINE = {
    "Runtimes": {"runc": {}},
    "DefaultRuntime": "runc",
    "SecurityOptions": ["name=seccomp,profile=default"],
}


@pytest.fixture
def client() -> Iterator[Any]:
    with contextlib.closing(docker.connect()) as client:
        yield client


@pytest.fixture
def engine_says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have the backend meet an engine that says this of itself."""

    class Client:
        def info(self) -> dict[str, Any]:
            return said

        def close(self) -> None:
            pass

    said = dict(ENGINE)

    def say(**about: Any) -> None:
        said.update(about)
        monkeypatch.setattr(docker, "connect", Client)

    return say


def ours(client: Any) -> dict[str, Any]:
    """Containers of the backend, by their owner."""
    found = client.containers.list(
        all=True, filters={"label": docker.OWNER_LABEL}, ignore_removed=True
    )
    return {container.labels[docker.OWNER_LABEL]: container for container in found}


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_without_a_daemon_the_server_does_not_start_and_says_what_to_do() -> None:
    # As a process of its own: the SDK leaves a socket open where nobody answers.
    command = [sys.executable, "-m", "sandbox_server", "--backend", "docker", "--address", "unix:"]
    environment = {**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no Docker daemon answers" in done.stderr
    assert "scripts/start_docker.sh" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(BackendError, match=r"pip install 'spadework\[docker\]'"):
        docker.DockerBackend(ServerConfig())


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"SecurityOptions": []}, "no seccomp"),
        ({"SecurityOptions": ["name=seccomp", "name=rootless"]}, "runs without root"),
    ],
)
def test_an_engine_without_a_protection_is_refused(
    engine_says: Callable[..., None], about: dict[str, Any], told: str
) -> None:
    engine_says(**about)
    with pytest.raises(BackendError, match=told):
        docker.DockerBackend(ServerConfig())


def test_a_runtime_that_the_engine_lacks_is_refused(engine_says: Callable[..., None]) -> None:
    engine_says()
    with pytest.raises(BackendError, match="no runtime 'runsc', only runc: install it"):
        docker.DockerBackend(ServerConfig(docker_runtime="runsc"))


def test_where_apparmor_forbids_mounts_it_is_off_and_the_server_says_so(
    engine_says: Callable[..., None],
) -> None:
    engine_says()
    assert "apparmor=unconfined" not in docker.DockerBackend(ServerConfig())._security_options()
    engine_says(SecurityOptions=["name=apparmor", "name=seccomp,profile=default"])
    backend = docker.DockerBackend(ServerConfig())
    assert "apparmor=unconfined" in backend._security_options()
    assert backend.isolation()["AppArmor"].startswith("off")


def test_only_limits_that_the_engine_has_are_promised(engine_says: Callable[..., None]) -> None:
    engine_says(MemoryLimit=True, PidsLimit=False)
    assert docker.DockerBackend(ServerConfig()).isolation()["cgroup"] == "memory per container"


def test_a_tenants_memory_is_divided_among_its_containers(
    engine_says: Callable[..., None],
) -> None:
    engine_says()
    config = ServerConfig(jail_memory_bytes=1 << 30, runtimes=("stdlib", "library"))
    assert docker.DockerBackend(config)._memory_bytes() == 1 << 30
    config = replace(config, tenant="alice", tenant_memory_bytes=2 << 30)
    assert docker.DockerBackend(config)._memory_bytes() == 512 << 20


@pytest.mark.parametrize("profile", ["policy", "deploy"])
def test_a_profile_allows_what_episodes_need_and_nothing_that_gets_out(profile: str) -> None:
    file: Any = resources.files("sandbox_server") / "policy" / "docker-seccomp.json"
    if profile == "deploy":
        file = Path(__file__).resolve().parents[2] / "deploy" / "seccomp.json"
    rules = json.loads(file.read_text())
    assert rules["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed = {n for r in rules["syscalls"] if r["action"] == "SCMP_ACT_ALLOW" for n in r["names"]}
    assert allowed >= set(syscalls.ALLOWED) | set(syscalls.CONDITIONAL) - {"clone3"}
    assert not allowed & set(
        "ptrace process_vm_readv process_vm_writev bpf perf_event_open userfaultfd keyctl add_key "
        "request_key io_uring_setup io_uring_enter kexec_load kexec_file_load init_module "
        "finit_module delete_module setns open_by_handle_at reboot swapon syslog acct quotactl "
        "personality iopl ioperm fsopen fsmount move_mount open_tree clone3".split()
    )


@pytest.mark.docker
def test_a_container_is_hardened(client: Any) -> None:
    with LocalServer(backend="docker") as server:
        container = ours(client)[owner.name(server.process.pid)]
        settings = client.api.inspect_container(container.id)
        init = settings["State"]["Pid"]
        status = dict(
            line.split(":\t") for line in Path(f"/proc/{init}/status").read_text().splitlines()
        )
        mounts = [m.split()[4] for m in Path(f"/proc/{init}/mountinfo").read_text().splitlines()]
    host = settings["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert not host["Privileged"]
    assert host["NetworkMode"] == "none"
    assert host["IpcMode"] == "none"
    assert host["Memory"] == host["MemorySwap"] > 0
    assert host["NanoCpus"] > 0
    assert host["PidsLimit"] == 2 * 6_000 + 64
    assert host["AutoRemove"]
    assert host["LogConfig"]["Type"] == "none"
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert all(not mount["RW"] for mount in settings["Mounts"])
    # No root, of the host or of the container, and only what it needs in its own namespace.
    (user,) = {int(user) for user in status["Uid"].split()}
    assert is_zygote(user)
    assert int(status["CapBnd"], 16) == sum(1 << number for number in inside._KEPT)
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    # What the engine mounts (/proc, /sys, /etc/hosts) is gone.
    assert sorted(mounts) == sorted(
        ["/", "/spadework", "/tmp", "/dev/null", "/dev/zero", "/dev/urandom"]
    )


@pytest.mark.docker
def test_a_server_leaves_no_container_and_no_folder_behind(client: Any) -> None:
    with LocalServer(backend="docker") as server:
        mine = owner.name(server.process.pid)
        assert mine in ours(client)
        assert not list(Path("/run/spadework", mine).glob("jail-*"))
    assert mine not in ours(client)


@pytest.mark.docker
def test_a_killed_servers_containers_end_with_it(client: Any) -> None:
    with LocalServer(backend="docker") as server:
        mine = owner.name(server.process.pid)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        assert within(20, lambda: mine not in ours(client))


@pytest.mark.docker
def test_the_next_server_removes_containers_whose_server_is_dead(client: Any) -> None:
    with subprocess.Popen(["sleep", "60"]) as gone:
        dead = owner.name(gone.pid)
        gone.kill()
    backend = docker.DockerBackend(ServerConfig(backend="docker"))
    image = docker_image.ensure(client)
    left = [
        client.containers.create(image, "x", labels={docker.OWNER_LABEL: name})
        for name in (dead, owner.name())
    ]
    try:
        backend.reap_dead()
        assert dead not in ours(client)
        assert owner.name() in ours(client)
    finally:
        left[1].remove(force=True)


@pytest.mark.docker
def test_images_of_other_versions_are_removed(client: Any) -> None:
    client.api.import_image_from_data(
        docker_image._archive(),
        repository=docker_image.REPOSITORY,
        tag="of-another-version",
        changes=[f"LABEL {docker_image.LABEL}=jail"],
    )
    docker.DockerBackend(ServerConfig(backend="docker")).reap_dead()
    tags = [tag for image in client.images.list() for tag in image.tags]
    assert f"{docker_image.REPOSITORY}:of-another-version" not in tags
    assert docker_image.ensure(client) == docker_image.name()


@pytest.mark.docker
async def test_a_runtime_of_the_engine_and_parts_of_the_machine_can_be_picked(
    client: Any,
) -> None:
    config = ServerConfig(
        backend="docker",
        docker_runtime="io.containerd.runc.v2",
        jail_cpus=0.5,
        tenant="alice",
        tenant_memory_bytes=1 << 30,
        cpu_weight=300,
    )
    engine = Engine(config, {"stdlib": runtime.ensure("stdlib")})
    await engine.start()
    try:
        settings = client.api.inspect_container(ours(client)[owner.name()].id)
        assert settings["HostConfig"]["Runtime"] == "io.containerd.runc.v2"
        assert settings["HostConfig"]["NanoCpus"] == 500_000_000
        assert settings["HostConfig"]["CpuShares"] == 3 * 1_024
        assert settings["HostConfig"]["Memory"] == 1 << 29
        assert engine.info().isolation["container"] == "io.containerd.runc.v2"
    finally:
        await engine.close()
    assert await asyncio.to_thread(within, 20, lambda: owner.name() not in ours(client))


@pytest.mark.docker
async def test_a_jail_that_cannot_be_built_stops_the_start(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an engine whose profile, whatever it is called, forbids the mounts."""
    monkeypatch.setattr(
        docker.DockerBackend, "_security_options", lambda self: ["no-new-privileges:true"]
    )
    engine = Engine(ServerConfig(backend="docker"), {"stdlib": runtime.ensure("stdlib")})
    with pytest.raises(BackendError, match="could not build its jail") as refused:
        await engine.start()
    assert "spadework doctor" in str(refused.value)
    assert await asyncio.to_thread(within, 20, lambda: owner.name() not in ours(client))


@pytest.mark.docker
async def test_nobody_but_the_zygote_is_taken_for_it(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = docker_container._listen
    intruders = []

    def listen_and_let_in(listener: socket.socket, folder: Path, ids: Any) -> None:
        listen(listener, folder, ids)
        intruder = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        intruder.connect(str(folder / docker_container.SOCKET))
        intruders.append(intruder)

    monkeypatch.setattr(docker_container, "_listen", listen_and_let_in)
    engine = Engine(ServerConfig(backend="docker"), {"stdlib": runtime.ensure("stdlib")})
    with pytest.raises(BackendError, match="connected in place of the zygote"):
        await engine.start()
    for intruder in intruders:
        # It was told nothing, and given no descriptor.
        with contextlib.suppress(ConnectionResetError):
            assert intruder.recv(100) == b""
        intruder.close()


@pytest.mark.docker
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_who_may_use_the_engine_can_run_a_server() -> None:
    home = Path(tempfile.mkdtemp(prefix="spadework-nobody-"))
    os.chown(home, NOBODY, NOBODY)
    variables = {**os.environ, "HOME": str(home), "TMPDIR": str(home)}
    variables["SPADEWORK_CACHE"] = str(home / "cache")
    variables["AS_NOBODY_GROUP"] = str(os.stat("/var/run/docker.sock").st_gid)
    variables.pop("XDG_RUNTIME_DIR", None)
    launcher = Path(__file__).with_name("as_nobody.py")
    command = [sys.executable, str(launcher), "sandbox_server", "--backend", "docker"]
    command += ["--address", "127.0.0.1:0", "--max-episodes", "200", "--exit-with-stdin"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            with SandboxClient(json.loads(server.stdout.readline())["address"]) as client:
                program = client.register_program(COUNTER)
                (episode,) = client.reset([ResetItem(program.program_id, seed=1)])
                (result,) = client.step([StepItem(episode.episode_id, 0, "+")])
                isolation = client.server_info().isolation
                client.close_episodes([episode.episode_id])
            assert result.observation == "at 1"
            assert isolation["user"] == "one id for all episodes of a jail"
        finally:
            server.stdin.close()
            server.wait(timeout=60)
            shutil.rmtree(home)
