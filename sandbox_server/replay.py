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

from google.protobuf import json_format
from sandbox_api.errors import EpisodeLostError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.channel import Answer, Channel, Failure, Lost
from sandbox_server.episode import ProgramRecord
from sandbox_server.worker import frames

_DIAGNOSTIC_TEXT_BYTES = 4_000
_NUMBERED_STEP = re.compile(r"^\s*(?:step\s*)?\d+\s*[.):]\s*(.+?)\s*$", re.IGNORECASE)


class ProgramFailedError(Exception):
    """The program failed a call; holds the outcome to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.diagnostic.message)
        self.failure = failure


def failure_of(reply: frames.Reply) -> Failure:
    """Read the diagnostic of a reply that is not COMPLETED. Its text is the program's."""
    try:
        told = json.loads(reply.extra)
        diagnostic = json_format.ParseDict(told, pb.Diagnostic(), ignore_unknown_fields=True)
    except (ValueError, RecursionError, json_format.ParseError, TypeError):
        return Failure(
            pb.OUTCOME_PROTOCOL_VIOLATION,
            pb.Diagnostic(message="the process sent a diagnostic that is not one"),
        )
    for name in ("message", "exception", "limit", "output_tail"):
        setattr(diagnostic, name, getattr(diagnostic, name)[:_DIAGNOSTIC_TEXT_BYTES])
    return Failure(reply.outcome, diagnostic)


def info_failure(info: bytes) -> Failure | None:
    """Check an info that goes to clients undecoded: a JSON object without NaN."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        if isinstance(json.loads(info, parse_constant=refuse), dict):
            return None
    except (ValueError, RecursionError):
        pass
    return Failure(
        pb.OUTCOME_PROTOCOL_VIOLATION,
        pb.Diagnostic(message="the process sent an info that is no JSON object"),
    )


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


async def load(channel: Channel, program: ProgramRecord, *, describe: bool) -> frames.Reply:
    """Load the program into a fresh process."""
    body = {"source": program.source, "entry": program.entry, "describe": describe}
    return await call(
        channel, frames.LOAD, json.dumps(body).encode(), program.limits.load_timeout_s
    )


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
        plans = [[str(action) for action in solution]]
    else:
        text = str(solution)
        numbered = [m.group(1) for line in text.splitlines() if (m := _NUMBERED_STEP.match(line))]
        plans = [numbered, [text]] if len(numbered) > 1 else [[text]]
    boxed = [[_boxed(action) for action in plan] for plan in plans]
    return plans + [plan for plan in boxed if plan not in plans]


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
