"""One shard: a server in a process of its own, which never outlives who started it.

Run as a module it is that server. Its settings come as the first line of standard input, which
then stays open: when it closes, the server ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import sys
from typing import Any

from sandbox_api.types import Limits

from sandbox_server.config import ServerConfig, TenantConfig

# A shard that was told to end has ended or is killed: beyond its own drain and grace.
_END_MARGIN_S = 15.0


class ShardError(Exception):
    """A shard did not start; its own words are on standard error."""


class ShardProcess:
    """The process of one shard.

    Args:
        config: Its settings.
        log_format: "text" or "json".
        log_level: Of its log, which goes to this process's standard error.

    Attributes:
        address: What clients connect to, once it has started.
        pid: Its process's id, once it has started.
    """

    def __init__(self, config: ServerConfig, log_format: str, log_level: str) -> None:
        self._config = config
        self._told = {"log_format": log_format, "log_level": log_level}
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""
        self.pid = 0

    async def start(self) -> None:
        """Start it, and wait until it serves.

        Raises:
            ShardError: If it does not.
        """
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sandbox_server.shards.child",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Ctrl-C in a terminal is for who started it, who then tells it.
            start_new_session=True,
        )
        self.pid = process.pid
        assert process.stdin is not None
        assert process.stdout is not None
        settings = {"config": dataclasses.asdict(self._config), **self._told}
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            status = await process.wait()
            raise ShardError(
                f"shard {self._config.shard} did not start (exit status {status}); its reason is "
                "above. `spadework doctor` shows what this machine lacks"
            )
        self.address = json.loads(line)["address"]

    async def wait(self) -> int:
        """Wait until it has ended; returns its exit status."""
        assert self._process is not None
        return await self._process.wait()

    async def end(self, hurried: asyncio.Event) -> None:
        """Have it drain and end; at once when `hurried` is set. Returns when it is gone."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        gone = asyncio.ensure_future(process.wait())
        haste = asyncio.ensure_future(hurried.wait())
        patience_s = self._config.drain_timeout_s + self._config.stop_grace_s + _END_MARGIN_S
        await asyncio.wait((gone, haste), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        haste.cancel()
        process.stdin.close()
        try:
            await asyncio.wait_for(gone, _END_MARGIN_S)
        except TimeoutError:
            self.kill()
            await process.wait()

    def kill(self) -> None:
        """End it as nothing can refuse."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def _config_from(told: dict[str, Any]) -> ServerConfig:
    """The settings, from what JSON makes of them."""
    for name in ("default_limits", "max_limits"):
        told[name] = Limits(**told[name])
    told["tenants"] = tuple(TenantConfig(**tenant) for tenant in told["tenants"])
    told["runtimes"] = tuple(told["runtimes"])
    return ServerConfig(**told)


def main() -> int:
    from sandbox_server.__main__ import REFUSALS, serve
    from sandbox_server.telemetry import logs

    # Not more than the line: what comes after it is the end.
    line = bytearray()
    while not line.endswith(b"\n"):
        read = os.read(0, 65_536)
        if not read:
            return 0
        line += read
    told = json.loads(line)
    config = _config_from(told["config"])
    logs.configure(told["log_format"], told["log_level"], config.shard)
    try:
        asyncio.run(serve(config, exit_with_stdin=True))
    except REFUSALS as error:
        print(f"shard {config.shard}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
