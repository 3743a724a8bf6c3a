"""Checks of what tells jails and episodes apart on the host: user ids and cgroups."""

from __future__ import annotations

import os

from sandbox_server.backends.ids import HOST_ID_BASE, ID_COUNT
from sandbox_server.doctor.check import Check, Host

_CGROUPS = "/sys/fs/cgroup"
_WANTED = ("memory", "pids", "cpu")


def user_ids(host: Host) -> Check:
    """Whether each episode can have a user id of its own."""
    if host.user != 0:
        return Check(
            "user ids",
            False,
            "all episodes of a jail share one; programs may not fork, and Fork is not to be had"
            + _subordinate(host),
            "run the server as root, to map a range of ids",
            required=False,
        )
    last = HOST_ID_BASE + ID_COUNT - 1
    for kind in ("uid", "gid"):
        ranges = [line.split() for line in host.text(f"/proc/self/{kind}_map").splitlines()]
        if ranges and not any(
            int(first) <= HOST_ID_BASE and last < int(first) + int(count)
            for first, _, count in ranges
        ):
            return Check(
                "user ids",
                False,
                f"this root is one of a user namespace that has no {kind}s from {HOST_ID_BASE} on",
                "run the server as the host's root, or as an ordinary user, whose episodes "
                "share one id",
            )
    return Check("user ids", True, f"one per episode, from {HOST_ID_BASE} on")


def _subordinate(host: Host) -> str:
    """What a user would have beside its own; nsjail is not asked to use it."""
    helper = any(host.exists(f"{folder}/newuidmap") for folder in ("/usr/bin", "/bin"))
    lines = len(host.text("/etc/subuid").splitlines())
    here = "is" if helper else "is not"
    return f" (newuidmap {here} here, /etc/subuid has {lines} ranges; neither is used)"


def cgroups(host: Host) -> Check:
    """Whether jails can be bounded as a whole, beside the limits of each episode."""
    name, without = "cgroups", "memory and processes are bounded per episode, not per jail"
    first = [c for c in _WANTED if host.exists(f"{_CGROUPS}/{c}/cgroup.procs")]
    if first:
        if host.user != 0:
            detail = f"version 1 ({', '.join(first)}), for root only: {without}"
            return Check(name, False, detail, "run the server as root", required=False)
        usable = [c for c in first if os.access(host.path(f"{_CGROUPS}/{c}"), os.W_OK)]
        missing = [c for c in ("memory", "pids") if c not in usable]
        if not missing:
            return Check(name, True, f"version 1: {', '.join(usable)}")
        return Check(
            name,
            False,
            f"version 1, without {' and '.join(missing)}: {without}",
            "; ".join(_mount(c) for c in missing)
            + "; in a container, /sys/fs/cgroup must be mounted writable",
            required=False,
        )
    if host.exists(f"{_CGROUPS}/cgroup.controllers"):
        return Check(
            name,
            False,
            f"version 2, {_delegation(host)}; the nsjail backend uses version 1: {without}",
            "serve with --backend docker, whose daemon bounds each jail in version 2; or bound "
            "the server as a whole: systemd-run -p MemoryMax=16G -p TasksMax=20000 "
            "-p Delegate=yes spadework serve; or boot with systemd.unified_cgroup_hierarchy=0",
            required=False,
        )
    return Check(
        name,
        False,
        f"none mounted: {without}",
        "; ".join(_mount(c) for c in ("memory", "pids")),
        required=False,
    )


def _mount(controller: str) -> str:
    folder = f"{_CGROUPS}/{controller}"
    return f"mkdir -p {folder} && mount -t cgroup -o {controller} cgroup {folder}"


def _delegation(host: Host) -> str:
    """Which controllers of version 2 this process has, and whether it may hand them on."""
    own = host.text("/proc/self/cgroup").rpartition("::")[2].splitlines()
    folder = f"{_CGROUPS}{own[0] if own else '/'}"
    controllers = host.text(f"{folder}/cgroup.controllers") or "none"
    writable = os.access(host.path(f"{folder}/cgroup.subtree_control"), os.W_OK)
    return f"{controllers} here, {'delegated' if writable else 'not delegated (Delegate=yes)'}"
