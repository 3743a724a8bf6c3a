"""Real server processes with options of their own, as an operator starts them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import IO


class ServerProcess:
    """A server in its own process.

    Attributes:
        address: What clients connect to.
        process: It.
    """

    def __init__(self, process: subprocess.Popen[str], address: str, log: IO[str]) -> None:
        self.process = process
        self.address = address
        self._log = log

    def log(self) -> list[str]:
        """The lines that it has logged so far."""
        self._log.seek(0)
        return self._log.read().splitlines()


@contextlib.contextmanager
def serving(
    *options: str, backend: str = "process", variables: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Run a server for the time of the block; it is killed if it has not ended by then."""
    command = [sys.executable, "-m", "sandbox_server", "--address", "127.0.0.1:0"]
    command += ["--backend", backend, "--max-episodes", "500", *options]
    environment = {**os.environ, **(variables or {})}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            log.seek(0)
            assert line, log.read()
            yield ServerProcess(process, json.loads(line)["address"], log)
        finally:
            process.kill()
