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
    """

    about: str
    place: str
    peers: bool = False


FLOOR, EXEC, SANDBOX, UNPROTECTED = "floor", "exec", "sandbox", "sandbox-unprotected"
SYNC_VECTOR, ASYNC_VECTOR, OPENENV = "sync-vector", "async-vector", "openenv"
FRESH_JAIL = "fresh-jail"

SUBJECTS: dict[str, Entry] = {
    FLOOR: Entry("C ping-pong over a socket pair to each process", "floor.Floor"),
    EXEC: Entry("the class executed in the caller's process", "in_process.InProcess"),
    SYNC_VECTOR: Entry("Gymnasium SyncVectorEnv", "vector.SyncVector", True),
    ASYNC_VECTOR: Entry("Gymnasium AsyncVectorEnv, a process each", "vector.AsyncVector", True),
    OPENENV: Entry("OpenEnv's server and client, a session each", "openenv.OpenEnv", True),
    FRESH_JAIL: Entry("a fresh nsjail and Python each step", "fresh_jail.FreshJail"),
    SANDBOX: Entry("ours: client, gRPC, server, a locked-down process each", "sandbox.Sandbox"),
    UNPROTECTED: Entry("ours on the backend `process`: no isolation", "sandbox.Unprotected"),
}


def make(case: Case) -> Subject:
    """The subject of a case; its module is imported now."""
    module, name = SUBJECTS[case.subject].place.split(".")
    kind: type[Subject] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return kind(case)
