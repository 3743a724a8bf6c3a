"""What the client remembers of its programs and episodes, so that it can rebuild them.

An episode's state lives in one process of the server. Its program, seed and actions make
that state again, provided the program is deterministic; digests of what was seen tell
whether it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox_api.types import Episode, Limits, Program, ResetItem, StepItem, StepResult
from sandbox_api.v1 import sandbox_pb2 as pb


def _digest(result: StepResult) -> int:
    # The built-in hash: 64 keyed bits, compared only within this process, at a tenth of
    # the cost of a cryptographic one.
    return hash((result.observation, result.reward, result.terminated, result.truncated))


@dataclass(slots=True)
class EpisodeRecord:
    """One live episode.

    Attributes:
        episode_id: The caller's id; never changes.
        server_id: The server's id; changes with each rebuild.
        first: Digest of the first observation; None where a prefix hid it.
        actions: Actions that completed, in order, the reset's prefix included.
        digests: What each of them led to.
    """

    episode_id: str
    server_id: str
    reset: ResetItem
    limits: Limits
    first: int | None
    actions: list[str] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)
    closed: bool = False

    def append(self, item: StepItem, result: StepResult) -> None:
        """Record a completed step; a repeat of one already recorded is ignored."""
        if item.step_index == len(self.actions):
            self.actions.append(item.action)
            self.digests.append(_digest(result))

    def difference(self, episode: Episode, actions: int) -> str:
        """Say how a replay of the first `actions` actions differs; empty if it does not."""
        if not episode.ok:
            return f"it ended with {episode.outcome.name if episode.outcome else 'no outcome'}"
        if len(episode.prefix_results) != actions:
            return f"it made {len(episode.prefix_results)} of {actions} steps"
        if not actions and self.first is not None and hash(episode.observation) != self.first:
            return "it started with another observation"
        for index, result in enumerate(episode.prefix_results):
            if _digest(result) != self.digests[index]:
                return f"step {index} gave another observation, reward or end"
        return ""


@dataclass(frozen=True, slots=True)
class ProgramRecord:
    """One registered program, with the request that registers it again."""

    request: pb.RegisterProgramRequest
    program: Program


class Ledger:
    """Programs and live episodes of one client."""

    def __init__(self) -> None:
        self.programs: dict[str, ProgramRecord] = {}
        self._episodes: dict[str, EpisodeRecord] = {}

    def limits_of(self, program_id: str) -> Limits | None:
        record = self.programs.get(program_id)
        return record.program.limits if record else None

    def get(self, episode_id: str) -> EpisodeRecord | None:
        return self._episodes.get(episode_id)

    def start(self, item: ResetItem, episode: Episode, limits: Limits) -> None:
        """Record an episode that a reset has started."""
        self._episodes[episode.episode_id] = EpisodeRecord(
            episode_id=episode.episode_id,
            server_id=episode.episode_id,
            reset=item,
            limits=limits,
            first=None if item.prefix_actions else hash(episode.observation),
            actions=list(item.prefix_actions),
            digests=[_digest(result) for result in episode.prefix_results],
        )

    def fork(self, original: EpisodeRecord, episode_id: str, actions: int) -> None:
        """Record a copy of an episode, made when it had `actions` actions behind it."""
        self._episodes[episode_id] = EpisodeRecord(
            episode_id=episode_id,
            server_id=episode_id,
            reset=original.reset,
            limits=original.limits,
            first=original.first,
            actions=original.actions[:actions],
            digests=original.digests[:actions],
        )

    def close(self, episode_id: str) -> str:
        """Forget an episode; returns the server's id of it."""
        record = self._episodes.pop(episode_id, None)
        if record is None:
            return episode_id
        record.closed = True
        return record.server_id
