"""The oracle: a program's own solution(), played in a fresh process."""

from __future__ import annotations

import json
import re
from collections.abc import MutableSequence, Sequence
from typing import Any

from sandbox_api.errors import EpisodeLostError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import answers, replay
from sandbox_server.episode import Episode
from sandbox_server.episode_channel import EpisodeChannel
from sandbox_server.failures import ProgramFailedError
from sandbox_server.jail_pool import REPLAY_HASH_SEED, JailPool
from sandbox_server.work import Work
from sandbox_server.worker import frames

# The number only: a pattern for the rest of the line would try every space in it as its
# end, which takes minutes on a line that a program made for that.
_STEP_NUMBER = re.compile(r"(?:step\s*)?\d+\s*[.):]", re.IGNORECASE)


class OraclePlayer:
    """Plays the solution() of an episode's program, with that episode's options.

    Args:
        jails: Where the processes come from.
        work: Where its steps count.
        episode: Whose program and options to use.
        timeout_s: Wall seconds of each call.
    """

    def __init__(self, jails: JailPool, work: Work, episode: Episode, timeout_s: float) -> None:
        self._jails = jails
        self._work = work
        self._episode = episode
        self._timeout_s = timeout_s

    async def play(self, seed: int, oracle: pb.OracleResult) -> None:
        """Ask a fresh process for its solution, and play it in another until a plan wins.

        Args:
            seed: To reset both with.
            oracle: Filled in with what came of it.

        Raises:
            CapacityError, UnavailableError: If there is no process to be had.
            EpisodeLostError: If one is gone through no fault of the program.
        """
        try:
            for plan in await self._plans(seed):
                channel = await self._started(seed)
                try:
                    await self._play_plan(channel, plan, oracle)
                finally:
                    channel.close()
                if won(oracle):
                    return
        except ProgramFailedError as error:
            oracle.Clear()
            oracle.outcome = error.failure.outcome
            oracle.diagnostic.CopyFrom(error.failure.diagnostic)

    async def play_in_turn(
        self, seeds: Sequence[int], oracles: MutableSequence[pb.OracleResult]
    ) -> None:
        """Play solution() on seeds one after the other, in one process for all that win.

        What a program keeps from one episode to the next never counts against it: a seed whose
        solution does not win there is played again as `play` does. One that does not win then
        is the last.

        Args:
            seeds: To reset with.
            oracles: Gets a result for each.

        Raises:
            CapacityError, UnavailableError: If there is no process to be had.
            EpisodeLostError: If one is gone through no fault of the program.
        """
        channel: EpisodeChannel | None = None
        try:
            for seed in seeds:
                oracle = pb.OracleResult()
                try:
                    if channel is None:
                        channel = await self._jails.spawn(self._episode.program, REPLAY_HASH_SEED)
                        await replay.load(channel, self._episode.program, describe=False)
                    await self._play_shared(channel, seed, oracle)
                except (ProgramFailedError, EpisodeLostError):
                    if channel is not None:
                        channel.close()
                        channel = None
                if not won(oracle):
                    oracle.Clear()
                    await self.play(seed, oracle)
                oracles.append(oracle)
                if not won(oracle):
                    return
        finally:
            if channel is not None:
                channel.close()

    async def _play_shared(
        self, channel: EpisodeChannel, seed: int, oracle: pb.OracleResult
    ) -> None:
        await self._reset(channel, seed)
        for plan in await self._solve(channel):
            # It starts anew: a solution() that plays to find out may have moved the world.
            end = await replay.play_whole(channel, self._episode, seed, plan, self._timeout_s)
            self._work.count_replayed(end.steps)
            oracle.Clear()
            oracle.outcome = pb.OUTCOME_COMPLETED
            oracle.actions.extend(plan[: end.steps])
            oracle.final_reward = end.reward
            oracle.terminated, oracle.truncated = end.terminated, end.truncated
            if won(oracle):
                return

    async def _plans(self, seed: int) -> list[list[str]]:
        channel = await self._started(seed)
        try:
            return await self._solve(channel)
        finally:
            channel.close()

    async def _started(self, seed: int) -> EpisodeChannel:
        channel = await self._jails.spawn(self._episode.program, REPLAY_HASH_SEED)
        try:
            await replay.start_over(channel, self._episode, self._timeout_s, seed)
        except BaseException:
            channel.close()
            raise
        return channel

    async def _reset(self, channel: EpisodeChannel, seed: int) -> None:
        episode = self._episode
        await replay.reset(channel, seed, episode.options_json, episode.max_turns, self._timeout_s)

    async def _solve(self, channel: EpisodeChannel) -> list[list[str]]:
        try:
            reply = await replay.call(channel, frames.SOLUTION, b"", self._timeout_s)
            return plans_of(json.loads(reply.extra)["solution"], self._episode.turn_cap)
        except answers.MALFORMED:
            failure = answers.malformed("a solution that is not one")
            raise ProgramFailedError(failure) from None

    async def _play_plan(
        self, channel: EpisodeChannel, plan: list[str], oracle: pb.OracleResult
    ) -> None:
        replies = await replay.play(channel, plan, self._episode.turn_cap, self._timeout_s)
        self._work.count_replayed(len(replies))
        last = replies[-1] if replies else None
        oracle.Clear()
        oracle.outcome = pb.OUTCOME_COMPLETED
        oracle.actions.extend(plan[: len(replies)])
        oracle.final_reward = last.reward if last else 0.0
        oracle.terminated = last.terminated if last else False
        oracle.truncated = last.truncated if last else False


def won(oracle: pb.OracleResult) -> bool:
    """Whether the play ended the task with a reward."""
    return oracle.terminated and oracle.final_reward > 0


def plans_of(solution: Any, most: int) -> list[list[str]]:
    """Ways to play what a program's solution() returned, the likeliest first.

    A list is the actions. A text is one final answer, or numbered steps. Public games
    expect their actions in a box, and their solutions often leave it out.

    Args:
        solution: What it returned, as JSON has it.
        most: Actions that an episode takes at most; more are left out.

    Source: shapes of solution() seen in public generated environments.
    """
    if isinstance(solution, list):
        plans = [[answers.encodable(str(action)) for action in solution[:most]]]
    else:
        text = answers.encodable(str(solution))
        numbered = [said for line in text.splitlines() if (said := _numbered_step(line))]
        plans = [numbered[:most], [text]] if len(numbered) > 1 else [[text]]
    boxed = [[_boxed(action) for action in plan] for plan in plans]
    return plans + [plan for plan in boxed if plan not in plans]


def _numbered_step(line: str) -> str:
    """What a line like "Step 2: go left" says to do, or nothing."""
    line = line.strip()
    number = _STEP_NUMBER.match(line)
    return line[number.end() :].strip() if number else ""


def _boxed(action: str) -> str:
    return action if "\\boxed" in action else f"\\boxed{{{action}}}"
