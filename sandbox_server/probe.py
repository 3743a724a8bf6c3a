"""A program that tries what no episode may do; a server serves only if all of it fails.

It runs as an ordinary episode at every start of an isolating server, so that a kernel,
container or policy that weakens the jail is found before a stranger's code is let in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.episode import Sink

# Name of each protection, and Python that must raise.
ATTEMPTS: dict[str, str] = {
    "network: no sockets": "__import__('socket').socket()",
    "processes: no fork": "os.fork()",
    "processes: no exec": "os.execv('/opt/python/bin/python3', ['python3'])",
    "processes: no signals to others": "os.kill(1, 0)",
    "namespaces: none new": "check(libc.unshare(0x10000000))",
    "mounts: none new": "check(libc.mount(b'x', b'/tmp', b'tmpfs', 0, None))",
    "kernel: no ptrace": "check(libc.ptrace(0, 0, 0, 0))",
    "user: cannot become root": "os.setuid(0)",
    "limits: cannot be raised": "resource.setrlimit(resource.RLIMIT_NPROC, (99, 99))",
    "files: no /proc": "os.stat('/proc/self')",
    "files: none of the host's": "os.stat('/etc/passwd')",
    "files: the runtime is read-only": "open('/opt/python/x', 'w')",
    "files: the root is read-only": "open('/x', 'w')",
}

_SOURCE = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)

def check(said):
    if said == -1:
        raise OSError(ctypes.get_errno(), "refused")

class ProbeEnv:
    def reset(self, seed=None):
        return "ready", {}

    def step(self, action):
        try:
            eval(action)
        except Exception:
            return "refused", 0.0, False, False, {}
        return "went through", 0.0, False, False, {}
"""


class _Engine(Protocol):
    async def register(self, request: pb.RegisterProgramRequest) -> pb.RegisterProgramResponse: ...
    async def reset(self, index: int, item: pb.ResetItem) -> pb.ResetResult: ...
    def steps(self, items: Sequence[pb.StepItem], first: int, sink: Sink) -> None: ...
    def close_episodes(self, episode_ids: list[str]) -> int: ...


class Answer:
    """Where the result of a single step goes."""

    def __init__(self) -> None:
        self.result: asyncio.Future[pb.StepResult] = asyncio.get_running_loop().create_future()

    def __call__(self, result: pb.StepResult) -> None:
        self.result.set_result(result)

    def put_all(self, results: list[pb.StepResult], size: int) -> None:
        self.result.set_result(results[0])


async def weaknesses(engine: _Engine, runtime: str) -> dict[str, str]:
    """Try everything in ATTEMPTS from inside an episode of `runtime`.

    Returns:
        What is wrong, by the name of the protection; empty when all hold.
    """
    program = await engine.register(pb.RegisterProgramRequest(source=_SOURCE, runtime=runtime))
    if program.outcome != pb.OUTCOME_COMPLETED:
        return {"probe": f"the probe did not load: {program.diagnostic.message}"}
    found: dict[str, str] = {}
    for name, attempt in ATTEMPTS.items():
        # A fresh episode each: an attempt that goes through may end the process.
        episode = await engine.reset(0, pb.ResetItem(program_id=program.program_id))
        if episode.outcome != pb.OUTCOME_COMPLETED:
            return {"probe": f"an episode did not start: {episode.error.message}"}
        answer = Answer()
        item = pb.StepItem(episode_id=episode.episode_id, action=attempt)
        engine.steps([item], 0, answer)
        said = await answer.result
        if said.outcome != pb.OUTCOME_COMPLETED or said.observation != "refused":
            found[name] = said.observation or pb.Outcome.Name(said.outcome)
        engine.close_episodes([episode.episode_id])
    return found
