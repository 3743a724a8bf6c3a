"""The frame parser under atheris, which looks for inputs that reach new code.

python -m tests.fuzz.frame_parser -max_total_time=60
"""

from __future__ import annotations

import math
import sys

import atheris

with atheris.instrument_imports(
    include=["sandbox_server.worker.frames", "sandbox_server.answers"]
):
    from sandbox_server import answers
    from sandbox_server.failures import ProgramFailedError
    from sandbox_server.worker import frames


def parse(data: bytes) -> None:
    """Take bytes for a reply, and read all that it says."""
    try:
        reply = frames.unpack_reply(data)
    except frames.FrameError:
        return
    if not math.isfinite(reply.reward):
        raise AssertionError("a reward that is not finite")
    answers.failure_of(reply).diagnostic.SerializeToString()
    answers.info_failure(reply.info)
    try:
        answers.checked_tools(reply.extra)
    except ProgramFailedError:
        return


if __name__ == "__main__":
    atheris.Setup(sys.argv, parse)
    atheris.Fuzz()
