"""Checks of how much there is: descriptors, processes, memory, disk."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil

from sandbox_server import cache
from sandbox_server.doctor.check import Check, Host

# What the server itself needs, beside two descriptors an episode.
_OWN_FILES = 256
# The server's threads, jails and zygotes, beside one process an episode.
_OWN_PROCESSES = 256
# An episode of the `stdlib` runtime that holds next to nothing.
_EPISODE_BYTES = 1_500_000
# The `stdlib` runtime takes 60 MB, one with NumPy and its friends 400.
_CACHE_BYTES = 100_000_000

_CAP_SYS_RESOURCE = 24
_MIB = 1024 * 1024


def open_files_needed(max_episodes: int) -> int:
    """Each episode costs a descriptor or two."""
    return 2 * max_episodes + _OWN_FILES


def raise_open_files(max_episodes: int) -> None:
    """Raise this process's limit to what it needs, or as far as that goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = open_files_needed(max_episodes)
    if soft >= needed and soft != resource.RLIM_INFINITY:
        return
    for most in ((needed, max(hard, needed)), (min(needed, hard), hard)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
            return
        except (ValueError, OSError):
            continue


def _may_raise_limits(host: Host) -> bool:
    """Whether this process has CAP_SYS_RESOURCE, which a container's root does not."""
    words = host.text("/proc/self/status").split()
    if "CapEff:" not in words:
        return host.user == 0
    return bool(int(words[words.index("CapEff:") + 1], 16) >> _CAP_SYS_RESOURCE & 1)


def open_files(host: Host, max_episodes: int) -> Check:
    """Whether the limit is there, or can be raised to it."""
    needed = open_files_needed(max_episodes)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = host.number("/proc/sys/fs/nr_open") or 1_048_576
    bound = most if _may_raise_limits(host) or hard == resource.RLIM_INFINITY else min(hard, most)
    fewer = f"serve fewer: --max-episodes {max(0, (bound - _OWN_FILES) // 2)}"
    if bound < needed:
        remedy = (
            f"sysctl -w fs.nr_open={needed}"
            if bound == most
            else f"ulimit -Hn {needed} as root before the start (systemd: LimitNOFILE={needed})"
        )
        return Check(
            "open files",
            False,
            f"{max_episodes} episodes need {needed} open files, and the limit is {bound}",
            f"{remedy}, or {fewer}",
        )
    return Check("open files", True, f"{bound} at most, {needed} needed")


def processes(host: Host, max_episodes: int) -> Check:
    """The smallest of all bounds on processes; an episode is one."""
    needed = max_episodes + _OWN_PROCESSES
    _, own = resource.getrlimit(resource.RLIMIT_NPROC)
    bounds = {
        f"sysctl -w kernel.pid_max={2 * needed}": host.number("/proc/sys/kernel/pid_max"),
        f"sysctl -w kernel.threads-max={2 * needed}": host.number("/proc/sys/kernel/threads-max"),
        f"raise the bound of this service or container: systemd TasksMax={2 * needed}, docker run "
        f"--pids-limit {2 * needed}": _cgroup_pids(host),
    }
    if host.user != 0 and own != resource.RLIM_INFINITY:
        # Root's episodes have an id each, and a count of their own.
        bounds[f"ulimit -Hu {2 * needed} as root (systemd: LimitNPROC={2 * needed})"] = own
    known = {remedy: bound for remedy, bound in bounds.items() if bound is not None}
    low = {remedy: bound for remedy, bound in known.items() if bound < needed}
    if not low:
        return Check(
            "processes", True, f"{min(known.values(), default=0)} at most, {needed} needed"
        )
    least = min(low.values())
    return Check(
        "processes",
        False,
        f"{max_episodes} episodes need {needed} processes, and the bound is {least}",
        "; ".join(low) + f"; or serve fewer: --max-episodes {max(0, least - _OWN_PROCESSES)}",
        # Clients are told to wait when the kernel has no room: nothing else comes of it.
        required=False,
    )


def _cgroup_pids(host: Host) -> int | None:
    """The bound of this process's cgroup, in either version."""
    for line in host.text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "pids":
            return host.number(f"/sys/fs/cgroup/pids{path}/pids.max")
        if not controllers and (bound := host.number(f"/sys/fs/cgroup{path}/pids.max")):
            return bound
    return None


def memory(host: Host, max_episodes: int) -> Check:
    """Whether as many episodes as may live have room if they hold next to nothing."""
    words = host.text("/proc/meminfo").split()
    if "MemAvailable:" not in words:
        return Check("memory", True, "unknown")
    free = int(words[words.index("MemAvailable:") + 1]) * 1024
    needed = max_episodes * _EPISODE_BYTES
    return Check(
        "memory",
        free >= needed,
        f"{free // _MIB} MiB free; {max_episodes} idle episodes take {needed // _MIB}",
        f"free some, or serve fewer: --max-episodes {free // _EPISODE_BYTES}",
        required=False,
    )


def disk(host: Host) -> Check:
    """Whether runtimes can be built, and the folder that jails run from is nobody else's."""
    name, elsewhere = "cache folder", "or name another folder in SPADEWORK_CACHE"
    folder = there = host.path(str(cache.cache_folder()))
    with contextlib.suppress(PermissionError):
        while not there.exists():
            there = there.parent
    writable = os.access(there, os.W_OK | os.X_OK)
    if there == folder and os.access(there, os.R_OK | os.X_OK):
        found = there.stat()
        if found.st_mode & 0o022 or found.st_uid not in (0, host.user):
            return Check(
                name,
                False,
                f"others can write {there}, and what is in it runs in every jail",
                f"chmod go-w {there} && chown {host.user} {there}, {elsewhere}",
            )
        if not writable:
            return Check(name, True, f"{folder}, read-only: what was built in it is used")
    if not writable:
        owner = f"chown {host.user} {there}"
        return Check(name, False, f"{there} cannot be written", f"{owner}, {elsewhere}")
    free = shutil.disk_usage(there).free
    return Check(
        name,
        free >= _CACHE_BYTES,
        f"{folder}, {free // _MIB} MiB free",
        f"free {_CACHE_BYTES // _MIB} MiB: df -h {there}; {elsewhere}",
    )
