"""Verification: a transcript replayed in a fresh process, and the program's own verify()."""

from __future__ import annotations

import asyncio
import json
import time

from sandbox_api.errors import (
    EpisodeLostError,
    InvalidRequestError,
    SandboxError,
    StepOrderError,
    UnavailableError,
    item_from_error,
)
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import answers, oracle, replay, trials
from sandbox_server.checks import check_oracle_seeds, check_trials, timeout_of
from sandbox_server.episode import Episode, StepRecord, observation_digest
from sandbox_server.episode_channel import EpisodeChannel
from sandbox_server.episodes import Episodes
from sandbox_server.failures import ProgramFailedError, internal_error
from sandbox_server.jail_pool import REPLAY_HASH_SEED, JailPool
from sandbox_server.telemetry.metrics import outcome_name
from sandbox_server.work import Work
from sandbox_server.worker import frames


class Verifier:
    """Replays episodes."""

    def __init__(self, jails: JailPool, episodes: Episodes, work: Work) -> None:
        self._jails = jails
        self._work = work
        self._episodes = episodes

    async def verify(self, index: int, item: pb.VerifyItem) -> pb.Verdict:
        """Replay one episode's transcript in a fresh process, and compare."""
        verdict = pb.Verdict(index=index)
        try:
            self._work.admit_replay()
            async with self._work.item():
                await self._verify(item, verdict)
        except TimeoutError:
            late = InvalidRequestError(
                "the replay did not end within limits.lifetime_s and was stopped; verify sooner, "
                "or register the program with a longer lifetime"
            )
            return pb.Verdict(index=index, error=item_from_error(late))
        except EpisodeLostError as error:
            # The replay's own process: the episode is as it was.
            again = UnavailableError(f"the replay broke off: {error}")
            return pb.Verdict(index=index, error=item_from_error(again))
        except SandboxError as error:
            return pb.Verdict(index=index, error=item_from_error(error))
        except Exception as error:
            said = item_from_error(internal_error("verify", error))
            return pb.Verdict(index=index, error=said)
        return verdict

    async def _verify(self, item: pb.VerifyItem, verdict: pb.Verdict) -> None:
        episode = self._episodes.find(item.episode_id)
        if episode.waiters:
            raise StepOrderError("a step of this episode is in work; wait for its result")
        timeout_s = timeout_of(item.timeout_s, episode.program)
        check_oracle_seeds(item.oracle_seeds)
        check_trials(episode.program, item.trials)
        episode.users += 1
        try:
            # Each call has its deadline; all of them together have that of an episode.
            async with asyncio.timeout(episode.program.limits.lifetime_s):
                await self._replay(episode, verdict, timeout_s)
                if episode.program.response.has_solution:
                    player = oracle.OraclePlayer(self._jails, self._work, episode, timeout_s)
                    if item.run_oracle:
                        await player.play(episode.seed, verdict.oracle)
                    if not item.run_oracle or oracle.won(verdict.oracle):
                        await player.play_in_turn(item.oracle_seeds, verdict.oracles)
                if item.trials:
                    await trials.play(self._jails, self._work, episode, item, verdict, timeout_s)
        finally:
            episode.users -= 1
            episode.last_used_at = time.monotonic()

    async def _replay(self, episode: Episode, verdict: pb.Verdict, timeout_s: float) -> None:
        verdict.has_verify = episode.program.response.has_verify
        # As it is now: the episode may go on meanwhile.
        actions, steps = list(episode.actions), list(episode.steps)
        last = episode.recorded_result()
        if len(actions) > len(steps) and (last is None or last.step_index != len(actions) - 1):
            # The last step was lost with its process: there is no result to compare with.
            actions.pop()
        channel = await self._jails.spawn(episode.program, REPLAY_HASH_SEED)
        step_index = -1
        try:
            first = await replay.start_over(channel, episode, timeout_s)
            digest = observation_digest(first.observation)
            if digest != episode.reset_digest:
                _diverge(verdict, -1, "observation", episode.reset_digest, digest)
                return
            for step_index, action in enumerate(actions):
                remaining = episode.turn_cap - step_index
                reply = (await replay.play(channel, [action], remaining, timeout_s))[0]
                self._work.count_replayed()
                if step_index >= len(steps):
                    # The record says that this step failed, and the replay did not.
                    recorded = outcome_name(last.outcome)  # type: ignore[union-attr]
                    _diverge(verdict, step_index, "outcome", recorded, "COMPLETED")
                    return
                if not self._same(verdict, step_index, steps[step_index], reply):
                    return
        except ProgramFailedError as error:
            failed = outcome_name(error.failure.outcome)
            if step_index >= len(steps) and last is not None:
                # The record's last step failed, and so did the replay's.
                verdict.reproduced = last.outcome == error.failure.outcome
                if not verdict.reproduced:
                    _diverge(verdict, step_index, "outcome", outcome_name(last.outcome), failed)
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
    async def _own_verify(channel: EpisodeChannel, verdict: pb.Verdict, timeout_s: float) -> None:
        try:
            reply = await replay.call(channel, frames.VERIFY, b"", timeout_s)
            told = json.loads(reply.extra)
            verified, message = bool(told["verified"]), answers.cut(told["message"], 2_000)
            verdict.verify_outcome = pb.OUTCOME_COMPLETED
            verdict.verified = verified
            verdict.verify_message = message
        except ProgramFailedError as error:
            verdict.verify_outcome = error.failure.outcome
            verdict.diagnostic.CopyFrom(error.failure.diagnostic)
        except answers.MALFORMED:
            verdict.verify_outcome = pb.OUTCOME_PROTOCOL_VIOLATION


def _diverge(verdict: pb.Verdict, step_index: int, field: str, old: str, new: str) -> None:
    verdict.reproduced = False
    verdict.divergence.CopyFrom(
        pb.Divergence(step_index=step_index, field=field, recorded=old[:500], replayed=new[:500])
    )
