"""Playing an episode's process to the end, one awaited call after another.

Used where one episode is worked on alone: starting it, rebuilding it from a prefix,
verifying it, running its oracle. Batched steps do not come this way.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any

from sandbox_api.errors import EpisodeLostError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.channel import Answer, Channel, Failure, Lost
from sandbox_server.episode import ProgramRecord
from sandbox_server.worker import frames

# Texts of a diagnostic that are the program's to say. How its process ended is not.
_DIAGNOSTIC_BYTES = {"message": 4_000, "exception": 500, "limit": 100, "output_tail": 2_000}
# What reading JSON of a hostile process raises, here and where its values are used: nesting
# without end, infinite numbers, other types than the expected ones.
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
# The number only: a pattern for the rest of the line would try every space in it as its
# end, which takes minutes on a line that a program made for that.
_STEP_NUMBER = re.compile(r"(?:step\s*)?\d+\s*[.):]", re.IGNORECASE)


class ProgramFailedError(Exception):
    """The program failed a call; holds the outcome to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.diagnostic.message)
        self.failure = failure


def failure_of(reply: frames.Reply) -> Failure:
    """Read the diagnostic of a reply that is not COMPLETED. Its text is the program's."""
    diagnostic = pb.Diagnostic()
    try:
        told = json.loads(reply.extra)
        if told.get("phase", 0) in pb.Phase.values():
            diagnostic.phase = told.get("phase", 0)
        diagnostic.line = max(0, told.get("line", 0))
        for name, most in _DIAGNOSTIC_BYTES.items():
            setattr(diagnostic, name, cut(told.get(name, ""), most))
    except MALFORMED:
        return malformed("a diagnostic that is not one")
    return Failure(reply.outcome, diagnostic)


def malformed(what: str) -> Failure:
    return Failure(
        pb.OUTCOME_PROTOCOL_VIOLATION, pb.Diagnostic(message=f"the process sent {what}")
    )


def encodable(text: str) -> str:
    """The text with what UTF-8 does not have, lone surrogates, replaced."""
    return text.encode("utf-8", "replace").decode()


def cut(text: str, most_bytes: int) -> str:
    """The first bytes of a text that a process sent, as far as they are whole characters."""
    return text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore")


def tools_json(tools: Any) -> bytes:
    """Tool schemas that a process sent, as JSON that clients can read.

    Raises:
        Any of MALFORMED: If they are no list, or hold what JSON does not have.
    """
    if not isinstance(tools, list):
        raise TypeError("tools are no list")
    return json.dumps(tools, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def checked_tools(extra: bytes) -> bytes:
    """The tool schemas in a reset's reply; empty when there are none.

    Raises:
        ProgramFailedError: If they are not what tools_json makes.
    """
    if not extra:
        return b""
    try:
        return tools_json(json.loads(extra))
    except MALFORMED:
        raise ProgramFailedError(malformed("tools that are no JSON array")) from None


def info_failure(info: bytes) -> Failure | None:
    """Check an info that goes to clients undecoded: a JSON object without NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        # Decoded here: json.loads would take UTF-16 and lone surrogates as well.
        told = json.loads(info.decode(), parse_constant=refuse)
        if isinstance(told, dict):
            if b"\\u" in info:
                # An escape may stand for a lone surrogate, which clients could not write.
                json.dumps(told, ensure_ascii=False).encode()
            return None
    except MALFORMED:
        pass
    return malformed("an info that is no JSON object")


async def call(channel: Channel, op: int, body: bytes, timeout_s: float) -> frames.Reply:
    """Send one request and wait for a COMPLETED reply.

    Raises:
        ProgramFailedError: If the program failed it.
        EpisodeLostError: If the process is gone through no fault of the program.
    """
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def on_answer(answer: Answer) -> None:
        if not answered.done():
            answered.set_result(answer)

    channel.request(op, body, timeout_s, on_answer)
    answer = await answered
    if isinstance(answer, Lost):
        raise EpisodeLostError(answer.why)
    if isinstance(answer, Failure):
        raise ProgramFailedError(answer)
    failure = None
    if answer.outcome != pb.OUTCOME_COMPLETED:
        failure = failure_of(answer)
    elif answer.info:
        failure = info_failure(answer.info)
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
    channel: Channel, seed: int, options: dict[str, Any], max_turns: int, timeout_s: float
) -> frames.Reply:
    body = {"seed": seed, "options": options, "max_turns": max_turns}
    return await call(channel, frames.RESET, json.dumps(body).encode(), timeout_s)


def oracle_plans(solution: Any) -> list[list[str]]:
    """Ways to play what a program's solution() returned, the likeliest first.

    A list is the actions. A text is one final answer, or numbered steps. Public games
    expect their actions in a box, and their solutions often leave it out.

    Source: shapes of solution() seen in public generated environments.
    """
    if isinstance(solution, list):
        plans = [[encodable(str(action)) for action in solution]]
    else:
        text = encodable(str(solution))
        numbered = [said for line in text.splitlines() if (said := _numbered_step(line))]
        plans = [numbered, [text]] if len(numbered) > 1 else [[text]]
    boxed = [[_boxed(action) for action in plan] for plan in plans]
    return plans + [plan for plan in boxed if plan not in plans]


def _numbered_step(line: str) -> str:
    """What a line like "Step 2: go left" says to do, or nothing."""
    line = line.strip()
    number = _STEP_NUMBER.match(line)
    return line[number.end() :].strip() if number else ""


def _boxed(action: str) -> str:
    return action if "\\boxed" in action else f"\\boxed{{{action}}}"


async def play(
    channel: Channel, actions: Sequence[str], turn_cap: int, timeout_s: float
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
