"""One group: the episodes that share a process, and what becomes of them when it ends.

When the process ends, the member whose step was in work answers for it. The others are rebuilt
in a new process and go on as if nothing had been. The process holds answers back for a moment,
so several members may be suspect: these are rebuilt, too, and then take their steps one by one.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from sandbox_api.errors import SandboxError

from sandbox_server import replay
from sandbox_server.endpoint import Answer
from sandbox_server.episode import ProgramRecord
from sandbox_server.failures import Failure, Lost, ProgramFailedError
from sandbox_server.group_channel import GroupChannel
from sandbox_server.group_member import Member
from sandbox_server.group_replay import GroupReplay, suspects_of
from sandbox_server.jail_pool import JailPool
from sandbox_server.work import Work
from sandbox_server.worker import frames, group_frames

_log = logging.getLogger(__name__)

# Ends of the process that no single member is to blame for, one after another, before all
# members bear the blame.
_MAX_UNEXPLAINED = 3
# For a new process while its jail is being restarted, or there is no room.
_OPEN_TRIES = 40
_OPEN_RETRY_S = 0.5


Settle = Callable[[list[Member], group_frames.Chunk], None]


class GroupHost(Protocol):
    """Who has groups, and is told of what becomes of them."""

    @property
    def settle(self) -> Settle:
        """Takes completed steps."""

    def closed(self, group: Group) -> None:
        """It has no members any more, and its process goes; called once."""

    def rebuilt(self, group: Group) -> None:
        """Its members are in a new process."""


class Group:
    """Episodes of one program that share a process.

    Args:
        program: What they play.
        jails: Where the process comes from.
        work: Where replayed steps are counted.
        host: Who has it.

    Attributes:
        joined: How many members it has had.
    """

    def __init__(
        self,
        program: ProgramRecord,
        jails: JailPool,
        work: Work,
        host: GroupHost,
    ) -> None:
        self.program = program
        self.joined = 0
        self._jails = jails
        self._work = work
        self._host = host
        self._settle = host.settle
        self._loop = asyncio.get_running_loop()
        self._keys = itertools.count(1)
        self._members: dict[int, Member] = {}
        self._channel: GroupChannel | None = None
        self._serves = False
        self._closed = False
        self._outbox: list[Member] = []
        self._dropped: list[int] = []
        self._flush_due = False
        self._suspects: list[Member] | None = None
        self._unexplained = 0
        self._task = self._loop.create_task(self._open_first())

    # -- members -----------------------------------------------------------------------

    def add(self) -> Member:
        """Take one more member in; it counts as a live episode from now on."""
        member = Member(self, self._loop, next(self._keys))
        self.joined += 1
        self._members[member.key] = member
        self._jails.live += 1
        return member

    async def opened(self) -> None:
        """Wait for the process.

        Raises:
            SandboxError: If there is none.
            ProgramFailedError: If the program does not load.
        """
        task = self._task
        if not task.done():
            await asyncio.wait((task,))
        if not task.cancelled():
            # Else the group is closed, which is no cancellation of who waits; its members know.
            task.result()

    def leave(self, member: Member) -> None:
        """A member is no more; with the last one the process goes."""
        if not self._remove(member):
            return
        if not self._members:
            self._close()
        elif self._serves:
            self._dropped.append(member.key)
            self._flush_soon()

    def _remove(self, member: Member) -> bool:
        if self._members.pop(member.key, None) is None:
            return False
        self._jails.live -= 1
        return True

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._serves = False
            self._task.cancel()
            if self._channel is not None:
                self._channel.close()
            self._host.closed(self)

    # -- requests ----------------------------------------------------------------------

    def send(self, member: Member) -> None:
        """Hand a member's request to the process, together with those that come next."""
        if self._serves:
            # Else it is sent when the group has been rebuilt.
            self._outbox.append(member)
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        channel = self._channel
        if channel is None or not self._serves:
            return
        waiting, self._outbox = self._outbox, []
        if self._dropped:
            channel.drop(self._dropped)
            self._dropped = []
        together, alone = [], []
        for member in waiting:
            if not member.is_asked:
                continue
            if member.op != frames.STEP:
                body = group_frames.MEMBER.pack(member.key) + member.body
                on_answer = functools.partial(self._on_answer, member)
                channel.request(member.op, body, member.timeout_s, on_answer)
            elif member.suspect:
                alone.append(member)
            else:
                together.append(member)
        if together:
            self._step(channel, together)
        for member in alone:
            # After the others, who would be rebuilt once more, and wait, for nothing.
            self._step(channel, [member])

    def _step(self, channel: GroupChannel, members: list[Member]) -> None:
        steps = _Steps(self, members)
        channel.step(
            [member.key for member in members],
            [member.body for member in members],
            [member.timeout_s for member in members],
            steps,
        )

    def _on_answer(self, member: Member, answer: Answer) -> None:
        if isinstance(answer, frames.Reply):
            self._unexplained = 0
            member.answer(answer)
        else:
            self.suspect([member])

    def worked(self, members: list[Member], chunk: group_frames.Chunk) -> None:
        """Members have answered: what ended their process before does so no more."""
        self._unexplained = 0
        self._settle(members, chunk)

    def suspect(self, members: list[Member]) -> None:
        """The process has ended, and this was in work; the oldest request is told first."""
        if self._suspects is None:
            self._suspects = members

    # -- the process -------------------------------------------------------------------

    async def _open_first(self) -> None:
        await self._open()
        self._serves = True

    async def _open(self) -> GroupChannel:
        """Start a process, and load the program into it."""
        channel = await self._jails.spawn_group(self.program, self._on_end)
        self._channel = channel
        try:
            await replay.load(channel, self.program, describe=False)
        except BaseException:
            self._channel = None
            channel.close()
            raise
        return channel

    async def _open_again(self) -> GroupChannel:
        for attempt in itertools.count(1):
            try:
                return await self._open()
            except (SandboxError, ProgramFailedError):
                if attempt == _OPEN_TRIES or self._jails.closing:
                    raise
            await asyncio.sleep(_OPEN_RETRY_S)
        raise AssertionError("it counts for ever")

    def _on_end(self, channel: GroupChannel) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        if self._serves:
            self._serves = False
            assert channel.cause is not None
            suspects, self._suspects = self._suspects or [], None
            self._task = self._loop.create_task(self._rebuild(channel.cause, suspects))

    async def _rebuild(self, cause: Failure | Lost, suspects: list[Member]) -> None:
        """Replace the process, and bring the members to where they were."""
        self._blame(cause, suspects)
        starting = [member for member in self._members.values() if member.episode is None]
        self._lose(starting, "the process that it was being started in has ended")
        try:
            while self._members and not await self._try_rebuild():
                pass
        except Exception as error:
            if not self._jails.closing:
                _log.exception("a group could not be rebuilt")
            self._lose(list(self._members.values()), f"its group was not rebuilt: {error}")
        if not self._members:
            self._close()

    async def _try_rebuild(self) -> bool:
        channel = await self._open_again()
        player = GroupReplay(channel, self._work)
        # Who has joined meanwhile has nothing to be played again, and waits for this to be over.
        started = [member for member in self._members.values() if member.episode is not None]
        failed = await player.play(started)
        if failed is not None and len(player.suspects) == 1:
            why = "its group's process ended, and played again it ends the process itself"
            self._lose(player.suspects, why)
        elif failed is not None or channel.cause is not None:
            self._blame(failed or channel.cause or Lost("it is gone"), player.suspects)
        else:
            self._host.rebuilt(self)
            self._drop_ended()
            self._serves = True
            self._outbox = [m for m in self._members.values() if m.is_asked]
            self._flush_soon()
            return True
        return False

    def _blame(self, cause: Failure | Lost, suspects: Iterable[Member]) -> None:
        """Find who has ended the process, and tell it what came of its step."""
        suspects = list(suspects)
        if isinstance(cause, Failure) and len(suspects) == 1:
            self._unexplained = 0
            self._end(suspects, cause)
            return
        for member in suspects:
            member.suspect = True
        self._unexplained += 1
        if self._unexplained > _MAX_UNEXPLAINED:
            self._end(list(self._members.values()), cause)

    def _lose(self, members: Iterable[Member], why: str) -> None:
        self._end(members, Lost(why))

    def _end(self, members: Iterable[Member], cause: Failure | Lost) -> None:
        for member in members:
            member.end(cause)
            self._remove(member)

    def _drop_ended(self) -> None:
        """Members that differed when they were played again are told, and go."""
        for member in [m for m in self._members.values() if m.cause is not None]:
            self._remove(member)
            self._dropped.append(member.key)


class _Steps:
    """Steps of several members that clients wait for."""

    __slots__ = ("_done", "_group", "_members", "_suspect")

    def __init__(self, group: Group, members: list[Member]) -> None:
        self._group = group
        self._members = members
        self._suspect = members[0].suspect
        self._done = 0

    def answered(self, first: int, chunk: group_frames.Chunk) -> None:
        self._done = first + len(chunk.flags)
        members = self._members[first : self._done]
        if self._suspect:
            for member in members:
                member.suspect = False
        self._group.worked(members, chunk)

    def failed(self, index: int, reply: frames.Reply) -> None:
        self._done = index + 1
        self._members[index].answer(reply)

    def ended(self, _: Failure | Lost, culprit: int | None) -> None:
        self._group.suspect(suspects_of(self._members, self._done, culprit))
