"""The stream that all steps of a client go through: opened when it is needed, and left open.

A step then costs a message each way instead of a call. Batches of any number of callers share
it; the server counts the items of a stream, and by their numbers results find their batch. The
server ends a stream that is idle, and the next step opens another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc

from sandbox_api.errors import REASON_METADATA_KEY
from sandbox_api.v1 import sandbox_pb2 as pb

# A client that waits says so this often: servers end streams of those that say nothing.
_STILL_THERE_S = 5.0
# Items of a stream are counted in 32 bits: the next one gets another stream.
_MOST_ITEMS = 2**32
# Streams that the server may end under a batch, one after another, without a result.
_MOST_ENDED_STREAMS = 3


class Arrived(NamedTuple):
    """Results of one batch, as a response of a call has them."""

    results: list[pb.StepResult]


class PlayCall:
    """One batch on the stream: what a `Step` call would be.

    An asynchronous iterator of what arrives; raises `grpc.aio.AioRpcError` as a call does.
    """

    def __init__(self, request: pb.StepRequest, deadline: float) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._results: list[pb.StepResult] = []
        self._error: grpc.aio.AioRpcError | None = None
        # Places in the batch of the items that were sent last, and which of them are answered.
        self._places: range | list[int] = range(len(request.items))
        self._answered = bytearray(len(request.items))
        self._left = len(request.items)
        self.request = request
        self.deadline = deadline
        self.first = 0
        self.ended_streams = 0
        self.stream: _Stream | None = None

    def __aiter__(self) -> PlayCall:
        return self

    async def __anext__(self) -> Arrived:
        while not self._results:
            if self._error is not None:
                raise self._error
            if not self._left:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        arrived, self._results = Arrived(self._results), []
        return arrived

    @property
    def items(self) -> int:
        """How many were sent last."""
        return len(self._places)

    @property
    def done(self) -> bool:
        return not self._left

    def cancel(self) -> None:
        """Nobody waits for what has not come; that is fine of a finished call, too."""
        if self.stream is not None:
            self.stream.forget(self)

    def take(self, result: pb.StepResult, sent: int) -> None:
        """The result of an item has come; `wake` is to follow."""
        place = self._places[sent]
        if not self._answered[place]:
            self._answered[place] = 1
            result.index = place
            self._results.append(result)
            self._left -= 1
            self.ended_streams = 0

    def unanswered(self) -> pb.StepRequest:
        """A request for what has no result, which is then sent."""
        items = self.request.items
        self._places = [place for place, answered in enumerate(self._answered) if not answered]
        return pb.StepRequest(items=[items[place] for place in self._places])

    def fail(self, error: grpc.aio.AioRpcError) -> None:
        """No more results will come."""
        self._error = error
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Stream:
    """One open `Play` rpc.

    Args:
        rpc: It.
        send_again: Called with each batch that has results to come when the server has ended
            the stream in good order.

    Attributes:
        ended: Whether it can be used no more.
    """

    def __init__(self, rpc: Any, send_again: Callable[[PlayCall], None]) -> None:
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._rpc = rpc
        self._send_again = send_again
        self._calls: list[PlayCall] = []
        self._sent_items = 0
        self._outbox: deque[pb.StepRequest] = deque()
        self._to_write = asyncio.Event()
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = [
            self._loop.create_task(self._read()),
            self._loop.create_task(self._write()),
        ]

    def has_room(self, items: int) -> bool:
        return self._sent_items + items < _MOST_ITEMS

    def send(self, call: PlayCall, request: pb.StepRequest) -> None:
        """Send what is open of a batch."""
        call.stream = self
        call.first = self._sent_items
        self._sent_items += call.items
        self._calls.append(call)
        self._put(request)
        if self._timer is None or call.deadline < self._timer.when():
            self._look_at(call.deadline)

    def forget(self, call: PlayCall) -> None:
        if call in self._calls:
            self._calls.remove(call)

    async def close(self) -> None:
        self._end(_error(grpc.StatusCode.UNAVAILABLE, "the client has closed the stream"))
        self._rpc.cancel()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A call that lives keeps its connection open, whatever becomes of the channel.
        self._rpc = None

    def _put(self, request: pb.StepRequest) -> None:
        self._outbox.append(request)
        self._to_write.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._to_write.wait()
                self._to_write.clear()
                while self._outbox:
                    self._written_at = self._loop.time()
                    await self._rpc.write(self._outbox.popleft())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # It has ended: the reader is told why.
            return

    async def _read(self) -> None:
        error = None
        try:
            while (response := await self._rpc.read()) is not grpc.aio.EOF:
                self._hand_out(response.results)
        except grpc.aio.AioRpcError as rpc_error:
            error = _why(rpc_error)
        except asyncio.CancelledError:
            error = _error(grpc.StatusCode.UNAVAILABLE, "the stream was cancelled")
        self._end(error)
        for task in self._tasks[1:]:
            task.cancel()

    def _hand_out(self, results: Any) -> None:
        touched: dict[PlayCall, None] = {}
        call: PlayCall | None = None
        for result in results:
            if call is None or not 0 <= result.index - call.first < call.items:
                call = self._call_of(result.index)
                if call is None:
                    # Of a batch that is waited for no more.
                    continue
                touched[call] = None
            call.take(result, result.index - call.first)
        for call in touched:
            if call.done:
                self.forget(call)
            call.wake()

    def _call_of(self, index: int) -> PlayCall | None:
        for call in self._calls:
            if 0 <= index - call.first < call.items:
                return call
        return None

    def _end(self, error: grpc.aio.AioRpcError | None) -> None:
        """Nothing more comes; without an error, what has no result is sent on another stream."""
        if self.ended:
            return
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        calls, self._calls = self._calls, []
        for call in calls:
            if error is not None:
                call.fail(error)
            else:
                self._send_again(call)

    def _look_at(self, when: float) -> None:
        """Look at deadlines then, or when the server is to be told that somebody waits."""
        if self._timer is not None:
            self._timer.cancel()
        when = min(when, self._loop.time() + _STILL_THERE_S)
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for call in [call for call in self._calls if call.deadline <= now]:
            self.forget(call)
            late = "no answer to a step within its deadline"
            call.fail(_error(grpc.StatusCode.DEADLINE_EXCEEDED, late))
        if self._calls:
            if now - self._written_at >= _STILL_THERE_S and not self._outbox:
                self._put(pb.StepRequest())
            self._look_at(min(call.deadline for call in self._calls))


def _why(error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
    """Why a stream broke: what is not the server's own word passes, and steps may come again."""
    said = REASON_METADATA_KEY in dict(error.trailing_metadata() or ())
    if error.code() is grpc.StatusCode.INTERNAL and not said:
        # gRPC's, of a message that was on its way when the connection broke.
        return _error(grpc.StatusCode.UNAVAILABLE, error.details() or str(error))
    return error


