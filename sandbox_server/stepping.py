"""Steps, many at a time: what `Player` does for each, at a part of its price.

An item that is anything but the next step of an idle episode, and an answer that is anything but
a completed step in the middle of its episode, goes the way of `Player`, one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sandbox_api.errors import SandboxError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import answers
from sandbox_server.checks import MAX_TIMEOUT_S
from sandbox_server.episode import Sink, StepRecord, observation_digest
from sandbox_server.episode_channel import Arrivals, EpisodeChannel
from sandbox_server.episodes import Episodes
from sandbox_server.group_member import Member, reply_of
from sandbox_server.groups import Groups
from sandbox_server.player import STEP_RECORD_BYTES, Player
from sandbox_server.unread import Unread
from sandbox_server.work import Work
from sandbox_server.worker import group_frames

# What the message of a result takes beside its texts, about.
_RESULT_BYTES = 24

# A NamedTuple's own constructor takes twice as long.
_record = tuple.__new__


class Stepper:
    """Takes the steps of calls, and answers those that come together all at once."""

    def __init__(
        self, player: Player, groups: Groups, episodes: Episodes, work: Work, unread: Unread
    ) -> None:
        self._player = player
        self._episodes = episodes
        self._work = work
        self._unread = unread
        groups.settle = self._settle
        player.arrivals = Arrivals(self._settle)

    def step(self, items: Sequence[pb.StepItem], first: int, sink: Sink) -> None:
        """Advance the episodes of some items of a call.

        Args:
            items: The items.
            first: Index of the first in its call.
            sink: Gets each one's result once, now or later.
        """
        by_id = self._episodes.by_id
        others: list[tuple[int, pb.StepItem]] = []
        # Programs of another cost than the first item's go the way of all others.
        cost = self._cost_of(items)
        left = begun = self._begin(len(items), cost)
        grown, now = 0, time.monotonic()
        for index, item in enumerate(items, first):
            episode = by_id.get(item.episode_id)
            if left and episode is not None:
                member, program = episode.channel, episode.program
                timeout_s = item.timeout_s or program.step_timeout_s
                action = item.action
                if (
                    member is not None
                    and item.step_index == episode.next_index
                    and member.is_free
                    and not episode.waiters
                    and len(action) <= program.surely_short_action
                    and 0 < timeout_s <= MAX_TIMEOUT_S
                    and program.step_cost == cost
                ):
                    left -= 1
                    size = len(action) + STEP_RECORD_BYTES
                    grown += size
                    episode.record_bytes += size
                    episode.last_used_at = now
                    episode.next_index += 1
                    episode.actions.append(action)
                    episode.waiters.append((index, sink))
                    member.step(action, timeout_s)
                    continue
            others.append((index, item))
        if left:
            self._work.end_steps(left, left * cost)
        if begun > left:
            self._episodes.note_growth(grown)
        # After what was counted in and not needed has been given back.
        for index, item in others:
            self._player.step(index, item, sink)

    def _cost_of(self, items: Sequence[pb.StepItem]) -> int:
        """What the first step of a known episode costs."""
        for item in items:
            episode = self._episodes.by_id.get(item.episode_id)
            if episode is not None:
                return episode.program.step_cost
        return 1

    def _begin(self, most: int, cost: int) -> int:
        """Count steps in, as many as may run now without more ado."""
        try:
            self._episodes.check_room()
            self._unread.admit()
        except SandboxError:
            # Each is told so.
            return 0
        return self._work.begin_steps(most, cost)

    def _settle(
        self, members: Sequence[Member] | Sequence[EpisodeChannel], chunk: group_frames.Chunk
    ) -> None:
        """Record completed steps, and tell all who wait for them."""
        results: list[pb.StepResult] = []
        sink: Any = None
        size = done = grown = cost = 0
        completed = pb.OUTCOME_COMPLETED
        for member, flags, reward, cut_bytes, observation, info in zip(
            members, *chunk, strict=True
        ):
            episode = member.episode
            if (
                flags
                or not member.steps_quickly
                or episode is None
                or len(episode.waiters) != 1
                or episode.next_index >= episode.turn_cap
                or (info and answers.info_failure(info) is not None)
            ):
                member.answer(reply_of(flags, reward, cut_bytes, observation, info))
                continue
            member.done()
            cost += episode.program.step_cost
            index, put = episode.waiters.pop()
            digest = observation_digest(observation)
            episode.steps.append(_record(StepRecord, (digest, reward, False, False)))
            result = pb.StepResult(
                index=index,
                step_index=episode.next_index - 1,
                outcome=completed,
                observation=observation,
                reward=reward,
            )
            shown = len(observation)
            if info:
                result.info_json = info
                shown += len(info)
            if cut_bytes:
                result.observation_cut_bytes = cut_bytes
            episode.last_result = result
            grown += shown - episode.last_result_bytes
            episode.record_bytes += shown - episode.last_result_bytes
            episode.last_result_bytes = shown
            done += 1
            if put is not sink:
                if results:
                    sink.put_all(results, size)
                sink, results, size = put, [], 0
            results.append(result)
            size += shown + _RESULT_BYTES
        self._player.steps_total += done
        self._episodes.note_growth(grown)
        if results:
            sink.put_all(results, size)
        if done:
            self._work.end_steps(done, cost)
