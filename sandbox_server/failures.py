"""Who is to blame when a process ends or fails, and what clients are told of it."""

from __future__ import annotations

import logging
import os
import signal
from typing import NamedTuple

from sandbox_api.errors import InternalError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.telemetry import calls
from sandbox_server.worker import frames

_log = logging.getLogger(__name__)

# The kernel checks CPU time at its ticks.
_CPU_SLACK_S = 0.5

_LOADING = (frames.COMPILE, frames.LOAD)
_PHASE_OF_OP: dict[int, pb.Phase] = {
    frames.COMPILE: pb.PHASE_COMPILE,
    frames.LOAD: pb.PHASE_LOAD,
    frames.RESET: pb.PHASE_RESET,
    frames.STEP: pb.PHASE_STEP,
    frames.PLAY: pb.PHASE_STEP,
    frames.VERIFY: pb.PHASE_VERIFY,
    frames.SOLUTION: pb.PHASE_SOLUTION,
}


class Failure(NamedTuple):
    """How a program's process failed a request."""

    outcome: pb.Outcome
    diagnostic: pb.Diagnostic


class Lost(NamedTuple):
    """The process is gone through no fault of its program."""

    why: str


class ProgramFailedError(Exception):
    """The program failed a call; holds the outcome to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.diagnostic.message)
        self.failure = failure


class ProcessEnd(NamedTuple):
    """What the parent of a process learned at its end.

    Attributes:
        status: As of wait(2); None when nobody could wait for it.
        cpu_s: User and system time it used.
        out_of_memory: Whether the kernel has killed for want of memory in its jail since
            the last process ended.
    """

    status: int | None
    cpu_s: float
    out_of_memory: bool = False


def phase_of(op: int) -> pb.Phase:
    """What a process is doing that works on a request of this kind."""
    return _PHASE_OF_OP.get(op, pb.PHASE_UNSPECIFIED)


def timeout_name(op: int) -> str:
    """The limit that bounds a request of this kind."""
    return "load_timeout_s" if op in _LOADING else "step_timeout_s"


def blame(end: ProcessEnd, phase: pb.Phase, limits: pb.Limits) -> Failure | Lost:
    """Judge the end of a process that the server did not ask for.

    Args:
        end: How it ended.
        phase: What it was doing.
        limits: Those of its program.
    """
    if end.status is None:
        return Failure(
            pb.OUTCOME_EXITED,
            pb.Diagnostic(phase=phase, message="the process ended; how is not known"),
        )
    if os.WIFSIGNALED(end.status):
        number = os.WTERMSIG(end.status)
        if number == signal.SIGKILL:
            return _blame_for_kill(end, phase, limits)
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        return Failure(
            pb.OUTCOME_SIGNALED,
            pb.Diagnostic(phase=phase, message=f"the process died of {name}", signal=number),
        )
    status = os.WEXITSTATUS(end.status)
    return Failure(
        pb.OUTCOME_EXITED,
        pb.Diagnostic(
            phase=phase,
            message=f"the process ended itself with status {status}",
            exit_status=status,
        ),
    )


def _blame_for_kill(end: ProcessEnd, phase: pb.Phase, limits: pb.Limits) -> Failure | Lost:
    """A SIGKILL that the server did not send; a process cannot send it to itself."""
    if end.cpu_s >= limits.cpu_time_s - _CPU_SLACK_S:
        message = f"the episode used {end.cpu_s:.1f} s of CPU time; it has {limits.cpu_time_s:g} s"
        return Failure(
            pb.OUTCOME_TIME_LIMIT,
            pb.Diagnostic(phase=phase, message=message, limit="cpu_time_s"),
        )
    if not end.out_of_memory:
        return Lost("somebody on the host killed the episode's process")
    if limits.max_processes > 1:
        # Each of its processes has the limit for itself: several may well be the cause.
        message = "the jail's memory ran out, and this episode held much"
        return Failure(pb.OUTCOME_MEMORY_LIMIT, pb.Diagnostic(phase=phase, message=message))
    return Lost("the jail's memory ran out, though this episode kept within its own limit")


def internal_error(
    what: str, error: Exception, subject: calls.Subject | None = None
) -> InternalError:
    """Log a fault of the server's own; the client gets an id to look it up by, and no more.

    Args:
        what: What failed.
        error: How.
        subject: What it was about, where that is not what the running task says.
    """
    request_id = calls.request_id()
    ids = {"request_id": request_id, **(subject._asdict() if subject else {})}
    _log.error("%s failed", what, exc_info=error, extra=ids)
    return InternalError(f"the server failed; its log has request id {request_id}")