def _error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


class PlayingStub:
    """A stub whose `Step` goes over a stream that stays open.

    Args:
        stub: Its other methods are that one's.
    """

    def __init__(self, stub: Any) -> None:
        self.RegisterProgram = stub.RegisterProgram
        self.Reset = stub.Reset
        self.Verify = stub.Verify
        self.Fork = stub.Fork
        self.Close = stub.Close
        self.GetServerInfo = stub.GetServerInfo
        self._open = stub.Play
        self._stream: _Stream | None = None

    def Step(self, request: pb.StepRequest, timeout: float) -> PlayCall:
        """Send a batch of at least one item; after so many seconds it is waited for no more."""
        call = PlayCall(request, asyncio.get_running_loop().time() + timeout)
        self._send(call, request)
        return call

    def _send(self, call: PlayCall, request: pb.StepRequest) -> None:
        stream = self._stream
        if stream is None or stream.ended or not stream.has_room(call.items):
            stream = self._stream = _Stream(self._open(), self._send_again)
        stream.send(call, request)

    def _send_again(self, call: PlayCall) -> None:
        call.ended_streams += 1
        if call.ended_streams > _MOST_ENDED_STREAMS:
            call.fail(_error(grpc.StatusCode.UNAVAILABLE, "the server ends every stream"))
        else:
            request = call.unanswered()
            self._send(call, request)

    async def aclose(self) -> None:
        """End the stream; a later step opens another."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()
