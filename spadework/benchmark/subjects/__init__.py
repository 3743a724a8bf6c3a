"""The competitors: a module each, all behind the interface of `subject`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from spadework.benchmark.case import Case
from spadework.benchmark.subjects.subject import Subject


@dataclass(frozen=True)
class Entry:
    """Where a subject is, and what it needs.

    Attributes:
        about: A line of the report.
        place: Its module here, and its class.
        peers: It runs in the environment of competitors.
        open_s: About how long it takes to be there, on an idle machine: for the plan that is
            told before a run.
        start_s: About how long an episode takes to start.
        step_s: About how long a step of the trivial program takes.
    """

    about: str
    place: str
    peers: bool = False
    open_s: float = 1.0
    start_s: float = 0.0
    step_s: float = 0.0


FLOOR, EXEC = "floor", "exec"
SANDBOX, GROUPED, UNPROTECTED = "sandbox", "sandbox-group", "sandbox-unprotected"
SHARDED = "sandbox-shards"
DIRECT = "sandbox-direct"
SYNC_VECTOR, ASYNC_VECTOR, OPENENV = "sync-vector", "async-vector", "openenv"
FRESH_JAIL = "fresh-jail"

_FLOOR = Entry("C ping-pong over a socket pair to each process", "floor.Floor")
_EXEC = Entry("the class executed in the caller's process", "in_process.InProcess")
_SYNC = Entry("Gymnasium SyncVectorEnv", "vector.SyncVector", True)
_ASYNC = Entry(
    "Gymnasium AsyncVectorEnv, a process each", "vector.AsyncVector", True, start_s=0.012
)
_OPENENV = Entry(
    "OpenEnv's server and client, a session each",
    "openenv.OpenEnv",
    True,
    open_s=4.0,
    start_s=0.003,
    step_s=0.0004,
)
_FRESH = Entry(
    "a fresh nsjail and Python each step", "fresh_jail.FreshJail", start_s=0.02, step_s=0.02
)
_SANDBOX = Entry(
    "ours: client, gRPC, server, a locked-down process each",
    "sandbox.Sandbox",
    open_s=2.0,
    start_s=0.005,
)
_GROUPED = Entry("ours in group mode: 64 episodes share a process", "sandbox.Grouped", open_s=2.0)
_SHARDED = Entry(
    "ours with two servers behind one address", "sandbox.Sharded", open_s=4.0, start_s=0.005
)
_DIRECT = Entry(
    "ours without gRPC: the engine in the caller's process", "direct.Direct", start_s=0.005
)
_UNPROTECTED = Entry(
    "ours on the backend `process`: no isolation",
    "sandbox.Unprotected",
    open_s=2.0,
    start_s=0.004,
)
SUBJECTS: dict[str, Entry] = {
    FLOOR: _FLOOR,
    EXEC: _EXEC,
    SYNC_VECTOR: _SYNC,
    ASYNC_VECTOR: _ASYNC,
    OPENENV: _OPENENV,
    FRESH_JAIL: _FRESH,
    SANDBOX: _SANDBOX,
    GROUPED: _GROUPED,
    SHARDED: _SHARDED,
    DIRECT: _DIRECT,
    UNPROTECTED: _UNPROTECTED,
}


def make(case: Case) -> Subject:
    """The subject of a case; its module is imported now."""
    module, name = SUBJECTS[case.subject].place.split(".")
    kind: type[Subject] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return kind(case)
