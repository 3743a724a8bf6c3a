"""Playing: resets, and batched steps with their record, by which a repeat is answered."""

from __future__ import annotations

import functools
import time

from sandbox_api.errors import (
    EpisodeEndedError,
    EpisodeLostError,
    InvalidRequestError,
    SandboxError,
    StepOrderError,
    item_from_error,
)
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import answers, replay
from sandbox_server.checks import check_action, check_prefix, read_options, timeout_of
from sandbox_server.config import ServerConfig
from sandbox_server.endpoint import Answer, Seat
from sandbox_server.episode import (
    USUAL_RESULT_BYTES,
    Episode,
    ProgramRecord,
    Sink,
    StepRecord,
    observation_digest,
)
from sandbox_server.episode_channel import Arrivals, EpisodeChannel
from sandbox_server.episodes import Episodes
from sandbox_server.failures import (
    Failure,
    Lost,
    ProgramFailedError,
    internal_error,
)
from sandbox_server.group_member import Member
from sandbox_server.groups import Groups
from sandbox_server.jail_pool import PLAY_HASH_SEED, JailPool
from sandbox_server.programs import Programs
from sandbox_server.telemetry.calls import Subject
from sandbox_server.telemetry.metrics import outcome_name
from sandbox_server.unread import Unread
from sandbox_server.work import Work
from sandbox_server.worker import frames

# What the record of a step takes beside its action.
STEP_RECORD_BYTES = 400
# Results of a reset's prefix actions must fit in one message, whatever its size.
_MAX_PREFIX_RESULTS_BYTES = 32 * 1024 * 1024


