"""Playing an episode's process to the end, one awaited call after another.

Used where one episode is worked on alone: starting it, rebuilding it from a prefix,
verifying it, running its oracle. Batched steps do not come this way.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple

from sandbox_api.errors import EpisodeLostError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import answers
from sandbox_server.channel import Channel
from sandbox_server.endpoint import Answer, Endpoint
from sandbox_server.episode import Episode, ProgramRecord
from sandbox_server.failures import Failure, Lost, ProgramFailedError
from sandbox_server.telemetry import calls
from sandbox_server.worker import frames

_SPAN_NAMES = {
    frames.COMPILE: "compile",
    frames.LOAD: "load",
    frames.RESET: "reset",
    frames.STEP: "step",
    frames.VERIFY: "verify",
    frames.SOLUTION: "solution",
    frames.PLAY: "play",
}


class WholePlay(NamedTuple):
    """The end of a play that went on inside the process."""

    steps: int
    reward: float
    terminated: bool
    truncated: bool


async def call(channel: Endpoint, op: int, body: bytes, timeout_s: float) -> frames.Reply:
    """Send one request and wait for a COMPLETED reply.

    Raises:
        ProgramFailedError: If the program failed it.
        EpisodeLostError: If the process is gone through no fault of the program.
    """
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def on_answer(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    with calls.span(_SPAN_NAMES[op]):
        channel.request(op, body, timeout_s, on_answer)
        answer = await answered
    if isinstance(answer, Lost):
        raise EpisodeLostError(answer.why)
    if isinstance(answer, Failure):
        raise ProgramFailedError(answer)
    failure = None
    if answer.outcome != pb.OUTCOME_COMPLETED:
        failure = answers.failure_of(answer)
    elif answer.info:
        failure = answers.info_failure(answer.info)
    if failure is not None:
        raise ProgramFailedError(failure)
    return answer


async def compile_program(channel: Channel, program: ProgramRecord) -> bytes:
    """Compile the program in a fresh process that has run nothing of it.

    Returns:
        The compiled program, opaque; empty if it is too long to pass on.
    """
    source = program.source.encode()
    reply = await call(channel, frames.COMPILE, source, program.limits.load_timeout_s)
    return reply.extra


async def load(channel: Channel, program: ProgramRecord, *, describe: bool) -> frames.Reply:
    """Load the program into a fresh process, compiled if its registration left it so."""
    body = {"entry": program.entry, "describe": describe}
    if not program.code:
        body["source"] = program.source
    message = frames.join(json.dumps(body).encode(), program.code)
    return await call(channel, frames.LOAD, message, program.limits.load_timeout_s)


async def reset(
    channel: Endpoint, seed: int, options_json: bytes, max_turns: int, timeout_s: float
) -> frames.Reply:
    return await call(channel, frames.RESET, reset_body(seed, options_json, max_turns), timeout_s)


def reset_body(seed: int, options_json: bytes, max_turns: int) -> bytes:
    """The body of a RESET request."""
    return b'{"seed": %d, "max_turns": %d, "options": %s}' % (seed, max_turns, options_json)


async def start_over(
    channel: Channel, episode: Episode, timeout_s: float, seed: int | None = None
) -> frames.Reply:
    """Load an episode's program into a fresh process, and reset it as the episode was.

    Args:
        channel: Of the process.
        episode: Whose program, options and turn cap to use.
        timeout_s: Wall seconds of the reset.
        seed: Another seed than the episode's.
    """
    await load(channel, episode.program, describe=False)
    seed = episode.seed if seed is None else seed
    return await reset(channel, seed, episode.options_json, episode.max_turns, timeout_s)


async def play(
    channel: Endpoint, actions: Sequence[str], turn_cap: int, timeout_s: float
) -> list[frames.Reply]:
    """Step until the episode ends or the actions do; truncates at the turn cap."""
    replies: list[frames.Reply] = []
    for index, action in enumerate(actions):
        reply = await call(channel, frames.STEP, action.encode("utf-8", "replace"), timeout_s)
        if index + 1 >= turn_cap and not reply.terminated:
            reply = reply._replace(truncated=True)
        replies.append(reply)
        if reply.terminated or reply.truncated:
            break
    return replies


async def play_whole(
    channel: Endpoint, episode: Episode, seed: int, actions: Sequence[str], timeout_s: float
) -> WholePlay:
    """Reset, and play actions until the play ends or they do, in one call.

    Args:
        channel: Of a process that has loaded the program; it may have played before.
        episode: Whose options and turn cap to use.
        seed: To reset with.
        actions: What to play.
        timeout_s: Wall seconds of the whole play.

    Raises:
        ProgramFailedError: If the program failed it.
        EpisodeLostError: If the process is gone through no fault of the program.
    """
    start = reset_body(seed, episode.options_json, episode.max_turns)
    script = json.dumps(list(actions[: episode.turn_cap])).encode()
    reply = await call(channel, frames.PLAY, frames.join(start, script), timeout_s)
    try:
        steps = int(json.loads(reply.extra)["steps"])
        if not 0 <= steps <= len(actions):
            raise ValueError(steps)
    except answers.MALFORMED:
        raise ProgramFailedError(answers.malformed("a play that is not one")) from None
    truncated = reply.truncated or (steps >= episode.turn_cap and not reply.terminated)
    return WholePlay(steps, reply.reward, reply.terminated, truncated)
