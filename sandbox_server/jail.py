"""One running jail: its zygote's control socket, and the channels of its episodes."""

from __future__ import annotations

import array
import asyncio
import functools
import itertools
import json
import logging
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import copying, host_process
from sandbox_server.backends import Backend, BackendError
from sandbox_server.channel import Channel
from sandbox_server.config import ServerConfig
from sandbox_server.copying import Copy
from sandbox_server.cpu_meter import CpuWatch
from sandbox_server.endpoint import Answer
from sandbox_server.episode_channel import EpisodeChannel
from sandbox_server.failures import Lost, ProcessEnd
from sandbox_server.family import Family
from sandbox_server.poller import Poller
from sandbox_server.runtime import Runtime

_log = logging.getLogger(__name__)

_READY_TIMEOUT_S = 60.0

Kind = TypeVar("Kind", bound=Channel)


class JailDeadError(Exception):
    """The jail cannot give the process it was asked for; the message says why."""


class JailFullError(Exception):
    """There is no room for another process; nothing was started."""


@functools.lru_cache(maxsize=1024)
def _limits_for_worker(serialized: bytes) -> dict[str, Any]:
    """The limits as the worker reads them: every field, by name."""
    limits = pb.Limits.FromString(serialized)
    return {field.name: getattr(limits, field.name) for field in pb.Limits.DESCRIPTOR.fields}


