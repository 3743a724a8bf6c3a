"""The `docker` backend: the same zygote in a hardened container.

The engine gives the container's namespaces, limits and system call profile; the zygote then
builds its own jail inside (worker/container.py), so that episodes are locked down as in an
nsjail jail.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from sandbox_server import owner
from sandbox_server.backends import docker_image
from sandbox_server.backends.base import (
    Backend,
    BackendError,
    JailProcess,
    control_pair,
    environment,
)
from sandbox_server.backends.docker_container import SOCKET, Container
from sandbox_server.backends.ids import (
    HostIds,
    maps_user_ids,
    most_of_the_memory,
)
from sandbox_server.cache import worker_folder
from sandbox_server.config import ServerConfig
from sandbox_server.runtime import LIBRARY_PATH, PYTHON, WORKER, Runtime

_log = logging.getLogger(__name__)

OWNER_LABEL = "spadework.owner"

# A zygote's own; each episode gets lower ones.
_OPEN_FILES = 8_192
_STACK_BYTES = 8 * 1024 * 1024
# The engine counts CPU time in billionths of one CPU.
_NANO_CPUS = 1_000_000_000
# What the engine calls a weight of 100, which is everybody's unless told.
_CPU_SHARES, _CPU_WEIGHT = 1_024, 100
# Of each runtime: one plays, one replays.
_JAILS = 2


def connect() -> Any:
    """A client of the Docker daemon that $DOCKER_HOST names, or of this machine's.

    Raises:
        BackendError: If the SDK is missing, or no daemon answers.
    """
    try:
        import docker
        import docker.errors
    except ImportError:
        raise BackendError(
            "the docker backend needs the Docker SDK: pip install 'spadework[docker]'"
        ) from None
    try:
        return docker.from_env()
    except docker.errors.DockerException as error:
        raise BackendError(
            f"no Docker daemon answers ({error}): start one (scripts/start_docker.sh starts "
            "Debian's), let this user in (group docker), or name its socket in DOCKER_HOST"
        ) from None


@contextlib.contextmanager
def _session() -> Iterator[Any]:
    """A client for a few calls.

    Raises:
        BackendError: If the daemon does not answer them.
    """
    client = connect()
    import docker.errors
    import requests

    try:
        yield client
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise BackendError(f"the Docker daemon refused a call: {error}") from None
    finally:
        client.close()


class DockerBackend(Backend):
    """Jails in containers of a Docker daemon on this machine."""

    name = "docker"

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config)
        with _session() as client:
            self._engine: dict[str, Any] = client.info()
        self._check_engine()

    def reap_dead(self) -> None:
        with _session() as client:
            _reap(client)
            docker_image.tidy(client)

    def _check_engine(self) -> None:
        options = self._options()
        if "rootless" in options:
            raise BackendError(
                "this Docker daemon runs without root, in a user namespace of its own, where "
                "the server can map no ids: use a daemon that runs as root, or --backend nsjail"
            )
        if "seccomp" not in options:
            raise BackendError(
                "this Docker daemon or its kernel has no seccomp, so no system call would be "
                "refused: use one that has it, or --backend nsjail"
            )
        runtimes = sorted(self._engine["Runtimes"])
        wanted = self.config.docker_runtime
        if wanted and wanted not in runtimes:
            raise BackendError(
                f"this Docker daemon has no runtime {wanted!r}, only {', '.join(runtimes)}: "
                "install it and name it in /etc/docker/daemon.json under `runtimes`"
            )

    def _options(self) -> set[str]:
        """Names of the daemon's security features."""
        return {
            field.removeprefix("name=")
            for option in self._engine.get("SecurityOptions") or ()
            for field in option.split(",")
            if field.startswith("name=")
        }

    def isolation(self) -> dict[str, str]:
        limits = {"MemoryLimit": "memory", "PidsLimit": "pids", "CpuCfsQuota": "CPU"}
        in_force = [name for key, name in limits.items() if self._engine.get(key)]
        own = maps_user_ids()
        return {
            "container": self.config.docker_runtime or self._engine.get("DefaultRuntime", ""),
            "namespaces": "mount, pid, net, ipc, uts (docker); user and mount again (zygote)",
            "file system": "read-only runtime, no /proc, private tmpfs per episode",
            "network": "none; no socket can be made",
            "system calls": "allowlist per episode and per container (seccomp)",
            "capabilities": "none in the container; five of the zygote's own user namespace",
            "AppArmor": (
                "off for the container: its default profile forbids the mounts that lock "
                "episodes down"
                if "apparmor" in self._options()
                else "not there"
            ),
            "user": "own id per episode" if own else "one id for all episodes of a jail",
            "limits": "rlimits and tmpfs size per episode",
            "cgroup": f"{', '.join(in_force)} per container" if in_force else "none",
        }

    def start(self, runtime: Runtime, hash_seed: int) -> JailProcess:
        with contextlib.ExitStack() as undo:
            ids = HostIds()
            undo.callback(ids.release)
            ours, theirs = control_pair()
            for end in (ours, theirs):
                undo.callback(end.close)

            def create(client: Any, folder: Path) -> Any:
                return self._create(client, folder, runtime, hash_seed, ids)

            container = Container(connect, create, theirs, ids)
            undo.pop_all()
        return JailProcess(container, ours, ids.users, at_end=ids.release)

    def _create(
        self, client: Any, folder: Path, runtime: Runtime, hash_seed: int, ids: HostIds
    ) -> Any:
        from docker.types import LogConfig, Ulimit

        variables = environment(runtime, hash_seed)
        variables |= {"PYTHONPATH": WORKER, "LD_LIBRARY_PATH": LIBRARY_PATH}
        memory_bytes = self._memory_bytes()
        limits: dict[str, Any] = {}
        if self._engine.get("CpuCfsQuota"):
            cpus = self.config.jail_cpus or os.cpu_count() or 1
            limits["nano_cpus"] = round(cpus * _NANO_CPUS)
        if self.config.tenant:
            limits["cpu_shares"] = max(2, self.config.cpu_weight * _CPU_SHARES // _CPU_WEIGHT)
        return client.containers.create(
            docker_image.ensure(client),
            [
                *(PYTHON, "-s", "-m", "worker.container", f"{docker_image.CONTROL}/{SOCKET}"),
                *("spadework_env", *runtime.warm_modules),
            ],
            labels={OWNER_LABEL: owner.name()},
            runtime=self.config.docker_runtime or None,
            # The engine removes it even where its server was killed.
            auto_remove=True,
            hostname="jail",
            environment=variables,
            working_dir="/",
            user=f"{ids.user}:{ids.group}",
            # The ids above are the host's, whatever the daemon does for other containers.
            userns_mode="host",
            mounts=_mounts(runtime, folder),
            read_only=True,
            network_mode="none",
            # Without the segment for shared memory, which no limit of an episode counts.
            ipc_mode="none",
            cap_drop=["ALL"],
            security_opt=self._security_options(),
            mem_limit=memory_bytes,
            # The same again: no swap.
            memswap_limit=memory_bytes,
            # Two a live episode: the process itself, and room for those that may fork.
            pids_limit=2 * self.config.max_episodes + 64,
            ulimits=[
                Ulimit(name="nofile", soft=_OPEN_FILES, hard=_OPEN_FILES),
                Ulimit(name="stack", soft=_STACK_BYTES, hard=_STACK_BYTES),
                Ulimit(name="core", soft=0, hard=0),
            ],
            # The zygote is given the server's own standard error; the engine keeps nothing.
            log_config=LogConfig(type="none"),
            **limits,
        )

    def _memory_bytes(self) -> int:
        """Of one container. A tenant's is divided evenly: no group holds all its containers."""
        config = self.config
        of_jail = config.jail_memory_bytes or most_of_the_memory()
        if not config.tenant_memory_bytes:
            return of_jail
        return min(of_jail, config.tenant_memory_bytes // (_JAILS * len(config.runtimes)))

    def _security_options(self) -> list[str]:
        profile = resources.files("sandbox_server") / "policy" / "docker-seccomp.json"
        options = ["no-new-privileges:true", f"seccomp={profile.read_text()}"]
        if "apparmor" in self._options():
            options.append("apparmor=unconfined")
        return options


def _mounts(runtime: Runtime, folder: Path) -> list[Any]:
    from docker.types import Mount

    sources = {
        docker_image.RUNTIME: runtime.root,
        WORKER: worker_folder(),
        docker_image.CONTROL: folder,
    }
    return [
        Mount(target, str(source), type="bind", read_only=True)
        for target, source in sources.items()
    ]


def _reap(client: Any) -> None:
    """Remove the containers that a killed server left before they could end with it."""
    import docker.errors

    for container in client.containers.list(
        all=True, filters={"label": OWNER_LABEL}, ignore_removed=True
    ):
        if owner.is_dead(container.labels[OWNER_LABEL]):
            _log.info("removing container %s of a server that was killed", container.short_id)
            with contextlib.suppress(docker.errors.APIError):
                container.remove(force=True)
