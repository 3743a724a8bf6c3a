"""One open stream of steps: messages in, results out as they become ready, until either ends it.

A message is what one `Step` call would be, and is counted, bounded and answered as one. What a
call's end does for a call is done here by looking at the stream from time to time: a client that
is gone, reads nothing or says nothing holds nothing for long.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

import grpc
from sandbox_api.errors import InvalidRequestError, SandboxError, UnavailableError, item_from_error
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.chunks import CHUNK_DELAY_S, CHUNK_ITEMS, messages
from sandbox_server.engine import Engine
from sandbox_server.telemetry.calls import Call

# Items of a message that are started before other calls get a turn: some milliseconds of work.
ITEMS_AT_ONCE = 256
# Items of a stream are counted in 32 bits.
_INDICES = 1 << 32
# Looks at the stream in the shortest time that something may take.
_LOOKS = 4


class _Message:
    """One message in work: results that are ready, and how many are to come."""

    __slots__ = ("_in_work", "_stream", "count", "left", "results", "timer")

    def __init__(
        self,
        stream: StepStream,
        items: int,
        count: Callable[[list[Any]], None],
        in_work: AbstractContextManager[None],
    ) -> None:
        self._stream = stream
        self._in_work = in_work
        self.left = items
        self.count = count
        self.results: list[pb.StepResult] = []
        self.timer: asyncio.TimerHandle | None = None

    def __call__(self, result: pb.StepResult) -> None:
        """Take one result."""
        self.put_all([result], result.ByteSize())

    def put_all(self, found: list[pb.StepResult], size: int) -> None:
        """Take many, of about so many bytes together."""
        stream = self._stream
        if stream.closed:
            return
        stream.note_unread(size)
        results = self.results
        results += found
        self.left -= len(found)
        if self.left == 0 or len(results) >= CHUNK_ITEMS:
            stream.send(self)
        elif self.timer is None:
            self.timer = stream.loop.call_later(CHUNK_DELAY_S, stream.send, self)

    def take(self) -> list[pb.StepResult]:
        """The results that are ready, counted."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        results, self.results = self.results, []
        if results:
            self.count(results)
        if self.left == 0:
            self.end()
        return results

    def end(self) -> None:
        """Nothing more comes of it. Twice is fine."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        in_work, self._in_work = self._in_work, _OVER
        in_work.__exit__(None, None, None)


class _Over(AbstractContextManager[None]):
    def __exit__(self, *_: object) -> None:
        pass


_OVER = _Over()


class StepStream:
    """Serves one `Play` call; `run` does it.

    A stream holds at most `max_batch_items` items in work or unread, and those of one message
    on top: while it does, its next message is left to wait where gRPC holds the sender back.

    Args:
        engine: The tenant's.
        call: The stream as a call; each message is counted as one like it.
        context: Where messages come from and go to.

    Attributes:
        closed: Whether it is over: what comes now, nobody takes.
    """

    def __init__(self, engine: Engine, call: Call, context: grpc.aio.ServicerContext) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._engine = engine
        self._call = call
        self._context = context
        self._config = engine.config
        self._next_index = 0
        self._held_items = 0
        self._unread_bytes = 0
        self._in_work: set[_Message] = set()
        self._due: dict[_Message, None] = {}
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self._finishing = False
        self._error: Exception | None = None
        self._heard_at = self._written_at = self.loop.time()
        self._is_writing = False
        self._task: asyncio.Task[Any] | None = None

    # -- its life ----------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until the client has no more to say, or `finish`, and all is answered.

        Raises:
            InvalidRequestError: If a message is none, or too large.
            UnavailableError: If the client says nothing for too long while it waits.
        """
        self._task = asyncio.current_task()
        reading = asyncio.create_task(self._read())
        self._look()
        try:
            await self._write()
        finally:
            self.closed = True
            self._timer.cancel()
            reading.cancel()
            for message in self._in_work:
                message.end()
            self._engine.unread.total_bytes -= self._unread_bytes

    def finish(self) -> None:
        """Take no more messages; the stream ends when what is in work is answered."""
        self._finishing = True
        self._ready.set()

    def _look(self) -> None:
        """End the stream of a client that does not read, or does not speak."""
        now, config = self.loop.time(), self._config
        if self._is_writing and now - self._written_at > config.unread_timeout_s:
            # Nothing but a cancellation ends the wait for it.
            assert self._task is not None
            self._task.cancel()
            return
        if not self._finishing and now - self._heard_at > config.request_timeout_s:
            if self._held_items:
                self._error = UnavailableError(
                    f"nothing was heard of the client for {config.request_timeout_s:g} s while it "
                    "waits; open another stream and send what has no result again"
                )
            self.finish()
        soonest_s = min(config.unread_timeout_s, config.request_timeout_s)
        self._timer = self.loop.call_later(soonest_s / _LOOKS, self._look)

    # -- messages in -------------------------------------------------------------------

    async def _read(self) -> None:
        read: Callable[[], Awaitable[Any]] = self._context.read
        most = self._config.max_batch_items
        try:
            while not self._finishing:
                request = await read()
                if request is grpc.aio.EOF:
                    break
                self._heard_at = self.loop.time()
                if isinstance(request, SandboxError):
                    raise request
                if request.items:
                    await self._take(request)
                while self._held_items >= most:
                    self._room.clear()
                    # It cannot be heard meanwhile, however long its steps may take.
                    self._heard_at = math.inf
                    await self._room.wait()
                    self._heard_at = self.loop.time()
        except Exception as error:
            self._error = error
        self.finish()

    async def _take(self, request: pb.StepRequest) -> None:
        items, engine = request.items, self._engine
        most = engine.config.max_batch_items
        if len(items) > most:
            raise InvalidRequestError(
                f"the message has {len(items)} items; this server takes {most} in one"
            )
        first = self._next_index
        if first + len(items) > _INDICES:
            # On another stream they are counted from 0 again.
            self.finish()
            return
        self._next_index += len(items)
        call = self._call.another()
        in_work = call.in_work(request, self._context.invocation_metadata())
        in_work.__enter__()
        message = _Message(self, len(items), call.observer(), in_work)
        self._in_work.add(message)
        self._held_items += len(items)
        try:
            engine.unread.admit()
        except SandboxError as error:
            self._refuse(message, first, len(items), error)
            return
        for place in range(0, len(items), ITEMS_AT_ONCE):
            if place:
                # Let others in: a batch of thousands takes a while to start.
                await asyncio.sleep(0)
            engine.steps(items[place : place + ITEMS_AT_ONCE], first + place, message)

    @staticmethod
    def _refuse(message: _Message, first: int, items: int, error: SandboxError) -> None:
        """Answer all items of a message with an error instead of taking them."""
        said = item_from_error(error)
        for place in range(items):
            message(pb.StepResult(index=first + place, error=said))

    # -- results out -------------------------------------------------------------------

    def note_unread(self, size: int) -> None:
        """A result of so many bytes is ready."""
        self._unread_bytes += size
        self._engine.unread.total_bytes += size

    def send(self, message: _Message) -> None:
        """Send the results of a message that are ready."""
        self._due[message] = None
        self._ready.set()

    async def _write(self) -> None:
        write, unread = self._context.write, self._engine.unread
        while True:
            await self._ready.wait()
            self._ready.clear()
            if self._error is not None:
                raise self._error
            due, self._due = self._due, {}
            results: list[pb.StepResult] = []
            for message in due:
                results += message.take()
                if message.left == 0:
                    self._in_work.discard(message)
            # Until they are taken these count as unread; what comes meanwhile, too.
            size = self._unread_bytes
            if results:
                self._is_writing = True
                for response in messages(pb.StepResponse, results):
                    self._written_at = self.loop.time()
                    await write(response)
                self._is_writing = False
                self._unread_bytes -= size
                unread.total_bytes -= size
                self._held_items -= len(results)
                self._room.set()
            if self._finishing and not self._in_work:
                return
