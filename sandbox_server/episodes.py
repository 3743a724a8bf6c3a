"""The table of episodes: which there are, when they end by themselves, what their records take."""

from __future__ import annotations

import asyncio
import collections
import logging
import secrets
import time
from collections.abc import Callable, Iterable

from sandbox_api.errors import EpisodeNotFoundError

from sandbox_server.config import ServerConfig
from sandbox_server.episode import Episode
from sandbox_server.telemetry.calls import Subject

_log = logging.getLogger(__name__)

_SWEEP_INTERVAL_S = 1.0
_ID_BYTES = 16
# Records are also added up when they may have grown by this part of their bound.
_LOOKS_A_BOUND = 16


class Episodes:
    """All episodes that this server remembers, by id, the oldest first.

    Attributes:
        ended_total: Episodes ended, by cause.
        by_id: The episodes; they are added and removed by the methods here alone.
        records_full: The transcripts of live episodes alone are over the bound on records.
    """

    def __init__(self, config: ServerConfig, audit: Callable[..., None]) -> None:
        self.ended_total: collections.Counter[str] = collections.Counter()
        self.records_full = False
        self._grown_bytes = 0
        self._config = config
        self._audit = audit
        self.by_id: dict[str, Episode] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self.by_id)

    def record_bytes(self) -> int:
        """What all records take, programs that are remembered for them alone included."""
        programs = {
            id(episode.program): episode.program
            for episode in self.by_id.values()
            if episode.program.forgotten
        }
        own = sum(episode.record_bytes for episode in self.by_id.values())
        return own + sum(program.record_bytes for program in programs.values())

    def live(self) -> int:
        """Episodes that can take a step."""
        return sum(episode.live for episode in self.by_id.values())

    def new_id(self) -> str:
        """An id that nobody can guess; what is behind the dot says which shard has the episode."""
        secret = secrets.token_urlsafe(_ID_BYTES)
        return f"{secret}.{self._config.shard}" if self._config.shard else secret

    def add(self, episode: Episode) -> None:
        self.by_id[episode.episode_id] = episode
        program = episode.program
        self.note_growth(episode.record_bytes + (program.record_bytes if program.forgotten else 0))

    def note_growth(self, size: int) -> None:
        """Records take more now; when it is much since the last look, look again."""
        self._grown_bytes += size
        if self._grown_bytes > self._config.max_record_bytes // _LOOKS_A_BOUND:
            self.bound_records()

    def check_room(self) -> None:
        """Check that records may grow.

        Raises:
            CapacityError, QuotaError: If those of live episodes alone are over the bound.
        """
        if self.records_full:
            raise self._config.full(
                "the transcripts of live episodes fill the bound on records; close some"
            )

    def find(self, episode_id: str) -> Episode:
        """Look an episode up.

        Raises:
            EpisodeNotFoundError: If it is not there.
        """
        episode = self.by_id.get(episode_id)
        if episode is None:
            raise EpisodeNotFoundError(
                "no such episode: it was closed, ended long ago, or never was; reset again"
            )
        return episode

    def end(self, episode: Episode, why: str) -> None:
        """No further step is possible; the process goes, the record stays."""
        if episode.channel is not None:
            self.ended_total[why] += 1
            channel, episode.channel = episode.channel, None
            episode.ended = why
            if _log.isEnabledFor(logging.DEBUG):
                about = Subject.of(episode.episode_id, episode.program.program_id)
                _log.debug("episode ended: %s", why, extra=about._asdict())
            channel.close()
            self._audit(
                "end",
                program=episode.program.program_id,
                episode=episode.episode_id,
                outcome=why,
                steps=len(episode.steps),
            )

    def close(self, episodes: Iterable[Episode]) -> None:
        """End episodes and forget them."""
        for episode in episodes:
            self._drop(episode, "closed")

    def close_ids(self, episode_ids: list[str]) -> int:
        """As `close`; ids that are not there are no error.

        Returns:
            How many were there.
        """
        found = [self.by_id[i] for i in dict.fromkeys(episode_ids) if i in self.by_id]
        self.close(found)
        return len(found)

    async def sweep_for_ever(self) -> None:
        """End episodes that are idle or too old, and forget old records."""
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL_S)
            try:
                self._end_overdue()
                self.bound_records()
            except Exception:
                # A server that sweeps no more ends no idle episode, and nobody would know.
                _log.exception("a sweep failed")

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for episode in list(self.by_id.values()):
            limits = episode.program.limits
            busy = bool(episode.waiters) or episode.users > 0
            if now - episode.started_at > limits.lifetime_s:
                self._drop(episode, "lifetime")
            elif not busy and now - episode.last_used_at > limits.idle_timeout_s:
                self._drop(episode, "idle")

    def bound_records(self) -> None:
        """Forget ended episodes, the oldest first, until all records are within bounds."""
        excess = len(self.by_id) - self._config.max_records
        if excess > 0:
            for episode in self._ended()[:excess]:
                self._forget(episode)
        excess_bytes = self.record_bytes() - self._config.max_record_bytes
        if excess_bytes > 0:
            excess_bytes = self._forget_bytes(excess_bytes)
        self.records_full = excess_bytes > 0
        self._grown_bytes = 0

    def _forget_bytes(self, excess_bytes: int) -> int:
        """Forget ended episodes until so much is free; returns what could not be freed."""
        holders = collections.Counter(id(e.program) for e in self.by_id.values())
        for episode in self._ended():
            self._forget(episode)
            excess_bytes -= episode.record_bytes
            holders[id(episode.program)] -= 1
            if episode.program.forgotten and not holders[id(episode.program)]:
                excess_bytes -= episode.program.record_bytes
            if excess_bytes <= 0:
                break
        return excess_bytes

    def _ended(self) -> list[Episode]:
        return [episode for episode in self.by_id.values() if not episode.live]

    def _drop(self, episode: Episode, why: str) -> None:
        self.end(episode, why)
        self._forget(episode)

    def _forget(self, episode: Episode) -> None:
        self.by_id.pop(episode.episode_id, None)
