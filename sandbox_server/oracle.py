"""The oracle: a program's own solution(), played in a fresh process."""

from __future__ import annotations

import json
import re
from typing import Any

from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import answers, replay
from sandbox_server.episode import Episode
from sandbox_server.failures import ProgramFailedError
from sandbox_server.jail_pool import REPLAY_HASH_SEED, JailPool
from sandbox_server.work import Work
from sandbox_server.worker import frames

# The number only: a pattern for the rest of the line would try every space in it as its
# end, which takes minutes on a line that a program made for that.
_STEP_NUMBER = re.compile(r"(?:step\s*)?\d+\s*[.):]", re.IGNORECASE)


async def run(
    jails: JailPool, work: Work, episode: Episode, oracle: pb.OracleResult, timeout_s: float
) -> None:
    """Ask a fresh process for its solution, and play it in another until a plan wins.

    Args:
        jails: Where the processes come from.
        work: Where its steps count.
        episode: Whose program, seed and options to use.
        oracle: Filled in with what came of it.
        timeout_s: Wall seconds of each call.

    Raises:
        CapacityError, UnavailableError: If there is no process to be had.
        EpisodeLostError: If one is gone through no fault of the program.
    """
    try:
        for plan in await _plans(jails, episode, timeout_s):
            replies = await _play(jails, episode, plan, timeout_s)
            work.count_replayed(len(replies))
            last = replies[-1] if replies else None
            oracle.Clear()
            oracle.outcome = pb.OUTCOME_COMPLETED
            oracle.actions.extend(plan[: len(replies)])
            oracle.final_reward = last.reward if last else 0.0
            oracle.terminated = last.terminated if last else False
            oracle.truncated = last.truncated if last else False
            if oracle.terminated and oracle.final_reward > 0:
                return
    except ProgramFailedError as error:
        oracle.Clear()
        oracle.outcome = error.failure.outcome
        oracle.diagnostic.CopyFrom(error.failure.diagnostic)


async def _plans(jails: JailPool, episode: Episode, timeout_s: float) -> list[list[str]]:
    channel = await jails.spawn(episode.program, REPLAY_HASH_SEED)
    try:
        await replay.start_over(channel, episode, timeout_s)
        reply = await replay.call(channel, frames.SOLUTION, b"", timeout_s)
        return plans_of(json.loads(reply.extra)["solution"], episode.turn_cap)
    except answers.MALFORMED:
        failure = answers.malformed("a solution that is not one")
        raise ProgramFailedError(failure) from None
    finally:
        channel.close()


async def _play(
    jails: JailPool, episode: Episode, plan: list[str], timeout_s: float
) -> list[frames.Reply]:
    channel = await jails.spawn(episode.program, REPLAY_HASH_SEED)
    try:
        await replay.start_over(channel, episode, timeout_s)
        return await replay.play(channel, plan, episode.turn_cap, timeout_s)
    finally:
        channel.close()


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
