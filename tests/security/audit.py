"""What of an attack is left on the host: nothing must be.

The state of the host, as far as one server can change it, before an attack and after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from sandbox_server.backends.ids import is_episode
from tests.server.conftest import descendants
from tests.wire import Wire

# How long what was ended may take to be gone, and processors to fall idle.
_GONE_WITHIN_S = 10.0
_SETTLES_IN_S = 1.0
# An idle server wakes up for its sweeps; this share of one processor is more than that.
_IDLE_SHARE, _IDLE_WINDOW_S = 0.5, 0.08
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class LeftBehindError(AssertionError):
    """The host is not as it was; the message names each thing that came or went."""


@dataclass(frozen=True)
class HostState:
    """What there is of one server on its host, each thing by a name that a reader knows.

    Attributes:
        processes: Of the server and all below it, by pid, start and name.
        mounts: In the host's mount namespace.
        jail_mounts: How many mounts each mount namespace of its jails has.
        cgroups: Folders of control groups.
        descriptors: Of the server, by kind.
        files: In the folders that it writes to.
        episodes: As the server counts them.
        items: As the server counts what is in work.
    """

    processes: Counter[str]
    mounts: Counter[str]
    jail_mounts: Counter[str]
    cgroups: Counter[str]
    descriptors: Counter[str]
    files: Counter[str]
    episodes: Counter[str]
    items: Counter[str]

    def differences(self, before: HostState) -> list[str]:
        """What is here and was not, and the other way round."""
        found = []
        for kind in fields(self):
            now, then = getattr(self, kind.name), getattr(before, kind.name)
            found += [f"{kind.name}: {n} more of {what}" for what, n in (now - then).items()]
            found += [f"{kind.name}: {n} fewer of {what}" for what, n in (then - now).items()]
        return found


class Host:
    """The host of one server, looked at from outside.

    Args:
        server_pid: The server's process; 0 for a server elsewhere, of which only its own
            counts can be seen.
        jail_pids: Finds first processes of jails that are not below the server's.
        folders: Where it may keep files.
    """

    def __init__(
        self,
        server_pid: int,
        jail_pids: Callable[[int], list[int]] = lambda _: [],
        folders: tuple[Path, ...] = (),
    ) -> None:
        self._server_pid = server_pid
        self._jail_pids = jail_pids
        self._folders = folders

    def _pids(self) -> list[int]:
        tops = [self._server_pid, *self._jail_pids(self._server_pid)]
        return [pid for top in tops for pid in [top, *descendants(top)]]

    def episodes(self) -> list[int]:
        """Pids of the server's episodes."""
        found = []
        for pid in self._pids():
            with contextlib.suppress(OSError):
                if is_episode(os.stat(f"/proc/{pid}").st_uid):
                    found.append(pid)
        return found

    async def state(self, wire: Wire) -> HostState:
        load = await wire.load()
        episodes = Counter({"live episode": load.live_episodes})
        items = Counter({"item in work": load.pending_items})
        if not self._server_pid:
            nothing: Counter[str] = Counter()
            return HostState(*[nothing] * 6, episodes=episodes, items=items)
        pids = self._pids()
        return HostState(
            processes=Counter(name for pid in pids if (name := _process(pid))),
            mounts=_mounts(self._server_pid),
            jail_mounts=_jail_mounts(self._server_pid, pids),
            cgroups=_cgroups(self._server_pid),
            descriptors=_descriptors(self._server_pid),
            files=Counter(path for folder in self._folders for path in _below(folder)),
            episodes=episodes,
            items=items,
        )

    async def settled(self, wire: Wire) -> HostState:
        """The state once it stays as it is for a moment: what was ended takes time to go."""
        before = await self.state(wire)
        while True:
            await asyncio.sleep(_SETTLES_IN_S)
            now = await self.state(wire)
            if not now.differences(before):
                return now
            before = now

    async def nothing_left(self, wire: Wire, before: HostState) -> None:
        """Wait until the host is as it was, and its processors are idle.

        Raises:
            LeftBehindError: If that takes too long.
        """
        deadline = time.monotonic() + _GONE_WITHIN_S
        while found := (await self.state(wire)).differences(before):
            if time.monotonic() > deadline:
                raise LeftBehindError("left behind:\n  " + "\n  ".join(found))
            await asyncio.sleep(0.02)
        while self._server_pid and (share := await self._busy_share()) > _IDLE_SHARE:
            if time.monotonic() > deadline:
                raise LeftBehindError(f"{share:.0%} of a processor is in use by an idle server")

    async def _busy_share(self) -> float:
        """The part of one processor that the server and all below it use now."""
        before = self._cpu_s()
        started = time.monotonic()
        await asyncio.sleep(_IDLE_WINDOW_S)
        return (self._cpu_s() - before) / (time.monotonic() - started)

    def _cpu_s(self) -> float:
        ticks = 0
        for pid in self._pids():
            words = _stat(pid)
            ticks += sum(int(word) for word in words[11:13]) if words else 0
        return ticks / _TICKS_PER_S

    @property
    def memory_bytes(self) -> int:
        """Resident memory of the server itself."""
        words = Path(f"/proc/{self._server_pid}/statm").read_text().split()
        return int(words[1]) * os.sysconf("SC_PAGE_SIZE")


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty where the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _process(pid: int) -> str:
    words = _stat(pid)
    if not words:
        return ""
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        return f"process {pid} ({name}, user {os.stat(f'/proc/{pid}').st_uid}, at {words[19]})"
    return ""


def _mounts(pid: int) -> Counter[str]:
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    # Without ids, which change; and without those that a container engine makes for others.
    return Counter(
        f"{line.split()[4]} ({line.partition(' - ')[2]})" for line in lines if "docker" not in line
    )


def _jail_mounts(server_pid: int, pids: list[int]) -> Counter[str]:
    found: Counter[str] = Counter({os.readlink(f"/proc/{server_pid}/ns/mnt"): 0})
    for pid in pids:
        with contextlib.suppress(OSError):
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")
            if namespace not in found:
                found[namespace] = len(Path(f"/proc/{pid}/mountinfo").read_bytes().splitlines())
    return found


def _cgroups(pid: int) -> Counter[str]:
    trees = Path("/sys/fs/cgroup").glob(f"*/spadework/{pid}-*")
    return Counter(root for tree in trees for root, _, _ in os.walk(tree))


def _below(folder: Path) -> Iterator[str]:
    """Everything in a folder; what goes while it is looked at is left out, as by `os.walk`."""
    for root, folders, files in os.walk(folder):
        yield from (os.path.join(root, name) for name in (*folders, *files))


def _descriptors(pid: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found[os.readlink(entry).partition(":[")[0]] += 1
    return found
