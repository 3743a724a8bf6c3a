"""Sending a batch until every item has an answer, or an error that waiting does not cure.

One loop serves Reset, Step and Verify. In each round the items still open go out in one
call; those that came back are done, whatever becomes of the call; the rest are sorted by
error: waited for, recovered (by the batch itself), or given up. Only rounds in which no
item got through count as retries, so a full server that frees places one by one serves a
large batch in the end.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import grpc

from sandbox_api.errors import (
    CapacityError,
    DeadlineExceededError,
    InternalError,
    QuotaError,
    SandboxError,
    UnavailableError,
    error_from_rpc,
)

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 5.0

# A gRPC server silently cancels calls past about 1,000 in flight, unless told otherwise.
MAX_CALLS_IN_FLIGHT = 256


class ItemBudget:
    """A semaphore that is taken many at a time, first come, first served."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def in_use(self) -> int:
        return self.limit - self._free

    @asynccontextmanager
    async def hold(self, count: int) -> AsyncIterator[None]:
        """Hold `count` places, at most `limit`, while the block runs."""
        if self._waiting or self._free < count:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((count, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._free += count
                else:
                    self._waiting.remove((count, turn))
                self._admit()
                raise
        else:
            self._free -= count
        try:
            yield
        finally:
            self._free += count
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            count, turn = self._waiting.popleft()
            self._free -= count
            turn.set_result(None)


class Batch(Protocol):
    """Items of one rpc whose response is a stream of indexed results."""

    def call(self, pending: Sequence[int]) -> Any:
        """Start the call for these items and return its response stream."""

    def accept(self, index: int, message: Any) -> SandboxError | None:
        """Take one item's answer; return its error where it has one."""

    async def recover(self, failed: dict[int, SandboxError]) -> dict[int, SandboxError]:
        """Make failed items fit to be sent again; return those that cannot be."""

    def fail(self, index: int, error: SandboxError) -> None:
        """Give one item up."""


def is_worth_waiting(error: SandboxError) -> bool:
    """Whether the same item may succeed later with nothing else done."""
    if isinstance(error, QuotaError):
        return error.retry_delay_s > 0
    return isinstance(error, CapacityError | UnavailableError | DeadlineExceededError)


def backoff_s(retry: int, errors: Sequence[SandboxError]) -> float:
    """Seconds to wait before retry number `retry` (from 1), never less than the server asks."""
    asked = max((error.retry_delay_s for error in errors), default=0.0)
    ours = min(BACKOFF_FIRST_S * 2.0 ** max(retry - 1, 0), BACKOFF_MAX_S)
    return max(asked, ours) * random.uniform(1.0, 1.25)


class Dispatcher:
    """Sends batches and single calls, within the client's bounds."""

    def __init__(self, max_in_flight_items: int, max_retries: int) -> None:
        self.budget = ItemBudget(max_in_flight_items)
        self.max_retries = max_retries
        self._calls = asyncio.Semaphore(MAX_CALLS_IN_FLIGHT)

    async def run_batch(self, batch: Batch, pending: list[int]) -> None:
        """Answer every item of `pending`, which holds indices into the batch."""
        retries = 0
        while pending:
            async with self.budget.hold(len(pending)), self._calls:
                failed = await _round(batch, pending)
            if not failed:
                return
            retries = retries + 1 if len(failed) == len(pending) else 0
            if retries > self.max_retries:
                for index, error in failed.items():
                    batch.fail(index, error)
                return
            waits = [error for error in failed.values() if is_worth_waiting(error)]
            hopeless = await batch.recover(failed)
            for index, error in hopeless.items():
                batch.fail(index, error)
            pending = [index for index in failed if index not in hopeless]
            if pending and waits:
                await asyncio.sleep(backoff_s(retries, waits))

    async def run_call(
        self, start: Callable[[], Any], retry: Callable[[SandboxError], bool] = is_worth_waiting
    ) -> Any:
        """Make a unary call, again where its error is worth it.

        Raises:
            SandboxError: The last error, when retries are used up or do not help.
        """
        retries = 0
        while True:
            try:
                async with self._calls:
                    return await start()
            except grpc.aio.AioRpcError as rpc_error:
                error = error_from_rpc(rpc_error)
            retries += 1
            if retries > self.max_retries or not retry(error):
                raise error
            await asyncio.sleep(backoff_s(retries, [error]))


async def _round(batch: Batch, pending: Sequence[int]) -> dict[int, SandboxError]:
    """Send `pending` once; returns the items without a result, each with its error."""
    failed: dict[int, SandboxError] = {}
    answered = bytearray(len(pending))
    call_error: SandboxError = InternalError("the server ended the call without a result")
    stream = batch.call(pending)
    try:
        async for response in stream:
            for message in response.results:
                position = message.index
                if position >= len(pending):
                    raise InternalError(
                        f"the server answered item {position} of a call of {len(pending)}"
                    )
                if answered[position]:
                    continue
                answered[position] = 1
                index = pending[position]
                error = batch.accept(index, message)
                if error is not None:
                    failed[index] = error
    except grpc.aio.AioRpcError as rpc_error:
        call_error = error_from_rpc(rpc_error)
    except InternalError as error:
        call_error = error
    finally:
        stream.cancel()
    if not all(answered):
        for position, index in enumerate(pending):
            if not answered[position]:
                failed[index] = call_error
    return failed