class Jail:
    """A jail in service.

    Args:
        on_dead: Called once when the jail ends without being asked to.
    """

    def __init__(
        self,
        backend: Backend,
        runtime: Runtime,
        hash_seed: int,
        config: ServerConfig,
        cpu: CpuWatch,
        poller: Poller,
        loop: asyncio.AbstractEventLoop,
        on_dead: Callable[[Jail], None],
    ) -> None:
        self.runtime = runtime
        self.hash_seed = hash_seed
        self.dead = False
        self._config = config
        self._cpu = cpu
        self._poller = poller
        self._loop = loop
        self._on_dead = on_dead
        self._keys = itertools.count(1)
        self._channels: dict[int, Channel] = {}
        self._copies: dict[int, Channel] = {}
        self._queue: deque[tuple[Channel, socket.socket, pb.Limits]] = deque()
        self._spawning: set[int] = set()
        self._outbox: deque[tuple[bytes, socket.socket | None]] = deque()
        self._address_space_bytes = 0
        self._memory_kills: host_process.MemoryKills | None = None
        self._closed = False
        self._ready: asyncio.Future[None] = loop.create_future()
        self._heard_at = loop.time()
        self._process = backend.start(runtime, hash_seed)
        self._free_users = deque(self._process.users)
        self._maps_users = bool(self._process.users)
        self._control = self._process.control
        poller.add(self._control.fileno(), self._on_control)

    @property
    def queued(self) -> int:
        """Processes asked for that are not there yet."""
        return len(self._queue) + len(self._spawning)

    @property
    def may_fork(self) -> bool:
        """Whether an episode's processes can be counted, and so be allowed at all.

        Where nothing is isolated, nothing is promised about them.
        """
        return self._maps_users or not self._process.isolated

    async def ready(self) -> None:
        """Wait for the zygote.

        Raises:
            BackendError: If it does not come up.
        """
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), _READY_TIMEOUT_S)
        except TimeoutError:
            self._die(f"it was not ready within {_READY_TIMEOUT_S:g} s")
            # Says so, and that nothing came of it.
            await self._ready

    # -- episodes ----------------------------------------------------------------------

    async def spawn(
        self, limits: pb.Limits, on_end: Callable[[Kind], None], kind: type[Kind]
    ) -> Kind:
        """Fork one locked-down process, of one episode or of a group.

        Args:
            limits: Those of the process.
            on_end: Called once when it is gone.
            kind: What its channel is to be.

        Returns:
            Its channel, once the process exists.

        Raises:
            JailDeadError: If the jail ends first, or the process could not be locked down.
            JailFullError: If there is no user id or descriptor left for it.
        """
        if self.dead:
            raise JailFullError("the jail is gone")
        if self._maps_users and not self._free_users:
            raise JailFullError("every user id of the jail is in use")
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise JailFullError(f"no descriptors for an episode: {error.strerror}") from None
        # Its first word then says which host process it is.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        user = self._free_users.popleft() if self._maps_users else 0
        family = Family(user, sweep=self._maps_users and limits.max_processes > 1)
        try:
            channel = self._channel(kind, ours, family, limits, on_end)
        except OSError as error:
            ours.close()
            theirs.close()
            if self._maps_users:
                self._free_users.append(user)
            raise JailFullError(f"no descriptors for a group: {error.strerror}") from None
        self._channels[channel.key] = channel
        greeted: asyncio.Future[None] = self._loop.create_future()
        channel.on_greeting = lambda: None if greeted.done() else greeted.set_result(None)
        self._queue.append((channel, theirs, limits))
        self._pump()
        timeout_s = self._config.spawn_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await greeted
        except TimeoutError:
            channel.close()
            if self._loop.time() - self._heard_at >= timeout_s:
                # Busy it would say something now and then: it is stuck.
                self._die("its zygote does not answer")
            raise JailDeadError("the process was not locked down in time") from None
        except asyncio.CancelledError:
            channel.close()
            raise
        if channel.lockdown_error:
            _log.error("lock-down failed:\n%s", channel.lockdown_error)
            raise JailDeadError("a protection could not be put in force; see the server's log")
        if channel.ended:
            raise JailDeadError("the kernel had no room for the process, or ended it")
        if family.sweep and channel.host is not None:
            family.pids.add(channel.host[0])
            self._cpu.start(
                family,
                *channel.host,
                lambda: limits.cpu_time_s * family.born,
                functools.partial(self._overspend, family),
            )
        return channel

    def _channel(
        self,
        kind: type[Kind],
        sock: socket.socket,
        family: Family,
        limits: pb.Limits,
        on_end: Callable[[Kind], None],
    ) -> Kind:
        def ended(channel: Channel) -> None:
            # By its argument: a channel that held itself would be garbage for long.
            self._forget(channel)
            on_end(cast("Kind", channel))

        return kind(
            self._poller,
            self._loop.time,
            self,
            sock,
            limits,
            key=next(self._keys),
            family=family,
            kill_timeout_s=self._config.kill_timeout_s,
            on_end=ended,
        )

    def _pump(self) -> None:
        """Ask for forks, a few ahead: a kill must not wait behind hundreds of them."""
        while self._queue and len(self._spawning) < self._config.max_spawns_in_flight:
            channel, theirs, limits = self._queue.popleft()
            if channel.closing:
                # Closed while it waited: there is nothing to fork any more.
                theirs.close()
                channel.on_exit(ProcessEnd(None, 0.0))
                continue
            self._spawning.add(channel.key)
            request = {
                "op": "spawn",
                "id": channel.key,
                "user": channel.family.user,
                "limits": _limits_for_worker(limits.SerializeToString()),
                "address_space_bytes": self._address_space_bytes,
                "group": channel.is_group,
            }
            self._send(request, theirs)

    async def fork(
        self,
        original: Channel,
        count: int,
        limits: pb.Limits,
        on_end: Callable[[Channel], None],
    ) -> list[EpisodeChannel] | Answer:
        """Copy a running episode process so many times; all copies are made, or none.

        Returns:
            The copies' channels, or the original's answer where it failed.

        Raises:
            JailFullError: If there are no descriptors left for them.
        """
        if original.ended:
            # Its user id is another's by now, and so would be the one that a copy gives back.
            return Lost("its process is gone")
        # Held from the start: with the original gone, its user id would be given to another.
        family = original.family
        family.members += count
        family.born += count
        copies: list[Copy] | Answer = Lost("the jail is gone")
        try:
            copies = await copying.copy(
                original, count, limits.step_timeout_s, self._poller, self._loop
            )
            if isinstance(copies, list) and self.dead:
                for copy in copies:
                    copy.let_go(family)
                copies = Lost("the jail is gone")
        except OSError as error:
            raise JailFullError(f"no descriptors for copies: {error.strerror}") from None
        finally:
            if not isinstance(copies, list):
                family.born -= count
                self._leave(family, count)
        if not isinstance(copies, list):
            return copies
        return [self._adopt(copy, family, limits, on_end) for copy in copies]

    def _adopt(
        self, copy: Copy, family: Family, limits: pb.Limits, on_end: Callable[[Channel], None]
    ) -> EpisodeChannel:
        channel = self._channel(EpisodeChannel, copy.socket, family, limits, on_end)
        channel.host = copy.host
        channel.pidfd = copy.pidfd
        channel.locked_down = True
        self._copies[channel.key] = channel
        self._poller.add(copy.pidfd, lambda _: channel.on_exit(ProcessEnd(None, 0.0)))
        return channel

    def kill(self, channel: Channel) -> None:
        """Kill the process of a channel; its end is reported through `on_exit`."""
        if self.dead:
            channel.lose("the jail is gone")
        else:
            self._send({"op": "kill", "id": channel.key})

    def _forget(self, channel: Channel) -> None:
        """A process is gone, and with the last of its family what the family held."""
        self._channels.pop(channel.key, None)
        self._copies.pop(channel.key, None)
        if channel.host is not None:
            channel.family.pids.discard(channel.host[0])
        self._leave(channel.family)

    def _leave(self, family: Family, members: int = 1) -> None:
        family.members -= members
        if family.members > 0:
            return
        self._cpu.stop(family)
        if not self._maps_users:
            return
        if family.sweep and not self.dead:
            # It was allowed to fork: what it left behind goes, before its id is given on.
            self._send({"op": "sweep", "user": family.user})
        else:
            self._free_users.append(family.user)

    def _overspend(self, family: Family, used_s: float) -> None:
        for channel in [*self._channels.values(), *self._copies.values()]:
            if channel.family is family:
                channel.overspend(used_s)

    # -- the control socket ------------------------------------------------------------

    def _send(self, message: dict[str, Any], theirs: socket.socket | None = None) -> None:
        """Queue one message to the zygote, with a socket to hand over, and flush."""
        self._outbox.append((json.dumps(message).encode(), theirs))
        if len(self._outbox) == 1:
            self._flush()

    def _flush(self) -> None:
        """Send what the zygote has room for: it may be busy with a burst of forks and ends."""
        while self._outbox and not self.dead:
            data, theirs = self._outbox[0]
            ancillary = []
            if theirs is not None:
                descriptors = array.array("i", [theirs.fileno()])
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            try:
                self._control.sendmsg([data], ancillary)
            except BlockingIOError:
                self._poller.want_write(self._control.fileno(), True)
                return
            except OSError:
                self._die("its zygote is gone")
                return
            self._outbox.popleft()
            if theirs is not None:
                theirs.close()
        if not self.dead:
            self._poller.want_write(self._control.fileno(), False)

    def _on_control(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._flush()
        while not self.dead:
            try:
                data, ancillary, _, _ = self._control.recvmsg(
                    65536, host_process.CREDENTIALS_SPACE
                )
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._die("its zygote ended")
                return
            self._heard_at = self._loop.time()
            self._take(json.loads(data), ancillary)

    def _take(self, message: dict[str, Any], ancillary: list[Any]) -> None:
        event = message["event"]
        if event == "exited":
            channel = self._channels.get(message["id"])
            if channel is not None:
                status = message["status"]
                killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
                kills = self._memory_kills
                oom = killed and kills is not None and kills.grown()
                channel.on_exit(ProcessEnd(status, message["cpu_s"], oom))
        elif event == "spawned":
            self._spawning.discard(message["id"])
            self._pump()
        elif event == "refused":
            self._spawning.discard(message["id"])
            channel = self._channels.get(message["id"])
            if channel is not None:
                _log.warning("no process for an episode: %s", message["why"])
                channel.lose("the kernel had no room for its process")
            self._pump()
        elif event == "swept":
            self._free_users.append(message["user"])
        elif event == "ready":
            self._take_ready(host_process.sender(ancillary))

    def _take_ready(self, zygote: tuple[int, int] | None) -> None:
        try:
            if zygote is not None:
                self._address_space_bytes = host_process.address_space_bytes(zygote[0])
                self._memory_kills = host_process.MemoryKills(zygote[0])
                self._process.at_ready(*zygote)
        except OSError as error:
            # It may have ended since it said so; nobody else has an interest in its numbers.
            self._die(f"its zygote could not be taken into service: {error}")
            return
        if not self._ready.done():
            self._ready.set_result(None)

    def _die(self, why: str) -> None:
        if self.dead:
            return
        self.dead = True
        self._poller.remove(self._control.fileno())
        self._control.close()
        if self._closed:
            self._process.kill()
        else:
            # A jail of thousands takes a second to be gone: other jails' episodes do not wait.
            self._loop.run_in_executor(None, self._process.kill)
        if not self._ready.done():
            failure = self._process.handle.failure or why
            self._ready.set_exception(
                BackendError(
                    f"the jail of runtime {self.runtime.name!r} did not start: {failure}; "
                    "run `spadework doctor`"
                )
            )
        if not self._closed:
            _log.error("jail of runtime %s is dead: %s", self.runtime.name, why)
        for _, theirs, _ in self._queue:
            theirs.close()
        for _, handed_over in self._outbox:
            if handed_over is not None:
                handed_over.close()
        self._outbox.clear()
        self._queue.clear()
        self._spawning.clear()
        for channel in [*self._channels.values(), *self._copies.values()]:
            channel.lose("its jail is gone")
        self._on_dead(self)

    def close(self) -> None:
        """End the jail and everything in it."""
        self._closed = True
        self._die("the server closed it")
