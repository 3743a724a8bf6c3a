"""The `process` backend: the same zygote and limits, and no isolation at all.

For tests and debugging. A program in it can read and write whatever the server can.
"""

from __future__ import annotations

import sys

from sandbox_server.backends.base import (
    Backend,
    JailProcess,
    control_pair,
    environment,
    spawn,
    zygote_arguments,
)
from sandbox_server.cache import worker_folder
from sandbox_server.runtime import Runtime


class ProcessBackend(Backend):
    """Plain child processes of the server's user."""

    name = "process"
    isolates = False

    def isolation(self) -> dict[str, str]:
        return {
            "isolation": "none: programs can do whatever the server's user can",
            "limits": "rlimits and deadlines",
        }

    def start(self, runtime: Runtime, hash_seed: int) -> JailProcess:
        ours, theirs = control_pair()
        variables = environment(runtime, hash_seed)
        variables["PYTHONPATH"] = f"{worker_folder()}:{runtime.site_packages}"
        with theirs:
            command = [sys.executable, *zygote_arguments("bare", theirs, runtime)]
            process = spawn(command, theirs, variables)
        return JailProcess(process, ours, range(0), isolated=False)
