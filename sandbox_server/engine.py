"""Programs, episodes and admission: what the service does, without gRPC."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import hashlib
import json
import logging
import secrets
from collections.abc import Callable
from typing import Any

from sandbox_api.errors import (
    CapacityError,
    EpisodeEndedError,
    EpisodeLostError,
    EpisodeNotFoundError,
    InternalError,
    InvalidRequestError,
    ProgramNotFoundError,
    SandboxError,
    StepOrderError,
    UnavailableError,
    item_from_error,
)
from sandbox_api.types import Limits
from sandbox_api.v1 import sandbox_pb2 as pb

import sandbox_server
from sandbox_server import probe, replay
from sandbox_server.backends import BACKENDS, Backend, BackendError
from sandbox_server.channel import Answer, Channel, Failure, Lost
from sandbox_server.config import ServerConfig
from sandbox_server.episode import Episode, ProgramRecord, StepRecord, observation_digest
from sandbox_server.jail import Jail, JailDeadError, JailFullError
from sandbox_server.poller import Poller
from sandbox_server.runtime import Runtime
from sandbox_server.worker import frames

_log = logging.getLogger(__name__)

# PYTHONHASHSEED of the jail that plays, and of the one that replays: an environment
# whose transcript depends on the order of a set differs between the two.
PLAY_HASH_SEED, REPLAY_HASH_SEED = 0, 1

_SWEEP_INTERVAL_S = 1.0

# Written out and read again by processes with less stack left than the one that read it.
_MAX_OPTIONS_DEPTH = 64

# What the record of a step takes beside its action.
_STEP_RECORD_BYTES = 400
# Results of a reset's prefix actions must fit in one message, whatever its size.
_MAX_PREFIX_RESULTS_BYTES = 32 * 1024 * 1024

Put = Callable[[pb.StepResult], None]


class Engine:
    """One server's state. Everything runs on one event loop; nothing here blocks."""

    def __init__(self, config: ServerConfig, runtimes: dict[str, Runtime]) -> None:
        self.config = config
        self.runtimes = runtimes
        self._backend: Backend = BACKENDS[config.backend](config)
        self._programs: dict[str, ProgramRecord] = {}
        self._episodes: dict[str, Episode] = {}
        self._jails: dict[tuple[str, int], Jail] = {}
        self._live = 0
        self._pending_items = 0
        self._steps_total = 0
        self._ended_total: collections.Counter[str] = collections.Counter()
        self._draining = False
        self._records_full = False
        self._restarts: set[asyncio.Task[None]] = set()

    # -- life --------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all jails.

        Raises:
            BackendError: If one does not come up; a server without its protections does
                not serve.
        """
        self._loop = asyncio.get_running_loop()
        self._poller = Poller(self._loop)
        wanted = [
            (runtime, seed)
            for runtime in self.runtimes
            for seed in (PLAY_HASH_SEED, REPLAY_HASH_SEED)
        ]
        await asyncio.gather(*(self._start_jail(name, seed) for name, seed in wanted))
        self._sweeper = asyncio.create_task(self._sweep())
        if self._backend.isolates:
            await self._probe()

    async def _probe(self) -> None:
        for name in self.runtimes:
            found = await probe.weaknesses(self, name)
            if found:
                await self.close()
                told = "; ".join(f"{what}: {why}" for what, why in found.items())
                raise BackendError(
                    f"the jail of runtime {name!r} does not hold ({told}); run "
                    "`spadework doctor` to see what this machine lacks"
                )
        # The probe is nobody's program: it leaves no trace in what clients are told.
        self._programs.clear()
        self._ended_total.clear()
        self._steps_total = 0

    async def _start_jail(self, runtime: str, hash_seed: int) -> None:
        jail = Jail(
            self._backend,
            self.runtimes[runtime],
            hash_seed,
            self.config,
            self._poller,
            self._loop,
            self._on_jail_dead,
        )
        await jail.ready()
        self._jails[runtime, hash_seed] = jail

    def _on_jail_dead(self, jail: Jail) -> None:
        key = (jail.runtime.name, jail.hash_seed)
        if self._jails.get(key) is not jail:
            return
        del self._jails[key]
        if not self._draining:
            task = self._loop.create_task(self._restart_jail(*key))
            self._restarts.add(task)
            task.add_done_callback(self._restarts.discard)

    async def _restart_jail(self, runtime: str, hash_seed: int) -> None:
        delay_s = 0.1
        while not self._draining:
            try:
                await self._start_jail(runtime, hash_seed)
                return
            except Exception:
                _log.exception("could not restart the jail of runtime %s", runtime)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, 10.0)

    async def close(self) -> None:
        """End every episode and jail."""
        self._draining = True
        self._sweeper.cancel()
        for task in self._restarts:
            task.cancel()
        for jail in list(self._jails.values()):
            jail.close()
        self._poller.close()

    async def _sweep(self) -> None:
        """End episodes that are idle or too old, and forget old records."""
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL_S)
            now = self._loop.time()
            for episode in list(self._episodes.values()):
                limits = episode.program.limits
                busy = bool(episode.waiters) or episode.users > 0
                if now - episode.started_at > limits.lifetime_s:
                    self._end(episode, "lifetime")
                    self._forget(episode)
                elif not busy and now - episode.last_used_at > limits.idle_timeout_s:
                    self._end(episode, "idle")
                    self._forget(episode)
            self._bound_records()

    def _bound_records(self) -> None:
        excess = len(self._episodes) - self.config.max_records
        if excess > 0:
            ended = [e for e in self._episodes.values() if not e.live][:excess]
            for episode in ended:
                self._forget(episode)
        excess_bytes = -self.config.max_record_bytes
        for episode in self._episodes.values():
            excess_bytes += episode.record_bytes
        if excess_bytes > 0:
            for episode in [e for e in self._episodes.values() if not e.live]:
                self._forget(episode)
                excess_bytes -= episode.record_bytes
                if excess_bytes <= 0:
                    break
        self._records_full = excess_bytes > 0

    def _forget(self, episode: Episode) -> None:
        self._episodes.pop(episode.episode_id, None)

    def _end(self, episode: Episode, why: str) -> None:
        """No further step is possible; the process goes, the record stays."""
        if episode.channel is not None:
            self._ended_total[why] += 1
            channel, episode.channel = episode.channel, None
            episode.ended = why
            channel.close()

    # -- programs ----------------------------------------------------------------------

    async def register(self, request: pb.RegisterProgramRequest) -> pb.RegisterProgramResponse:
        """Store a program and load it once.

        Raises:
            InvalidRequestError: If the request is wrong.
            CapacityError: If the server is full.
            UnavailableError: If its jail is being restarted.
        """
        program = self._program(request)
        known = self._programs.get(program.program_id)
        if known is not None:
            return known.response
        response = program.response
        channel = None
        try:
            channel = await self._spawn(program, PLAY_HASH_SEED)
            program.code = await replay.compile_program(channel, program)
            reply = await replay.load(channel, program, describe=True)
            told = json.loads(reply.extra)
            response.outcome = pb.OUTCOME_COMPLETED
            if told["kind"] not in pb.ProgramKind.values():
                raise ValueError("no such kind")
            response.kind = int(told["kind"])
            response.entry = replay.cut(told["entry"], 500)
            response.has_verify = bool(told["has_verify"])
            response.has_solution = bool(told["has_solution"])
            if told["tools"]:
                response.tools_json = replay.tools_json(told["tools"])
        except replay.ProgramFailedError as error:
            response.outcome = error.failure.outcome
            response.diagnostic.CopyFrom(error.failure.diagnostic)
            return response
        except EpisodeLostError as error:
            raise UnavailableError(str(error), self.config.retry_delay_s) from None
        except replay.MALFORMED:
            failure = replay.malformed("a description that is not one")
            return pb.RegisterProgramResponse(
                program_id=program.program_id,
                limits=program.limits,
                outcome=failure.outcome,
                diagnostic=failure.diagnostic,
            )
        finally:
            if channel is not None:
                channel.close()
        while len(self._programs) >= self.config.max_programs:
            del self._programs[next(iter(self._programs))]
        self._programs[program.program_id] = program
        return response

    def _program(self, request: pb.RegisterProgramRequest) -> ProgramRecord:
        source = request.source
        if not source.strip():
            raise InvalidRequestError("source is empty")
        size = len(source.encode())
        if size > self.config.max_program_bytes:
            raise InvalidRequestError(
                f"source is {size} bytes; this server allows {self.config.max_program_bytes}"
            )
        runtime = request.runtime or "stdlib"
        if runtime not in self.runtimes:
            raise InvalidRequestError(
                f"no runtime {runtime!r}; this server has {', '.join(sorted(self.runtimes))}"
            )
        asked = Limits.from_proto(request.limits)
        limits = self.config.resolve_limits(asked).to_proto()
        jail = self._jails.get((runtime, PLAY_HASH_SEED))
        if limits.max_processes > 1 and jail is not None and not jail.may_fork:
            raise InvalidRequestError(
                "limits.max_processes over 1 needs a user id per episode, which this "
                "server cannot map; run it as root, or keep max_processes at 1"
            )
        text = json.dumps([source, request.entry, runtime]).encode()
        digest = hashlib.sha256(text + limits.SerializeToString(deterministic=True))
        program_id = digest.hexdigest()
        response = pb.RegisterProgramResponse(program_id=program_id, limits=limits)
        return ProgramRecord(program_id, source, request.entry, runtime, limits, response)

    # -- processes ---------------------------------------------------------------------

    async def _spawn(self, program: ProgramRecord, hash_seed: int) -> Channel:
        """Fork one locked-down process, within the bound on live episodes."""
        if self._draining:
            raise UnavailableError("the server is draining")
        if self._live >= self.config.max_episodes:
            raise CapacityError(
                f"{self._live} episodes are live, the server's bound; close some, or wait",
                self.config.retry_delay_s,
            )
        jail = self._jails.get((program.runtime, hash_seed))
        if jail is None or jail.dead:
            raise UnavailableError("the jail is being restarted", self.config.retry_delay_s)
        self._live += 1
        try:
            return await jail.spawn(program.limits, self._on_channel_end)
        except JailFullError as error:
            # There is no channel, whose end would count it down.
            self._live -= 1
            raise CapacityError(str(error), self.config.retry_delay_s) from None
        except JailDeadError as error:
            raise UnavailableError(str(error), self.config.retry_delay_s) from None

    def _on_channel_end(self, _: Channel) -> None:
        self._live -= 1

    # -- reset -------------------------------------------------------------------------

    async def reset(self, index: int, item: pb.ResetItem) -> pb.ResetResult:
        """Start one episode. Service errors come back in the result."""
        result = pb.ResetResult(index=index)
        channel: Channel | None = None
        try:
            program = self._known_program(item.program_id)
            options = self._options(item.options_json)
            self._check_prefix(program, item.prefix_actions)
            channel = await self._spawn(program, PLAY_HASH_SEED)
            episode = await self._begin(channel, program, item, options, result)
            if episode is not None:
                self._episodes[episode.episode_id] = episode
                if episode.live:
                    channel = None
        except replay.ProgramFailedError as error:
            result.outcome = error.failure.outcome
            result.diagnostic.CopyFrom(error.failure.diagnostic)
            self._ended_total[_outcome_name(result.outcome)] += 1
        except SandboxError as error:
            return pb.ResetResult(index=index, error=item_from_error(error))
        except Exception:
            return pb.ResetResult(index=index, error=item_from_error(_internal("reset")))
        finally:
            if channel is not None:
                channel.close()
        return result

    async def _begin(
        self,
        channel: Channel,
        program: ProgramRecord,
        item: pb.ResetItem,
        options: dict[str, Any],
        result: pb.ResetResult,
    ) -> Episode | None:
        timeout_s = self._timeout(item.timeout_s, program)
        await replay.load(channel, program, describe=False)
        first = await replay.reset(channel, item.seed, options, item.max_turns, timeout_s)
        tools = replay.checked_tools(first.extra)
        now = self._loop.time()
        episode = Episode(
            episode_id=secrets.token_urlsafe(16),
            program=program,
            seed=item.seed,
            options=options,
            max_turns=item.max_turns,
            turn_cap=min(item.max_turns or program.limits.max_steps, program.limits.max_steps),
            started_at=now,
            last_used_at=now,
            channel=channel,
            reset_digest=observation_digest(first.observation),
            record_bytes=len(item.options_json),
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

    def _known_program(self, program_id: str) -> ProgramRecord:
        program = self._programs.get(program_id)
        if program is None:
            raise ProgramNotFoundError(
                f"no program {program_id[:16]!r}; register it (a restarted server forgets)"
            )
        return program

    def _options(self, options_json: bytes) -> dict[str, Any]:
        if not options_json:
            return {}
        most = self.config.max_options_bytes
        if len(options_json) > most:
            raise InvalidRequestError(
                f"options_json is {len(options_json)} bytes; this server takes {most}"
            )
        try:
            options = json.loads(options_json)
        except (ValueError, RecursionError):
            options = None
        if not isinstance(options, dict):
            raise InvalidRequestError("options_json is no JSON object")
        if _is_deeper_than(options, _MAX_OPTIONS_DEPTH):
            raise InvalidRequestError(
                f"options_json is nested deeper than {_MAX_OPTIONS_DEPTH} levels"
            )
        return options

    @staticmethod
    def _check_action(program: ProgramRecord, action: str) -> None:
        limit = program.limits.max_action_bytes
        # A character is at most 4 bytes: most actions need no encoding to be judged.
        if len(action) * 4 > limit and len(action.encode()) > limit:
            raise InvalidRequestError(
                f"the action is {len(action.encode())} bytes; max_action_bytes is {limit}"
            )

    def _check_prefix(self, program: ProgramRecord, actions: Any) -> None:
        for action in actions:
            self._check_action(program, action)

    @staticmethod
    def _timeout(asked_s: float, program: ProgramRecord) -> float:
        if not 0 <= asked_s <= 3_600:
            raise InvalidRequestError(f"timeout_s is {asked_s:g}; it must be from 0 to 3600")
        return asked_s or program.limits.step_timeout_s

    # -- step --------------------------------------------------------------------------

    def step(self, index: int, item: pb.StepItem, put: Put) -> None:
        """Advance one episode; `put` gets the result once, now or later."""
        try:
            episode = self._episodes.get(item.episode_id)
            if episode is None:
                raise EpisodeNotFoundError(
                    "no such episode: it was closed, ended long ago, or never was"
                )
            step_index = item.step_index
            if step_index != episode.next_index or episode.ended:
                self._answer_from_record(episode, index, item, put)
                return
            if episode.waiters:
                raise StepOrderError("the step before is in work; wait for its result")
            if self._records_full:
                raise CapacityError(
                    "the transcripts of live episodes fill the server's bound on records; "
                    "close some episodes",
                    self.config.retry_delay_s,
                )
            program = episode.program
            action = item.action
            self._check_action(program, action)
            timeout_s = item.timeout_s
            if timeout_s:
                timeout_s = self._timeout(timeout_s, program)
            else:
                timeout_s = program.limits.step_timeout_s
            if self._pending_items >= self.config.max_pending_items:
                raise CapacityError(
                    f"{self._pending_items} items are in work, the server's bound",
                    self.config.retry_delay_s,
                )
        except SandboxError as error:
            put(pb.StepResult(index=index, error=item_from_error(error)))
            return
        self._pending_items += 1
        episode.last_used_at = self._loop.time()
        episode.next_index = step_index + 1
        episode.actions.append(action)
        episode.record_bytes += len(action) + _STEP_RECORD_BYTES
        episode.waiters.append((index, put))
        episode.channel.request(  # type: ignore[union-attr]
            frames.STEP,
            action.encode(),
            timeout_s,
            lambda answer: self._on_step(episode, answer),
        )

    def _answer_from_record(
        self, episode: Episode, index: int, item: pb.StepItem, put: Put
    ) -> None:
        """A repeat of the last step is answered without running anything."""
        last = episode.next_index - 1
        if item.step_index == last and last >= 0 and episode.actions[last] == item.action:
            if episode.waiters:
                episode.waiters.append((index, put))
                return
            # The last step may have been lost: the result on record is then the one before.
            if episode.last_result is not None and episode.last_result.step_index == last:
                put(_at_index(episode.last_result, index))
                return
        if episode.ended == "lost":
            raise EpisodeLostError("the episode's process is gone through no fault of its own")
        if episode.ended:
            raise EpisodeEndedError(f"the episode has ended ({episode.ended}); reset again")
        raise StepOrderError(
            f"step_index is {item.step_index}; the next one is {episode.next_index}"
            + (", and the last one had another action" if item.step_index == last else "")
        )

    def _on_step(self, episode: Episode, answer: Answer) -> None:
        """A step is done: record it, and tell all who wait for it, whatever happens here."""
        self._pending_items -= 1
        try:
            self._settle(episode, answer)
        except Exception:
            self._end(episode, "internal")
            if episode.waiters:
                error = item_from_error(_internal("step"))
                self._tell(episode, pb.StepResult(error=error), keep=False)

    def _settle(self, episode: Episode, answer: Answer) -> None:
        if type(answer) is frames.Reply:
            failure = None
            if answer.outcome != pb.OUTCOME_COMPLETED:
                failure = replay.failure_of(answer)
            elif answer.info:
                failure = replay.info_failure(answer.info)
            if failure is None:
                if episode.next_index >= episode.turn_cap and not answer.terminated:
                    answer = answer._replace(truncated=True)
                self._tell(episode, self._record(episode, None, answer))
                return
            answer = failure
        if isinstance(answer, Lost):
            # The action may have had no effect: the client rebuilds without it.
            self._end(episode, episode.ended or "lost")
            error = (
                EpisodeLostError(answer.why)
                if episode.ended == "lost"
                else EpisodeEndedError(f"the episode has ended ({episode.ended})")
            )
            self._tell(episode, pb.StepResult(error=item_from_error(error)), keep=False)
            return
        assert isinstance(answer, Failure)
        result = pb.StepResult(
            step_index=episode.next_index - 1,
            outcome=answer.outcome,
            diagnostic=answer.diagnostic,
        )
        self._steps_total += 1
        self._end(episode, _outcome_name(answer.outcome))
        self._tell(episode, result)

    def _record(self, episode: Episode, action: str | None, reply: frames.Reply) -> pb.StepResult:
        """Write a COMPLETED step into the transcript; ends the episode where it ended.

        Args:
            action: Of a replayed step; None when `step` has noted it already.
        """
        if action is not None:
            episode.actions.append(action)
            episode.next_index += 1
            episode.record_bytes += len(action) + _STEP_RECORD_BYTES
        self._steps_total += 1
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
        episode.last_result_bytes = shown_bytes
        episode.last_result = result
        if reply.terminated or reply.truncated:
            self._end(episode, "terminated" if reply.terminated else "truncated")
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

    # -- fork, close, info -------------------------------------------------------------

    async def fork(self, request: pb.ForkRequest) -> list[str]:
        """Copy a running episode.

        Raises:
            InvalidRequestError: If its program may not fork so often.
            EpisodeNotFoundError, EpisodeEndedError, StepOrderError: As for a step.
        """
        episode = self._episodes.get(request.episode_id)
        if episode is None:
            raise EpisodeNotFoundError("no such episode")
        if episode.channel is None:
            raise EpisodeEndedError(f"the episode has ended ({episode.ended})")
        if episode.waiters:
            raise StepOrderError("a step of this episode is in work; wait for its result")
        limits = episode.program.limits
        if not 1 <= request.copies <= limits.max_processes - 1:
            raise InvalidRequestError(
                f"copies is {request.copies}; this program was registered with "
                f"limits.max_processes = {limits.max_processes}, which allows "
                f"{limits.max_processes - 1}: register it with more"
            )
        jail = self._jails.get((episode.program.runtime, PLAY_HASH_SEED))
        if jail is None:
            raise UnavailableError("the jail is being restarted", self.config.retry_delay_s)
        copies: list[Episode] = []
        try:
            while len(copies) < request.copies:
                copies.append(await self._copy(episode, jail))
        except BaseException:
            # Cancelled, too: nobody will be told of these.
            self._close_all(copies)
            raise
        return [copy.episode_id for copy in copies]

    async def _copy(self, episode: Episode, jail: Jail) -> Episode:
        """Copy a process once, and its record as it was when the copy was asked for."""
        original = episode.channel
        if original is None:
            raise EpisodeEndedError(f"the episode has ended ({episode.ended})")
        if episode.waiters:
            raise StepOrderError("a step of this episode is in work; wait for its result")
        if self._live >= self.config.max_episodes:
            raise CapacityError("no room for the copies", self.config.retry_delay_s)
        now = self._loop.time()
        copy = dataclasses.replace(
            episode,
            episode_id=secrets.token_urlsafe(16),
            started_at=now,
            last_used_at=now,
            channel=None,
            users=0,
            actions=list(episode.actions),
            steps=list(episode.steps),
            waiters=[],
        )
        limits = episode.program.limits
        self._live += 1
        copied: Channel | Answer | None = None
        try:
            copied = await jail.fork(original, limits, limits.step_timeout_s, self._on_channel_end)
        except JailFullError as error:
            raise CapacityError(str(error), self.config.retry_delay_s) from None
        finally:
            if not isinstance(copied, Channel):
                self._live -= 1
        if isinstance(copied, Lost | Failure):
            self._end(episode, "lost")
            raise EpisodeLostError("the episode ended while it was copied")
        if not isinstance(copied, Channel):
            raise CapacityError(
                "the kernel refused the copy: max_processes of this episode and its "
                "copies is reached",
                self.config.retry_delay_s,
            )
        copy.channel = copied
        self._episodes[copy.episode_id] = copy
        return copy

    def _close_all(self, episodes: list[Episode]) -> None:
        for episode in episodes:
            self._end(episode, "closed")
            self._forget(episode)

    def close_episodes(self, episode_ids: list[str]) -> int:
        """End episodes and forget them; ids that are not there are no error."""
        found = [self._episodes[i] for i in dict.fromkeys(episode_ids) if i in self._episodes]
        self._close_all(found)
        return len(found)

    def info(self) -> pb.GetServerInfoResponse:
        return pb.GetServerInfoResponse(
            version=sandbox_server.__version__,
            backend=self.config.backend,
            isolation=self._backend.isolation(),
            runtimes=[
                pb.Runtime(name=r.name, python_version=r.python_version, packages=r.packages)
                for r in self.runtimes.values()
            ],
            default_limits=self.config.resolve_limits(Limits()).to_proto(),
            max_limits=self.config.max_limits.to_proto(),
            max_episodes=self.config.max_episodes,
            max_batch_items=self.config.max_batch_items,
            max_pending_items=self.config.max_pending_items,
            load=pb.Load(
                live_episodes=self._live,
                pending_items=self._pending_items,
                programs=len(self._programs),
                jails=len(self._jails),
                steps_total=self._steps_total,
                ended_total=dict(self._ended_total),
            ),
        )

    # -- verify ------------------------------------------------------------------------

    async def verify(self, index: int, item: pb.VerifyItem) -> pb.Verdict:
        """Replay one episode's transcript in a fresh process, and compare."""
        verdict = pb.Verdict(index=index)
        try:
            episode = self._episodes.get(item.episode_id)
            if episode is None:
                raise EpisodeNotFoundError("no such episode: it was closed, or never was")
            if episode.waiters:
                raise StepOrderError("a step of this episode is in work; wait for its result")
            timeout_s = self._timeout(item.timeout_s, episode.program)
            episode.users += 1
            try:
                # Each call has its deadline; all of them together have that of an episode.
                async with asyncio.timeout(episode.program.limits.lifetime_s):
                    await self._replay(episode, verdict, timeout_s)
                    if item.run_oracle and episode.program.response.has_solution:
                        await self._run_oracle(episode, verdict, timeout_s)
            finally:
                episode.users -= 1
                episode.last_used_at = self._loop.time()
        except TimeoutError:
            late = CapacityError("the replay took longer than limits.lifetime_s; it was ended")
            return pb.Verdict(index=index, error=item_from_error(late))
        except SandboxError as error:
            return pb.Verdict(index=index, error=item_from_error(error))
        except Exception:
            return pb.Verdict(index=index, error=item_from_error(_internal("verify")))
        return verdict

    async def _replay(self, episode: Episode, verdict: pb.Verdict, timeout_s: float) -> None:
        verdict.has_verify = episode.program.response.has_verify
        # As it is now: the episode may go on meanwhile.
        actions, steps, last = list(episode.actions), list(episode.steps), episode.last_result
        if len(actions) > len(steps) and (last is None or last.step_index != len(actions) - 1):
            # The last step was lost with its process: there is no result to compare with.
            actions.pop()
        channel = await self._spawn(episode.program, REPLAY_HASH_SEED)
        step_index = -1
        try:
            await replay.load(channel, episode.program, describe=False)
            first = await replay.reset(
                channel, episode.seed, episode.options, episode.max_turns, timeout_s
            )
            digest = observation_digest(first.observation)
            if digest != episode.reset_digest:
                _diverge(verdict, -1, "observation", episode.reset_digest, digest)
                return
            for step_index, action in enumerate(actions):
                remaining = episode.turn_cap - step_index
                reply = (await replay.play(channel, [action], remaining, timeout_s))[0]
                if step_index >= len(steps):
                    # The record says that this step failed, and the replay did not.
                    recorded = _outcome_name(last.outcome)  # type: ignore[union-attr]
                    _diverge(verdict, step_index, "outcome", recorded, "COMPLETED")
                    return
                if not self._same(verdict, step_index, steps[step_index], reply):
                    return
        except replay.ProgramFailedError as error:
            failed = _outcome_name(error.failure.outcome)
            if step_index >= len(steps) and last is not None:
                # The record's last step failed, and so did the replay's.
                verdict.reproduced = last.outcome == error.failure.outcome
                if not verdict.reproduced:
                    _diverge(verdict, step_index, "outcome", _outcome_name(last.outcome), failed)
            else:
                _diverge(verdict, step_index, "outcome", "COMPLETED", failed)
                verdict.diagnostic.CopyFrom(error.failure.diagnostic)
            return
        else:
            verdict.reproduced = True
            if verdict.has_verify:
                await self._own_verify(channel, verdict, timeout_s)
        finally:
            channel.close()

    @staticmethod
    def _same(
        verdict: pb.Verdict, step_index: int, recorded: StepRecord, reply: frames.Reply
    ) -> bool:
        replayed = StepRecord(
            observation_digest(reply.observation), reply.reward, reply.terminated, reply.truncated
        )
        names = ("observation", "reward", "terminated", "truncated")
        for name, old, new in zip(names, recorded, replayed, strict=True):
            if old != new:
                shown = reply.observation if name == "observation" else str(new)
                _diverge(verdict, step_index, name, str(old), shown)
                return False
        return True

    @staticmethod
    async def _own_verify(channel: Channel, verdict: pb.Verdict, timeout_s: float) -> None:
        try:
            reply = await replay.call(channel, frames.VERIFY, b"", timeout_s)
            told = json.loads(reply.extra)
            verified, message = bool(told["verified"]), replay.cut(told["message"], 2_000)
            verdict.verify_outcome = pb.OUTCOME_COMPLETED
            verdict.verified = verified
            verdict.verify_message = message
        except replay.ProgramFailedError as error:
            verdict.verify_outcome = error.failure.outcome
            verdict.diagnostic.CopyFrom(error.failure.diagnostic)
        except replay.MALFORMED:
            verdict.verify_outcome = pb.OUTCOME_PROTOCOL_VIOLATION

    async def _run_oracle(self, episode: Episode, verdict: pb.Verdict, timeout_s: float) -> None:
        """Ask a fresh process for its solution, and play it in another until a plan wins."""
        oracle = verdict.oracle
        try:
            for plan in await self._plans(episode, timeout_s):
                replies = await self._play_plan(episode, plan, timeout_s)
                last = replies[-1] if replies else None
                oracle.Clear()
                oracle.outcome = pb.OUTCOME_COMPLETED
                oracle.actions.extend(plan[: len(replies)])
                oracle.final_reward = last.reward if last else 0.0
                oracle.terminated = last.terminated if last else False
                oracle.truncated = last.truncated if last else False
                if oracle.terminated and oracle.final_reward > 0:
                    return
        except replay.ProgramFailedError as error:
            oracle.Clear()
            oracle.outcome = error.failure.outcome
            oracle.diagnostic.CopyFrom(error.failure.diagnostic)

    async def _plans(self, episode: Episode, timeout_s: float) -> list[list[str]]:
        channel = await self._spawn(episode.program, REPLAY_HASH_SEED)
        try:
            await self._start_over(channel, episode, timeout_s)
            reply = await replay.call(channel, frames.SOLUTION, b"", timeout_s)
            return replay.oracle_plans(json.loads(reply.extra)["solution"])
        except replay.MALFORMED:
            failure = replay.malformed("a solution that is not one")
            raise replay.ProgramFailedError(failure) from None
        finally:
            channel.close()

    async def _play_plan(
        self, episode: Episode, plan: list[str], timeout_s: float
    ) -> list[frames.Reply]:
        channel = await self._spawn(episode.program, REPLAY_HASH_SEED)
        try:
            await self._start_over(channel, episode, timeout_s)
            return await replay.play(channel, plan, episode.turn_cap, timeout_s)
        finally:
            channel.close()

    @staticmethod
    async def _start_over(channel: Channel, episode: Episode, timeout_s: float) -> None:
        await replay.load(channel, episode.program, describe=False)
        await replay.reset(channel, episode.seed, episode.options, episode.max_turns, timeout_s)


def _is_deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        inner: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                inner += container.values()
            elif isinstance(container, list):
                inner += container
        if not inner:
            return False
        level = inner
    return True


def _at_index(result: pb.StepResult, index: int) -> pb.StepResult:
    """The result for one waiter: the record's own where the index fits, else a copy."""
    if result.index == index:
        return result
    copy = pb.StepResult()
    copy.CopyFrom(result)
    copy.index = index
    return copy


def _diverge(verdict: pb.Verdict, step_index: int, field: str, old: str, new: str) -> None:
    verdict.reproduced = False
    verdict.divergence.CopyFrom(
        pb.Divergence(step_index=step_index, field=field, recorded=old[:500], replayed=new[:500])
    )


def _outcome_name(outcome: int) -> str:
    return pb.Outcome.Name(outcome).removeprefix("OUTCOME_")


def _internal(what: str) -> InternalError:
    request_id = secrets.token_hex(8)
    _log.exception("%s failed; request id %s", what, request_id)
    return InternalError(f"the server failed; its log has request id {request_id}")
