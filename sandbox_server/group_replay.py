"""Rebuilding the members of a group: their records played again, and compared, bit by bit."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

from sandbox_server import replay
from sandbox_server.endpoint import Answer
from sandbox_server.episode import Episode, StepRecord, observation_digest
from sandbox_server.failures import Failure, Lost
from sandbox_server.group_channel import GroupChannel
from sandbox_server.group_member import Member
from sandbox_server.work import Work
from sandbox_server.worker import frames, group_frames


class GroupReplay:
    """Plays records again in one group process. A member that differs is lost.

    Attributes:
        suspects: When the process has ended: who may have been in work.
    """

    def __init__(self, channel: GroupChannel, work: Work) -> None:
        self.suspects: Sequence[Member] = ()
        self._channel = channel
        self._work = work
        self._loop = asyncio.get_running_loop()

    async def play(self, members: Sequence[Member]) -> Failure | Lost | None:
        """Bring members to where they were: all together, but suspects each alone.

        Returns:
            Why the process ended over it; None if it did not.
        """
        failed = await self._play([member for member in members if not member.suspect])
        for member in members:
            if failed is None and member.suspect:
                failed = await self._play([member])
        return failed

    async def _play(self, members: Sequence[Member]) -> Failure | Lost | None:
        for failed in await asyncio.gather(*map(self._start_over, members)):
            if failed is not None:
                return failed
        left, index = list(members), 0
        while True:
            left = [member for member in left if _goes_on(member, index)]
            if not left:
                return None
            finished: asyncio.Future[Failure | Lost | None] = self._loop.create_future()
            steps = _Steps(left, index, finished)
            episodes = [record_of(member) for member in left]
            self._channel.step(
                [member.key for member in left],
                [episode.actions[index].encode() for episode in episodes],
                [episode.program.limits.step_timeout_s for episode in episodes],
                steps,
            )
            failed = await finished
            if failed is not None:
                self.suspects = steps.suspects
                return failed
            self._work.count_replayed(len(left))
            index += 1

    async def _start_over(self, member: Member) -> Failure | Lost | None:
        """Reset a member as it was."""
        if member.cause is not None:
            return None
        episode = record_of(member)
        answered: asyncio.Future[Answer] = self._loop.create_future()
        self._channel.request(
            frames.RESET,
            group_frames.MEMBER.pack(member.key)
            + replay.reset_body(episode.seed, episode.options_json, episode.max_turns),
            episode.program.limits.step_timeout_s,
            functools.partial(self._on_reset, member, answered),
        )
        answer = await answered
        if isinstance(answer, Failure | Lost):
            return answer
        same = observation_digest(answer.observation) == episode.reset_digest
        if answer.outcome != frames.COMPLETED or not same:
            _lose(member)
        return None

    def _on_reset(self, member: Member, answered: asyncio.Future[Answer], answer: Answer) -> None:
        if not self.suspects and isinstance(answer, Failure | Lost):
            # The oldest request's is the first to be told.
            self.suspects = [member]
        # Else the group was closed meanwhile, and nobody waits.
        if not answered.done():
            answered.set_result(answer)


class _Steps:
    """One step of several members' records."""

    def __init__(
        self, members: list[Member], index: int, finished: asyncio.Future[Failure | Lost | None]
    ) -> None:
        self.suspects: Sequence[Member] = ()
        self._done = 0
        self._members = members
        self._index = index
        self._finished = finished

    def answered(self, first: int, chunk: group_frames.Chunk) -> None:
        members = self._members[first : first + len(chunk.flags)]
        columns = zip(members, chunk.flags, chunk.rewards, chunk.observations, strict=True)
        for member, flags, reward, observation in columns:
            played = StepRecord(
                observation_digest(observation),
                reward,
                bool(flags & frames.TERMINATED),
                bool(flags & frames.TRUNCATED),
            )
            if played != record_of(member).steps[self._index]:
                _lose(member)
        self._count(first + len(members))

    def failed(self, index: int, _: frames.Reply) -> None:
        _lose(self._members[index])
        self._count(index + 1)

    def ended(self, cause: Failure | Lost, culprit: int | None) -> None:
        self.suspects = suspects_of(self._members, self._done, culprit)
        self._finish(cause)

    def _count(self, done: int) -> None:
        self._done = done
        if done == len(self._members):
            self._finish(None)

    def _finish(self, failed: Failure | Lost | None) -> None:
        # Else the group was closed meanwhile, and nobody waits.
        if not self._finished.done():
            self._finished.set_result(failed)


def suspects_of(members: Sequence[Member], done: int, culprit: int | None) -> list[Member]:
    """Who may have ended the process that stepped them in turn.

    Args:
        members: In the order of their steps.
        done: How many of them had their answer.
        culprit: Which of the others was in work, where the process has said so.
    """
    if culprit is not None and done <= culprit < len(members):
        return [members[culprit]]
    return list(members[done : done + group_frames.MAX_CHUNK_ITEMS])


def record_of(member: Member) -> Episode:
    """The record of a member that has one."""
    assert member.episode is not None
    return member.episode


def _goes_on(member: Member, index: int) -> bool:
    return member.cause is None and index < len(record_of(member).steps)


def _lose(member: Member) -> None:
    member.end(
        Lost(
            "its group's process ended, and played again the episode differs: it depends on what "
            "others of its group did, or on chance"
        )
    )
