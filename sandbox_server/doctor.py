"""What a machine offers to the sandbox, and what to do where it lacks something."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox_server import probe, runtime
from sandbox_server.backends import BackendError
from sandbox_server.backends.ids import maps_user_ids
from sandbox_server.backends.nsjail import find_nsjail
from sandbox_server.cgroups import usable_controllers
from sandbox_server.config import ServerConfig
from sandbox_server.engine import Engine
from sandbox_server.worker import seccomp


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        detail: What was found.
        remedy: What to do where it failed; empty where it did not.
        required: Whether the default backend cannot serve without it.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    required: bool = True


def run_checks() -> list[Check]:
    """Look at this machine, and try every protection in a real jail. Takes seconds."""
    checks = [_kernel(), _machine(), _user_namespaces(), _nsjail(), _open_files()]
    checks += [_user_ids(), _cgroups(), _runtime()]
    if all(check.ok for check in checks if check.required):
        checks += asyncio.run(_jail())
    return checks


def _kernel() -> Check:
    release = platform.release()
    numbers = [int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit()]
    return Check(
        "kernel",
        numbers >= [5, 11],
        f"Linux {release}",
        "use a kernel of 5.11 or newer: close_range and the seccomp cache came with it",
    )


def _machine() -> Check:
    machine = platform.machine()
    try:
        seccomp.build(may_fork=False)
    except OSError:
        return Check("machine", False, machine, "use an x86_64 or aarch64 machine")
    return Check("machine", True, machine)


def _user_namespaces() -> Check:
    most = _sysctl("user/max_user_namespaces")
    if most == "0":
        remedy = "sysctl -w user.max_user_namespaces=10000"
        return Check("user namespaces", False, "none allowed", remedy)
    if os.geteuid() != 0:
        if _sysctl("kernel/unprivileged_userns_clone") == "0":
            remedy = "sysctl -w kernel.unprivileged_userns_clone=1"
            return Check("user namespaces", False, "for root only", remedy)
        if _sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
            remedy = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
            return Check("user namespaces", False, "restricted by AppArmor", remedy)
    return Check("user namespaces", True, f"at most {most or 'unknown'}")


def _sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""


def _nsjail() -> Check:
    try:
        binary = find_nsjail()
    except BackendError as error:
        return Check("nsjail", False, "not found", str(error))
    done = subprocess.run([binary, "--help"], capture_output=True, text=True, check=False)
    if "--config" in done.stdout + done.stderr:
        return Check("nsjail", True, binary)
    said = (done.stderr or done.stdout).strip().splitlines()
    return Check(
        "nsjail",
        False,
        f"{binary} does not run: {said[-1] if said else f'status {done.returncode}'}",
        "install the libraries it lacks; on Debian: apt-get install libnl-route-3-200 libstdc++6",
    )


def _open_files() -> Check:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * ServerConfig().max_episodes + 256
    ok = hard == resource.RLIM_INFINITY or hard >= needed or os.geteuid() == 0
    remedy = f"ulimit -Hn {needed}, or serve fewer episodes with --max-episodes"
    return Check("open files", ok, f"at most {hard}", remedy, required=False)


def _user_ids() -> Check:
    if maps_user_ids():
        return Check("user ids", True, "one per episode")
    return Check(
        "user ids",
        False,
        "all episodes of a jail share one; programs may not fork, and Fork is not to be had",
        "run the server as root, to map a range of ids",
        required=False,
    )


def _cgroups() -> Check:
    found = usable_controllers()
    if found:
        return Check("cgroups", True, f"version 1: {', '.join(found)}")
    return Check(
        "cgroups",
        False,
        "no controller to use; memory is bounded per episode, not per jail",
        "mount the version-1 memory and pids controllers, and run the server as root",
        required=False,
    )


def _runtime() -> Check:
    try:
        built = runtime.ensure("stdlib")
    except (runtime.RuntimeBuildError, OSError) as error:
        remedy = "free some disk, or name a folder to build in with SPADEWORK_CACHE"
        return Check("runtime", False, str(error), remedy)
    return Check("runtime", True, f"stdlib, Python {built.python_version}, in {built.root}")


async def _jail() -> list[Check]:
    """Start an engine, whose start tries every protection, and report on each."""
    engine = Engine(ServerConfig(), {"stdlib": runtime.ensure("stdlib")})
    try:
        await engine.start()
    except BackendError as error:
        return [Check("jail", False, str(error), "see the server's log above for its cause")]
    await engine.close()
    return [Check(name, True, "tried, and refused") for name in probe.ATTEMPTS]