class Player:
    """Starts episodes and steps them.

    Attributes:
        steps_total: Steps answered, those of prefix actions included.
        arrivals: Where usual answers of processes go; set by what settles them.
    """

    arrivals: Arrivals

    def __init__(
        self,
        config: ServerConfig,
        jails: JailPool,
        programs: Programs,
        episodes: Episodes,
        groups: Groups,
        work: Work,
        unread: Unread,
    ) -> None:
        self.steps_total = 0
        self._work = work
        self._config = config
        self._jails = jails
        self._programs = programs
        self._episodes = episodes
        self._groups = groups
        self._unread = unread

    # -- reset -------------------------------------------------------------------------

    async def reset(self, index: int, item: pb.ResetItem) -> pb.ResetResult:
        """Start one episode. Service errors come back in the result."""
        result = pb.ResetResult(index=index)
        try:
            await self._reset(item, result)
        except ProgramFailedError as error:
            result.outcome = error.failure.outcome
            result.diagnostic.CopyFrom(error.failure.diagnostic)
            self._episodes.ended_total[outcome_name(result.outcome)] += 1
        except SandboxError as error:
            return pb.ResetResult(index=index, error=item_from_error(error))
        except Exception as error:
            said = item_from_error(internal_error("reset", error))
            return pb.ResetResult(index=index, error=said)
        return result

    async def _reset(self, item: pb.ResetItem, result: pb.ResetResult) -> None:
        program = self._programs.find(item.program_id)
        options = read_options(item.options_json, self._config.max_options_bytes)
        check_prefix(program, item.prefix_actions)
        replayed = len(item.prefix_actions)
        if replayed:
            self._work.admit_replay()
        # All their results wait in memory until the last one is there.
        most_results = _MAX_PREFIX_RESULTS_BYTES // USUAL_RESULT_BYTES
        async with self._work.item(min(program.step_cost * (1 + replayed), most_results)):
            self.check_room()
            await self._play(program, item, options, result)

    async def _play(
        self, program: ProgramRecord, item: pb.ResetItem, options: bytes, result: pb.ResetResult
    ) -> None:
        channel: Seat | None = await self._open(program)
        assert channel is not None
        try:
            episode = await self._begin(channel, program, item, options, result)
            self._episodes.add(episode)
            if episode.live:
                self.attach(episode)
                channel = None
        finally:
            if channel is not None:
                channel.close()

    def attach(self, episode: Episode) -> None:
        """Make an episode that has started ready for steps."""
        on_step = functools.partial(self.on_step, episode)
        if isinstance(episode.channel, Member):
            episode.channel.attach(episode, on_step)
        elif isinstance(episode.channel, EpisodeChannel):
            episode.channel.attach(episode, on_step, self.arrivals)

    async def _open(self, program: ProgramRecord) -> Seat:
        """A process that has loaded the program, or a part in one that has."""
        if program.group_size > 1:
            return await self._groups.join(program)
        channel = await self._jails.spawn(program, PLAY_HASH_SEED)
        try:
            await replay.load(channel, program, describe=False)
        except BaseException:
            channel.close()
            raise
        return channel

    async def _begin(
        self,
        channel: Seat,
        program: ProgramRecord,
        item: pb.ResetItem,
        options_json: bytes,
        result: pb.ResetResult,
    ) -> Episode:
        timeout_s = timeout_of(item.timeout_s, program)
        first = await replay.reset(channel, item.seed, options_json, item.max_turns, timeout_s)
        tools = answers.checked_tools(first.extra)
        now = time.monotonic()
        episode = Episode(
            episode_id=self._episodes.new_id(),
            program=program,
            seed=item.seed,
            options_json=options_json,
            max_turns=item.max_turns,
            turn_cap=min(item.max_turns or program.limits.max_steps, program.limits.max_steps),
            started_at=now,
            last_used_at=now,
            channel=channel,
            reset_digest=observation_digest(first.observation),
            record_bytes=len(options_json),
        )
        last = first
        prefix_bytes = 0
        for action in item.prefix_actions:
            if episode.ended:
                raise InvalidRequestError(
                    f"the episode ended after {episode.next_index} of "
                    f"{len(item.prefix_actions)} prefix_actions"
                )
            replies = await replay.play(
                channel, [action], episode.turn_cap - episode.next_index, timeout_s
            )
            self._work.count_replayed()
            last = replies[0]
            step = self._record(episode, action, last)
            prefix_bytes += episode.last_result_bytes
            if prefix_bytes > _MAX_PREFIX_RESULTS_BYTES:
                raise InvalidRequestError("the results of prefix_actions are over 32 MiB")
            result.prefix_results.append(step)
        result.outcome = pb.OUTCOME_COMPLETED
        result.episode_id = episode.episode_id
        result.observation = last.observation
        result.observation_cut_bytes = last.cut_bytes
        result.info_json = last.info
        result.tools_json = tools
        return episode

    # -- step --------------------------------------------------------------------------

    def step(self, index: int, item: pb.StepItem, put: Sink) -> None:
        """Advance one episode; `put` gets the result once, now or later."""
        try:
            episode = self._episodes.find(item.episode_id)
            step_index = item.step_index
            if step_index != episode.next_index or episode.ended:
                self._answer_from_record(episode, index, item, put)
                return
            if episode.waiters:
                raise StepOrderError("the step before is in work; wait for its result")
            self._episodes.check_room()
            program = episode.program
            action = item.action
            check_action(program, action)
            timeout_s = timeout_of(item.timeout_s, program)
            self._work.admit_step()
        except SandboxError as error:
            put(pb.StepResult(index=index, error=item_from_error(error)))
            return
        episode.last_used_at = time.monotonic()
        episode.next_index = step_index + 1
        episode.actions.append(action)
        episode.record_bytes += len(action) + STEP_RECORD_BYTES
        self._episodes.note_growth(len(action) + STEP_RECORD_BYTES)
        episode.waiters.append((index, put))

        if self._work.begin_step(program.step_cost):
            self._start(episode, action, timeout_s)
        else:
            start = functools.partial(self._start, episode, action, timeout_s)
            self._work.wait(start, program.step_cost)

    def _start(self, episode: Episode, action: str, timeout_s: float) -> None:
        if episode.channel is None:
            # It was ended while its step waited for others.
            self.on_step(episode, Lost("the episode has ended"))
            return
        try:
            self.check_room()
        except SandboxError as error:
            # It waited while the results of those before it filled what there is.
            self._take_back(episode)
            self._tell(episode, pb.StepResult(error=item_from_error(error)), keep=False)
            self._work.end_step(episode.program.step_cost)
            return
        episode.channel.step(action, timeout_s)

    def check_room(self) -> None:
        """Check that there is memory for one more result.

        Raises:
            CapacityError, QuotaError: If there is none.
        """
        self._episodes.check_room()
        self._unread.admit()

    @staticmethod
    def _take_back(episode: Episode) -> None:
        """The last step has not been begun, and may come again."""
        episode.next_index -= 1
        episode.record_bytes -= len(episode.actions.pop()) + STEP_RECORD_BYTES

    def _answer_from_record(
        self, episode: Episode, index: int, item: pb.StepItem, put: Sink
    ) -> None:
        """A repeat of the last step is answered without running anything."""
        last = episode.next_index - 1
        if item.step_index == last and last >= 0 and episode.actions[last] == item.action:
            if episode.waiters:
                episode.waiters.append((index, put))
                return
            # The last step may have been lost: the result on record is then the one before.
            result = episode.recorded_result()
            if result is not None and result.step_index == last:
                put(_at_index(result, index))
                return
        if episode.ended == "lost":
            raise EpisodeLostError(
                "the episode's process is gone through no fault of its own; rebuild it by a reset "
                "with its actions as prefix_actions"
            )
        if episode.ended:
            raise EpisodeEndedError(f"the episode has ended ({episode.ended}); reset again")
        raise StepOrderError(
            f"step_index is {item.step_index}; the next one is {episode.next_index}"
            + (", and the last one had another action" if item.step_index == last else "")
        )

    def on_step(self, episode: Episode, answer: Answer) -> None:
        """A step is done: record it, and tell all who wait for it, whatever happens here."""
        try:
            self._settle(episode, answer)
        except Exception as error:
            about = Subject.of(episode.episode_id, episode.program.program_id)
            said = item_from_error(internal_error("step", error, about))
            self._episodes.end(episode, "internal")
            if episode.waiters:
                self._tell(episode, pb.StepResult(error=said), keep=False)
        self._work.end_step(episode.program.step_cost)

    def _settle(self, episode: Episode, answer: Answer) -> None:
        if type(answer) is frames.Reply:
            failure = None
            if answer.outcome != pb.OUTCOME_COMPLETED:
                failure = answers.failure_of(answer)
            elif answer.info:
                failure = answers.info_failure(answer.info)
            if failure is None:
                if episode.next_index >= episode.turn_cap and not answer.terminated:
                    answer = answer._replace(truncated=True)
                self._tell(episode, self._record(episode, None, answer))
                return
            answer = failure
        if isinstance(answer, Lost):
            # The action may have had no effect: the client rebuilds without it.
            self._episodes.end(episode, episode.ended or "lost")
            error = (
                EpisodeLostError(answer.why)
                if episode.ended == "lost"
                else EpisodeEndedError(f"the episode has ended ({episode.ended}); reset again")
            )
            self._tell(episode, pb.StepResult(error=item_from_error(error)), keep=False)
            return
        assert isinstance(answer, Failure)
        result = pb.StepResult(
            step_index=episode.next_index - 1,
            outcome=answer.outcome,
            diagnostic=answer.diagnostic,
        )
        self.steps_total += 1
        self._episodes.end(episode, outcome_name(answer.outcome))
        self._tell(episode, result)

    def _record(self, episode: Episode, action: str | None, reply: frames.Reply) -> pb.StepResult:
        """Write a COMPLETED step into the transcript; ends the episode where it ended.

        Args:
            action: Of a replayed step; None when `step` has noted it already.
        """
        if action is not None:
            episode.actions.append(action)
            episode.next_index += 1
            episode.record_bytes += len(action) + STEP_RECORD_BYTES
        self.steps_total += 1
        observation = reply.observation
        episode.steps.append(
            StepRecord(
                observation_digest(observation), reply.reward, reply.terminated, reply.truncated
            )
        )
        result = pb.StepResult(
            step_index=episode.next_index - 1,
            outcome=pb.OUTCOME_COMPLETED,
            observation=observation,
            reward=reply.reward,
            terminated=reply.terminated,
            truncated=reply.truncated,
            info_json=reply.info,
            observation_cut_bytes=reply.cut_bytes,
        )
        shown_bytes = len(observation) + len(reply.info)
        episode.record_bytes += shown_bytes - episode.last_result_bytes
        self._episodes.note_growth(shown_bytes - episode.last_result_bytes)
        episode.last_result_bytes = shown_bytes
        episode.last_result = result
        if reply.terminated or reply.truncated:
            self._episodes.end(episode, "terminated" if reply.terminated else "truncated")
        return result

    @staticmethod
    def _tell(episode: Episode, result: pb.StepResult, *, keep: bool = True) -> None:
        if keep:
            episode.last_result = result
        waiters, episode.waiters = episode.waiters, []
        # Nobody has seen the result yet, so the usual single waiter needs no copy of it.
        result.index = waiters[0][0]
        for index, put in waiters:
            put(_at_index(result, index))


def _at_index(result: pb.StepResult, index: int) -> pb.StepResult:
    """The result for one waiter: the record's own where the index fits, else a copy."""
    if result.index == index:
        return result
    copy = pb.StepResult()
    copy.CopyFrom(result)
    copy.index = index
    return copy
