"""The host ids of jails and episodes, and what a jail may have of the machine."""

from __future__ import annotations

import os

# Host ids of episodes start here: far from people's and system services' ids, and from
# the ranges that container engines hand out.
HOST_ID_BASE = 1_500_000_000
ID_COUNT = 65_536
# Inside the jail; below are the zygote's own id and ids that programs might think special.
EPISODE_USERS = range(1_000, 60_000)


def maps_user_ids() -> bool:
    """Whether this process can map a range of ids, so that each episode gets its own."""
    return os.geteuid() == 0


def host_ids() -> tuple[int, int, int]:
    """Host user and group of a jail's first ids, and how many of each there are."""
    if maps_user_ids():
        return HOST_ID_BASE, HOST_ID_BASE, ID_COUNT
    return os.geteuid(), os.getegid(), 1


def episode_users() -> range:
    """Ids, as a jail sees them, that episodes get one each; empty where they share one."""
    return EPISODE_USERS if maps_user_ids() else range(0)


def most_of_the_memory() -> int:
    """Four fifths of the machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 4 // 5
