"""Steps by hand: what `Player` does for each, without messages, for a caller that waits.

An item that is anything but the next step of a live episode, and an answer that is anything but a
completed step, goes the way of all others: nothing of what the player checks is checked less.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from sandbox_api import _convert
from sandbox_api._ledger import EpisodeRecord, Ledger
from sandbox_api.errors import SandboxError
from sandbox_api.types import Outcome, StepItem, StepResult
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import answers
from sandbox_server.checks import MAX_TIMEOUT_S
from sandbox_server.endpoint import Answer
from sandbox_server.engine import Engine
from sandbox_server.episode import Episode, StepRecord, observation_digest
from sandbox_server.episode_channel import EpisodeChannel
from sandbox_server.player import STEP_RECORD_BYTES
from sandbox_server.worker import frames

_COMPLETED = Outcome.COMPLETED
_REPLY_COMPLETED = frames.COMPLETED
# A NamedTuple's own constructor takes twice as long.
_record = tuple.__new__


class _Seat:
    """An episode that is stepped by hand, and its step in work.

    Attributes:
        episode: The engine's record.
        record: The client's record, by which it is rebuilt where it is lost.
        last: Result of the last step by hand, from which the engine's record of it is made.
        index, item, results: The step in work, and where its result goes.
    """

    __slots__ = ("_player", "episode", "index", "item", "last", "record", "results")

    def __init__(self, player: DirectPlayer, episode: Episode, record: EpisodeRecord) -> None:
        self._player = player
        self.episode = episode
        self.record = record
        self.last: StepResult | None = None
        self.index: int
        self.item: StepItem
        self.results: list[StepResult | None]

    def answer(self, answer: Answer) -> None:
        """The episode's process has answered, or has come to an end."""
        player, episode = self._player, self.episode
        # First of all: whoever waits must not wait for ever.
        player.in_work -= 1
        if (
            type(answer) is not frames.Reply
            or answer.outcome != _REPLY_COMPLETED
            or (answer.info and answers.info_failure(answer.info) is not None)
        ):
            player.engine.player.on_step(episode, answer)
            return
        # Who has sent it again meanwhile, through the event loop, waits too.
        others, episode.waiters = episode.waiters[1:], []
        observation, reward = answer.observation, answer.reward
        terminated, truncated = answer.terminated, answer.truncated
        if episode.next_index >= episode.turn_cap and not terminated:
            truncated = True
        digest = observation_digest(observation)
        episode.steps.append(_record(StepRecord, (digest, reward, terminated, truncated)))
        shown_bytes = len(observation) + len(answer.info)
        grown = shown_bytes - episode.last_result_bytes
        if grown:
            episode.record_bytes += grown
            episode.last_result_bytes = shown_bytes
            player.grown_bytes += grown
        item = self.item
        result = StepResult(
            item.episode_id,
            item.step_index,
            _COMPLETED,
            observation,
            reward,
            terminated,
            truncated,
            answer.info,
            answer.cut_bytes,
        )
        self.results[self.index] = self.last = result
        # A message of it is made where somebody asks for it.
        episode.last_result = None
        for index, put in others:
            put(_message(index, result))
        self.record.append(item, result)
        player.done += 1
        player.spent += episode.program.step_cost
        if terminated or truncated:
            player.engine.episodes.end(episode, "terminated" if terminated else "truncated")

    def put(self, message: pb.StepResult) -> None:
        """Take what the engine made of an answer; errors are left to the client."""
        if message.outcome:
            self.results[self.index] = _convert.step_result(self.item.episode_id, message)

    def recall(self) -> pb.StepResult | None:
        """The last step's result as the engine records it."""
        return None if self.last is None else _message(0, self.last)


class DirectPlayer:
    """Sends steps, and polls until they are answered.

    Attributes:
        engine: Whose episodes they are.
        in_work: Steps sent and not answered.
        done: Completed steps that the engine has not been told of.
        spent: For how many those count.
        grown_bytes: What records have grown by, that it has not been told of.
    """

    def __init__(self, engine: Engine, ledger: Ledger) -> None:
        self.engine = engine
        self.in_work = 0
        self.done = 0
        self.spent = 0
        self.grown_bytes = 0
        self._ledger = ledger
        self._seats: dict[str, _Seat] = {}

    def send(self, items: Sequence[StepItem], results: list[StepResult | None]) -> None:
        """Send steps; what becomes of them is in `results` when `in_work` is 0 again.

        Args:
            items: The steps.
            results: Gets a result for each that was this module's; None stays for others.
        """
        engine = self.engine
        try:
            engine.player.check_room()
        except SandboxError:
            # Each is told so by who takes it.
            return
        # Programs of another cost than the first item's are left to who takes the others.
        cost = self._cost_of(items)
        left = engine.work.begin_steps(len(items), cost)
        seats, now, grown = self._seats, time.monotonic(), 0
        for index, item in enumerate(items):
            seat = seats.get(item.episode_id)
            if seat is None or seat.record.server_id != seat.episode.episode_id:
                seat = self._seat(item.episode_id)
                if seat is None:
                    continue
            episode, action = seat.episode, item.action
            program, channel = episode.program, episode.channel
            timeout_s = item.timeout_s or program.step_timeout_s
            if (
                not left
                or item.step_index != episode.next_index
                or type(channel) is not EpisodeChannel
                or episode.waiters
                or len(action) > program.surely_short_action
                or not 0 < timeout_s <= MAX_TIMEOUT_S
                or program.step_cost != cost
            ):
                continue
            left -= 1
            size = len(action) + STEP_RECORD_BYTES
            grown += size
            episode.record_bytes += size
            episode.last_used_at = now
            episode.next_index += 1
            episode.actions.append(action)
            episode.waiters.append((index, seat.put))
            seat.index, seat.item, seat.results = index, item, results
            self.in_work += 1
            channel.request(frames.STEP, action.encode(), timeout_s, seat.answer)
        if left:
            engine.work.end_steps(left, left * cost)
        self.grown_bytes += grown

    def _cost_of(self, items: Sequence[StepItem]) -> int:
        """What the first step of an episode that has a seat costs."""
        for item in items:
            seat = self._seats.get(item.episode_id) or self._seat(item.episode_id)
            if seat is not None:
                return seat.episode.program.step_cost
        return 1

    def settle(self) -> None:
        """Tell the engine what came of the steps that were sent."""
        engine = self.engine
        done, self.done = self.done, 0
        grown, self.grown_bytes = self.grown_bytes, 0
        engine.player.steps_total += done
        spent, self.spent = self.spent, 0
        if done:
            engine.work.end_steps(done, spent)
        engine.episodes.note_growth(grown)

    def forget(self, episode_ids: Sequence[str]) -> None:
        """These are closed."""
        for episode_id in episode_ids:
            self._seats.pop(episode_id, None)

    def _seat(self, episode_id: str) -> _Seat | None:
        record = self._ledger.get(episode_id)
        if record is None:
            return None
        episode = self.engine.episodes.by_id.get(record.server_id)
        if episode is None:
            return None
        seat = self._seats[episode_id] = _Seat(self, episode, record)
        episode.recall = seat.recall
        return seat


def _message(index: int, result: StepResult) -> pb.StepResult:
    """A completed step as the engine tells of it."""
    return pb.StepResult(
        index=index,
        step_index=result.step_index,
        outcome=pb.OUTCOME_COMPLETED,
        observation=result.observation,
        reward=result.reward,
        terminated=result.terminated,
        truncated=result.truncated,
        info_json=result.info_json,
        observation_cut_bytes=result.observation_cut_bytes,
    )
