"""What an attack is: a program that means harm, the promise it attacks, and what must come of it.

Most programs say what they achieved: the observation of their step is "refused: ..." with the
error they met, or "went through: ...". So a test asserts the refusal, not mere survival.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_api.v1 import sandbox_pb2 as pb

from tests.server.conftest import stepping

# In reach of every attack's step. `action` is JSON: what the attacker may know of the host.
HELPERS = '''
import ctypes, errno, json, os, platform, struct, sys, time

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def said(what):
    """A step's result whose observation is what was seen."""
    return str(what), 0.0, False, False, {}

def attempt(function, *arguments, **named):
    """Call it, and say what came of it."""
    try:
        found = function(*arguments, **named)
    except BaseException as error:
        name = errno.errorcode.get(getattr(error, "errno", None) or 0, "")
        return f"refused: {type(error).__name__} {name}".strip()
    return f"went through: {found!r}"[:300]

def kernel(x86_64, aarch64, *arguments):
    """Make a system call by its number on this machine, and say what came of it."""
    number = x86_64 if platform.machine() == "x86_64" else aarch64
    ctypes.set_errno(0)
    returned = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    if returned != -1:
        return f"went through: {returned}"
    return "refused: " + errno.errorcode[ctypes.get_errno()]

def find_worker():
    """The worker's serving object, which called this program."""
    frame = sys._getframe()
    while type(frame.f_locals.get("self")).__name__ != "EpisodeServer":
        frame = frame.f_back
    return frame.f_locals["self"]

def answer(outcome=1, observation=b"", info=b"", extra=b"", op=3, request=3, flags=0, reward=0.0):
    """The bytes of a reply to the first step, as the worker would pack them."""
    lengths = len(observation), len(info), len(extra)
    head = struct.pack("<BIBBdQIII", op, request, outcome, flags, reward, 0, *lengths)
    return head + observation + info + extra

def send(message):
    """Write a message to the supervisor, in fragments where it is long."""
    while len(message) > 60_000:
        os.write(3, b"\\x01" + message[:60_000])
        message = message[60_000:]
    os.write(3, b"\\x00" + message)
'''

X86 = platform.machine() == "x86_64"


@dataclass(frozen=True)
class Attack:
    """One adversarial program and what must come of it.

    Attributes:
        name: Unique among all; says what is tried.
        promise: The row of SECURITY.md's table that it attacks.
        step: Body of its step; the helpers above are in reach.
        source: The whole program, in the place of `step`.
        limits: Limits other than the defaults.
        steps: How many steps are taken; the last one is judged.
        pause_s: Seconds between them, in which the program goes on.
        says: The observation of a step that must be COMPLETED, as a regular expression for
            all of it. Empty where it must not be.
        outcomes: Names of outcomes, of which one must come where `says` is empty.
        limit: The limit that the diagnostic must name.
        exception: The exception that the diagnostic must name.
        signal: The signal that the process must have died of.
        within_s: Wall seconds that the judged step may take.
    """

    name: str
    promise: str
    step: str = ""
    source: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    steps: int = 1
    pause_s: float = 0.0
    says: str = ""
    outcomes: tuple[str, ...] = ()
    limit: str = ""
    exception: str = ""
    signal: int = 0
    within_s: float = 30.0

    @property
    def program(self) -> str:
        return HELPERS + (self.source or stepping(self.step))

    def faults(self, result: pb.RegisterProgramResponse | pb.ResetResult | pb.StepResult) -> str:
        """What of a result is not as it must be; empty when all is."""
        outcome = pb.Outcome.Name(result.outcome).removeprefix("OUTCOME_")
        if self.says:
            if outcome != "COMPLETED":
                return f"it must go on, and is {outcome}: {result.diagnostic}"
            seen = result.observation
            if re.fullmatch(self.says, seen, re.DOTALL) is None:
                return f"it must say {self.says!r}, and says {seen[:500]!r}"
            return ""
        if outcome not in self.outcomes:
            return f"it must end as {' or '.join(self.outcomes)}, and is {outcome}: {result}"
        told = result.diagnostic
        for name in ("limit", "exception", "signal"):
            wanted = getattr(self, name)
            if wanted and getattr(told, name) != wanted:
                return f"its {name} must be {wanted!r}: {told}"
        if (
            outcome != "COMPLETED"
            and isinstance(result, pb.StepResult)
            and result.HasField("reward")
        ):
            return f"it has a reward: {result.reward}"
        return ""


def indented(body: str) -> str:
    """A body to be put into a method."""
    return "\n".join("        " + line for line in body.strip().splitlines())
