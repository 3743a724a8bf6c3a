"""A server of one's own: a child process on a private socket, gone when its owner is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType

from sandbox_server import state

# gRPC's newer engine hands every message through three more threads, which a single step waits
# for. See docs/design/paths.md.
_EXPERIMENTS = "-event_engine_client,-event_engine_listener"


class LocalServer:
    """Starts a sandbox server for this process alone.

    It listens on a Unix socket in a folder of its own that only this user can enter, and
    exits when this object is closed or this process ends, however it ends.

    Args:
        backend: "nsjail", "docker", or "process", which isolates nothing.
        runtimes: Runtimes to offer.
        max_episodes: Live episodes at most.
        python: Interpreter to run it with.
        log_level: Of the server's log, which goes to this process's standard error.
        options: More of the options of `python -m sandbox_server`.

    Attributes:
        address: What clients connect to.

    Raises:
        RuntimeError: If the server does not start; its own words are in the message.
    """

    def __init__(
        self,
        *,
        backend: str = "nsjail",
        runtimes: Sequence[str] = ("stdlib",),
        max_episodes: int = 6_000,
        python: str = sys.executable,
        log_level: str = "warning",
        options: Sequence[str] = (),
    ) -> None:
        command = [python, "-m", "sandbox_server", "--exit-with-stdin"]
        command += ["--address", "unix:", "--backend", backend]
        command += ["--max-episodes", str(max_episodes), "--log-level", log_level]
        for runtime in runtimes:
            command += ["--runtime", runtime]
        command += options
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"GRPC_EXPERIMENTS": _EXPERIMENTS, **os.environ},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(
                "the sandbox server did not start; its reason is above. "
                "`spadework doctor` shows what this machine lacks"
            )
        self.address: str = json.loads(line)["address"]

    def close(self) -> None:
        """Stop the server and wait until it is gone; calling it twice is fine."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        # Its own doing, unless it was killed.
        state.reap_dead()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
