"""Results on their way to a client: gathered into chunks as they become ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from typing import Any

from sandbox_api.errors import UnavailableError

from sandbox_server.telemetry import calls
from sandbox_server.unread import Unread

# A chunk goes out when it has this many results, or when its first one has waited so
# long: small enough to delay nobody, long enough to spare a message per result.
CHUNK_ITEMS = 256
CHUNK_DELAY_S = 0.002
# Of results that are large, fewer go into one message. No single result is over 48 MiB.
_MESSAGE_BYTES = 16 * 1024 * 1024
_TASKS_AT_ONCE = 16


class Chunks:
    """Results of one streamed call.

    Args:
        expected: How many results there will be.
        count: Called with the results of each chunk, for the metrics.
        unread: Where they count until the client has taken them, or the call is over.
    """

    def __init__(self, expected: int, count: Callable[[list[Any]], None], unread: Unread) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = expected
        self._count = count
        self._unread = unread
        self._unread_bytes = 0
        self._closed = False
        self._error: Exception | None = None
        self._results: list[Any] = []
        self._ready = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, result: Any) -> None:
        """Take one result."""
        self.put_all([result], result.ByteSize())

    def put_all(self, results: list[Any], size: int) -> None:
        """Take many, of about so many bytes together."""
        if self._closed:
            return
        self._unread_bytes += size
        self._unread.total_bytes += size
        self._results += results
        self._left -= len(results)
        if self._left == 0 or len(self._results) >= CHUNK_ITEMS:
            self._ready.set()
        elif self._timer is None:
            self._timer = self._loop.call_later(CHUNK_DELAY_S, self._ready.set)

    def fail(self, error: Exception) -> None:
        """A result will never come: the call ends, and does not wait for it."""
        self._error = error
        self._ready.set()

    async def __aiter__(self) -> AsyncGenerator[list[Any], None]:
        while self._left or self._results:
            await self._ready.wait()
            if self._error is not None:
                raise self._error
            self._ready.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            results, self._results = self._results, []
            # Before it is read, more may come: that counts from then on.
            size, self._unread_bytes = self._unread_bytes, 0
            try:
                if results:
                    self._count(results)
                    yield results
            finally:
                self._unread.total_bytes -= size

    def close(self) -> None:
        """The call is over: what nobody has taken goes, and so does what is still to come."""
        self._closed = True
        self._results.clear()
        self._unread.total_bytes -= self._unread_bytes
        self._unread_bytes = 0


def messages(kind: Callable[..., Any], results: list[Any]) -> Iterator[Any]:
    """Put results into as few messages as may be: one over gRPC's bound ends the whole call."""
    message = kind(results=results)
    if len(results) == 1 or message.ByteSize() <= _MESSAGE_BYTES:
        yield message
        return
    middle = len(results) // 2
    yield from messages(kind, results[:middle])
    yield from messages(kind, results[middle:])


async def gather(
    work: Callable[[int, Any], Awaitable[Any]],
    items: Iterable[Any],
    count: Callable[[list[Any]], None],
    unread: Unread,
) -> AsyncGenerator[list[Any]]:
    """Run `work(index, item)` for all items side by side, and yield results in chunks.

    A client that goes away cancels what is still to do.
    """
    tasks: list[asyncio.Task[None]] = []
    wanted = list(items)
    chunks = Chunks(len(wanted), count, unread)

    async def one(index: int, item: Any) -> None:
        calls.about(item, index)
        try:
            chunks(await work(index, item))
        except asyncio.CancelledError:
            # If it is not the call that ends, and nobody waits, it is something below.
            chunks.fail(UnavailableError("an item's work was given up; send the call again"))
            raise
        except Exception as error:
            chunks.fail(error)

    async def start() -> None:
        for index, item in enumerate(wanted):
            tasks.append(asyncio.create_task(one(index, item)))
            if index % _TASKS_AT_ONCE == _TASKS_AT_ONCE - 1:
                # Let others in; what these do before their first wait takes a while.
                await asyncio.sleep(0)

    starting = asyncio.create_task(start())
    try:
        async with contextlib.aclosing(aiter(chunks)) as ready:
            async for results in ready:
                yield results
    finally:
        chunks.close()
        starting.cancel()
        for task in tasks:
            task.cancel()
