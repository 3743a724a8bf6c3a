"""Fork: copies of a running episode, process and record."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from sandbox_api.errors import (
    CapacityError,
    EpisodeEndedError,
    EpisodeLostError,
    InvalidRequestError,
    StepOrderError,
)
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.config import ServerConfig
from sandbox_server.episode import Episode
from sandbox_server.episode_channel import EpisodeChannel
from sandbox_server.episodes import Episodes
from sandbox_server.failures import Failure, Lost
from sandbox_server.group_member import Member
from sandbox_server.jail_pool import JailPool
from sandbox_server.work import Work

# Copies that a process is asked for at once: a second of work on a busy machine, well within the
# usual time limit of a step, which bounds it.
_COPIES_AT_ONCE = 64


class Forker:
    """Copies running episodes."""

    def __init__(
        self,
        config: ServerConfig,
        jails: JailPool,
        episodes: Episodes,
        work: Work,
        attach: Callable[[Episode], None],
    ) -> None:
        """Args:
        attach: Makes an episode ready for steps.
        """
        self._config = config
        self._jails = jails
        self._episodes = episodes
        self._work = work
        self._attach = attach

    async def fork(self, request: pb.ForkRequest) -> list[str]:
        """Copy a running episode; all copies are made, or none.

        Returns:
            The copies' ids.

        Raises:
            InvalidRequestError: If its program may not fork so often.
            EpisodeNotFoundError, EpisodeEndedError, StepOrderError: As for a step.
            EpisodeLostError: If the original's process ended meanwhile.
            CapacityError, QuotaError: If there is no room for the copies, here or in its limits.
            UnavailableError: If its jail is being restarted.
        """
        episode = self._episodes.find(request.episode_id)
        if isinstance(episode.channel, Member):
            raise InvalidRequestError(
                "the episode shares its process with others (group_mode), which cannot be copied; "
                "register the program without group_mode and with limits.max_processes over 1"
            )
        limits = episode.program.limits
        self._check_running(episode)
        self._episodes.check_room()
        if not 1 <= request.copies <= limits.max_processes - 1:
            raise InvalidRequestError(
                f"copies is {request.copies}; this program was registered with "
                f"limits.max_processes = {limits.max_processes}, which allows "
                f"{limits.max_processes - 1}: register it with more"
            )
        copies: list[Episode] = []
        try:
            async with self._work.item():
                while (left := request.copies - len(copies)) > 0:
                    copies += await self._copy(episode, min(left, _COPIES_AT_ONCE))
        except BaseException:
            # Cancelled, too: nobody will be told of these.
            self._episodes.close(copies)
            raise
        return [copy.episode_id for copy in copies]

    @staticmethod
    def _check_running(episode: Episode) -> EpisodeChannel:
        if episode.channel is None:
            raise EpisodeEndedError(f"the episode has ended ({episode.ended}); reset again")
        if episode.waiters:
            raise StepOrderError("a step of this episode is in work; wait for its result")
        assert isinstance(episode.channel, EpisodeChannel)
        return episode.channel

    async def _copy(self, episode: Episode, count: int) -> list[Episode]:
        """Copy a process, and its record as it was when the copies were asked for."""
        original = self._check_running(episode)
        # Of its own while the original may go on.
        record = dataclasses.replace(
            episode,
            actions=list(episode.actions),
            steps=list(episode.steps),
            last_result=episode.recorded_result(),
            recall=None,
            waiters=[],
            users=0,
        )
        copied = await self._jails.fork(original, episode.program, count)
        if isinstance(copied, Lost | Failure):
            self._episodes.end(episode, "lost")
            raise EpisodeLostError("the episode ended while it was copied")
        if not isinstance(copied, list):
            raise CapacityError(
                "the kernel refused the copies: max_processes of this episode and its copies, "
                "or max_open_files, is reached",
                self._config.retry_delay_s,
            )
        copies = [self._recorded(record, channel) for channel in copied]
        for copy in copies:
            self._episodes.add(copy)
            self._attach(copy)
        return copies

    def _recorded(self, record: Episode, channel: EpisodeChannel) -> Episode:
        now = time.monotonic()
        return dataclasses.replace(
            record,
            episode_id=self._episodes.new_id(),
            started_at=now,
            last_used_at=now,
            channel=channel,
            actions=list(record.actions),
            steps=list(record.steps),
            waiters=[],
        )
