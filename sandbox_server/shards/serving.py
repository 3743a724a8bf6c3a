"""The life of a sharded server: its book and its shards, from the start to the drain."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from typing import Protocol

from sandbox_server import doctor, runtime, state
from sandbox_server.config import ServerConfig
from sandbox_server.shards.book import Book, Entry
from sandbox_server.stopping import Stop


class Fleet(Protocol):
    """Shards, wherever they run."""

    async def start(self, address: str) -> None:
        """Start all of them, and wait until they serve.

        Args:
            address: Of their book.

        Raises:
            ShardError: If one does not.
        """

    async def entries(self) -> list[Entry]:
        """Those that run now."""

    async def end(self, hurried: asyncio.Event) -> None:
        """Have all of them drain and end; at once when `hurried` is set."""


async def serve(config: ServerConfig, fleet: Fleet, *, exit_with_stdin: bool = False) -> None:
    """Serve until SIGTERM, SIGINT or, if asked, the end of standard input.

    As `sandbox_server.__main__.serve`, which each shard runs: one line of JSON with the book's
    address when all shards serve; a signal drains them all, a second one ends them at once.

    Raises:
        REFUSALS: As there.
        ShardError: If a shard does not start.
    """
    # What a shard would refuse is told once, and a runtime is built once.
    output = sys.stdout
    doctor.require(config)
    for name in config.runtimes:
        runtime.ensure(name)
    stop = Stop(with_stdin=exit_with_stdin)
    if config.address == "unix:":
        config = dataclasses.replace(config, address=f"unix:{state.folder()}/socket")
    try:
        book = Book(config, fleet.entries)
        address = book.listen()
        try:
            await fleet.start(address)
            await book.serve()
            stop.on_signals()
            print(json.dumps({"address": address}), flush=True, file=output)
            await stop.told.wait()
            await book.drain()
            await fleet.end(stop.hurried)
        finally:
            await book.stop()
    finally:
        state.remove()
