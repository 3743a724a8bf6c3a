"""Shards of this machine: child processes, started again when they die."""

from __future__ import annotations

import asyncio
import logging
import time

from sandbox_server import state
from sandbox_server.config import ServerConfig
from sandbox_server.shards.book import Entry
from sandbox_server.shards.child import ShardError, ShardProcess
from sandbox_server.shards.share import part

_log = logging.getLogger(__name__)

# Before a dead shard is started again: the first, each next one in a row twice as long, the last.
_RESTART_FIRST_S = 0.2
_RESTART_MAX_S = 30.0
# One that has run for so long has not died of its start.
_SETTLED_S = 60.0


class LocalFleet:
    """Keeps shards running on this machine.

    Args:
        config: Of the whole.
        count: How many shards.
        log_format: "text" or "json".
        log_level: Of their logs.

    Raises:
        AddressError: If there is no port left for one.
    """

    def __init__(self, config: ServerConfig, count: int, log_format: str, log_level: str) -> None:
        self._shards = {
            str(index): ShardProcess(part(config, index, count), log_format, log_level)
            for index in range(count)
        }
        self._running: dict[str, ShardProcess] = {}
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self, address: str) -> None:
        """Start all shards, and wait until they serve.

        Raises:
            ShardError: If one does not.
        """
        starts = [shard.start() for shard in self._shards.values()]
        failed = [e for e in await asyncio.gather(*starts, return_exceptions=True) if e]
        if failed:
            for shard in self._shards.values():
                shard.kill()
            raise failed[0]
        self._running = dict(self._shards)
        self._keepers = [
            asyncio.create_task(self._keep(name, shard)) for name, shard in self._shards.items()
        ]

    async def entries(self) -> list[Entry]:
        """The shards that run now."""
        return [Entry(name, shard.address) for name, shard in self._running.items()]

    async def end(self, hurried: asyncio.Event) -> None:
        """Have all shards drain and end; at once when `hurried` is set."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*(shard.end(hurried) for shard in self._shards.values()))
        self._running.clear()

    async def _keep(self, name: str, shard: ShardProcess) -> None:
        """Start a shard again whenever it has died."""
        failures = 0
        while True:
            started_at = time.monotonic()
            status = await shard.wait()
            self._running.pop(name, None)
            failures = 0 if time.monotonic() - started_at > _SETTLED_S else failures + 1
            delay_s = min(_RESTART_FIRST_S * 2.0 ** (failures - 1), _RESTART_MAX_S)
            _log.warning(
                "shard %s ended (status %d); it is started again in %g s", name, status, delay_s
            )
            await asyncio.sleep(delay_s)
            state.reap_dead()
            try:
                await shard.start()
            except ShardError as error:
                _log.error("%s", error)
            else:
                self._running[name] = shard
                _log.info("shard %s runs again at %s", name, shard.address)
