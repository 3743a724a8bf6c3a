"""The host ids of jails and episodes, and what a jail may have of the machine."""

from __future__ import annotations

import fcntl
import functools
import os

from sandbox_server import state
from sandbox_server.backends.base import BackendError

# Host ids of episodes start here: far from people's and system services' ids, and from
# the ranges that container engines hand out.
HOST_ID_BASE = 1_500_000_000
ID_COUNT = 65_536
# User ids have 32 bits, and the last two values are not to be had.
_RANGES = (2**32 - 2 - HOST_ID_BASE) // ID_COUNT
# Inside the jail; below are the zygote's own id and ids that programs might think special.
EPISODE_USERS = range(1_000, 60_000)


def maps_user_ids() -> bool:
    """Whether this process can map a range of ids, so that each episode gets its own."""
    return os.geteuid() == 0


class HostIds:
    """The host ids of one jail. While it lives no other jail of this machine has any of them.

    The kernel counts some of what a user holds (pipes, watches) by the host's id: what an
    episode of one jail uses up must not be missing in another, which may be another tenant's.

    Attributes:
        user: The first user id; of an ordinary user's server, its own.
        group: The same of groups.
        count: How many there are of each.
        users: Ids, as the jail sees them, that episodes get one each; empty where they
            share one.

    Raises:
        BackendError: If all are taken.
        StateFolderError: If there is no place to note which are.
    """

    def __init__(self) -> None:
        if not maps_user_ids():
            self.user, self.group, self.count = os.geteuid(), os.getegid(), 1
            self.users = range(0)
            self._range = -1
            return
        self._range = _claim()
        self.user = self.group = HOST_ID_BASE + self._range * ID_COUNT
        self.count, self.users = ID_COUNT, EPISODE_USERS

    def release(self) -> None:
        """The jail has ended: another may have its ids."""
        if self._range >= 0:
            fcntl.lockf(_ledger(), fcntl.LOCK_UN, 1, self._range)
            _claimed.discard(self._range)
            self._range = -1


def is_zygote(user: int) -> bool:
    """Whether a host user is that of a jail's zygote."""
    return user >= HOST_ID_BASE and (user - HOST_ID_BASE) % ID_COUNT == 0


def is_episode(user: int) -> bool:
    """Whether a host user is that of an episode."""
    return user >= HOST_ID_BASE and (user - HOST_ID_BASE) % ID_COUNT in EPISODE_USERS


# Ranges of this process's jails: its own locks do not keep it from taking them again.
_claimed: set[int] = set()


def _claim() -> int:
    """Lock the first free range: a byte of a file for each, freed by the kernel at our end."""
    ledger = _ledger()
    for number in range(_RANGES):
        if number not in _claimed:
            try:
                fcntl.lockf(ledger, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            except OSError:
                continue
            _claimed.add(number)
            return number
    raise BackendError("all ranges of user ids are in use; end some servers")


@functools.cache
def _ledger() -> int:
    """The file with the locks, open for good: closing it once would free them all."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    return os.open(state.common() / "user-ids.lock", flags, 0o600)


def most_of_the_memory() -> int:
    """Four fifths of the machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 4 // 5
