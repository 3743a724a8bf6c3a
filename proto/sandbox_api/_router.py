"""The methods of a server, over the shards of one book.

What has this in the place of a stub need not know of shards. Items of a batch go to the shards
that hold their episodes, side by side; new episodes go where there is the least to do, and
programs along with them. A shard that is gone has lost its episodes: each of their items gets
the error that says so, upon which the client rebuilds them elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from sandbox_api._shards import NO_ANSWER, Shard, Shards
from sandbox_api.errors import (
    REASON_METADATA_KEY,
    DeadlineExceededError,
    EpisodeLostError,
    SandboxError,
    UnavailableError,
    error_from_rpc,
    item_from_error,
    rpc_from_error,
)
from sandbox_api.v1 import sandbox_pb2 as pb

# For a position in a batch that is none: no batch is so long.
_NO_POSITION = 2**32 - 1


@dataclass(frozen=True, slots=True)
class _Part:
    """What of a batch goes to one shard.

    Attributes:
        shard: Where to; None where it is gone.
        request: With these items alone.
        positions: Where each of them is in the whole batch.
    """

    shard: Shard | None
    request: Any
    positions: list[int]


class Router:
    """What `SandboxServiceStub` has, over several servers."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._programs: dict[str, pb.RegisterProgramRequest] = {}

    async def aclose(self) -> None:
        await self._shards.aclose()

    # -- one call, one shard -----------------------------------------------------------

    async def RegisterProgram(self, request: pb.RegisterProgramRequest, timeout: float) -> Any:
        """Register with one shard; the others get it when an episode of it starts there."""
        await self._shards.learn_loads()
        try:
            shard = self._shards.choose()
        except UnavailableError as error:
            raise rpc_from_error(error) from None
        try:
            return await self._register(shard, request, timeout)
        except grpc.aio.AioRpcError as error:
            # Sent again it goes to a shard that is there.
            await self._took_all(shard, error)
            raise

    async def _register(
        self, shard: Shard, request: pb.RegisterProgramRequest, timeout: float
    ) -> pb.RegisterProgramResponse:
        program = await shard.stub.RegisterProgram(request, timeout=timeout)
        if program.outcome == pb.OUTCOME_COMPLETED:
            self._programs[program.program_id] = request
            shard.programs.add(program.program_id)
        return program

    async def Fork(self, request: pb.ForkRequest, timeout: float) -> pb.ForkResponse:
        shard = self._shards.of(request.episode_id)
        if shard is None:
            raise rpc_from_error(_lost())
        copies = await self._watched(shard, partial(shard.stub.Fork, request, timeout=timeout))
        shard.live += len(copies.episode_ids)
        return copies

    async def _watched(self, shard: Shard, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a unary call; an error that takes the shard's episodes along says so."""
        try:
            with self._shards.watched():
                answer = await call()
        except grpc.aio.AioRpcError as error:
            if await self._took_all(shard, error):
                raise rpc_from_error(_lost()) from None
            raise
        except asyncio.CancelledError:
            if _is_ours(shard):
                raise rpc_from_error(_lost()) from None
            raise
        return answer

    # -- one call, several shards ------------------------------------------------------

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, timeout: float
    ) -> pb.GetServerInfoResponse:
        """All shards as one server: its bounds and its load are theirs together."""
        await self._shards.look_up()
        infos = await self._shards.ask_all(timeout)
        if not infos:
            raise rpc_from_error(UnavailableError("the book of addresses does not answer"))
        first, *others = infos
        whole = pb.GetServerInfoResponse()
        whole.CopyFrom(first)
        for info in others:
            whole.max_episodes += info.max_episodes
            whole.max_pending_items += info.max_pending_items
            whole.max_batch_items = min(whole.max_batch_items, info.max_batch_items)
            for name in ("live_episodes", "pending_items", "jails", "steps_total"):
                setattr(whole.load, name, getattr(whole.load, name) + getattr(info.load, name))
            # They may have the same ones: how many differ cannot be told.
            whole.load.programs = max(whole.load.programs, info.load.programs)
            for cause, count in info.load.ended_total.items():
                whole.load.ended_total[cause] += count
        whole.shards.extend(pb.Shard(name=s.name, address=s.address) for s in self._shards)
        return whole

    async def Close(self, request: pb.CloseRequest, timeout: float) -> pb.CloseResponse:
        by_shard: dict[Shard, list[str]] = {}
        for episode_id in request.episode_ids:
            # The episodes of one that is gone have ended with it.
            if shard := self._shards.of(episode_id):
                by_shard.setdefault(shard, []).append(episode_id)

        async def close(shard: Shard, ids: list[str]) -> int:
            call = partial(shard.stub.Close, pb.CloseRequest(episode_ids=ids), timeout=timeout)
            try:
                closed = (await self._watched(shard, call)).closed
            except grpc.aio.AioRpcError as error:
                if isinstance(error_from_rpc(error), EpisodeLostError):
                    return 0
                raise
            shard.live = max(0, shard.live - closed)
            return closed

        closed = await asyncio.gather(*(close(*part) for part in by_shard.items()))
        return pb.CloseResponse(closed=sum(closed))

    # -- batches -----------------------------------------------------------------------

    def Step(self, request: pb.StepRequest, timeout: float) -> _Answers:
        return self._batch("Step", request, pb.StepResponse, timeout)

    def Verify(self, request: pb.VerifyRequest, timeout: float) -> _Answers:
        return self._batch("Verify", request, pb.VerifyResponse, timeout)

    def _batch(self, verb: str, request: Any, response: Any, timeout: float) -> _Answers:
        async def plan() -> list[_Part]:
            return _parts(request, [self._shards.of(item.episode_id) for item in request.items])

        def call(part: _Part) -> Any:
            assert part.shard is not None
            return getattr(part.shard.stub, verb)(part.request, timeout=timeout)

        return _Answers(self._shards, plan, call, self._took_all, response)

    def Reset(self, request: pb.ResetRequest, timeout: float) -> _Answers:
        async def plan() -> list[_Part]:
            await self._shards.learn_loads()
            shards = []
            for item in request.items:
                shard = self._shards.choose(item.program_id)
                shard.live += 1
                shards.append(shard)
            return _parts(request, shards)

        async def call(part: _Part) -> AsyncIterator[pb.ResetResponse]:
            shard, items = part.shard, part.request.items
            assert shard is not None
            wanted = {item.program_id for item in items} - shard.programs
            # Those of other clients cannot be given to a shard, which may have them.
            known = [self._programs[i] for i in wanted if i in self._programs]
            await asyncio.gather(*(self._register(shard, p, timeout) for p in known))
            async for response in shard.stub.Reset(part.request, timeout=timeout):
                for result in response.results:
                    forgotten = result.error.reason == pb.ERROR_REASON_PROGRAM_NOT_FOUND
                    if forgotten and result.index < len(items):
                        self._miss(shard, items[result.index].program_id, result)
                yield response

        return _Answers(self._shards, plan, call, self._took_nothing, pb.ResetResponse)

    def _miss(self, shard: Shard, program_id: str, result: pb.ResetResult) -> None:
        """A shard does not have a program: it is given it, or others are asked for it."""
        shard.programs.discard(program_id)
        if program_id in self._programs:
            return
        shard.lacking.add(program_id)
        if all(program_id in other.lacking for other in self._shards):
            # It is registered nowhere; by the next time it may be.
            for other in self._shards:
                other.lacking.discard(program_id)
        else:
            elsewhere = UnavailableError("this shard does not have the program; another may")
            result.error.CopyFrom(item_from_error(elsewhere))

    async def _took_all(self, shard: Shard, error: grpc.aio.AioRpcError) -> bool:
        """Note that a call failed; returns whether the shard's episodes are gone with it."""
        # A server that gives a reason is there.
        metadata = dict(error.trailing_metadata() or ())
        if error.code() not in NO_ANSWER or REASON_METADATA_KEY in metadata:
            return False
        await self._shards.check(shard)
        return self._shards.is_gone(shard)

    async def _took_nothing(self, shard: Shard, error: grpc.aio.AioRpcError) -> bool:
        """The same for episodes that have not started: they are sent again, elsewhere."""
        await self._took_all(shard, error)
        return False


def _parts(request: Any, shards: Sequence[Shard | None]) -> list[_Part]:
    """Divide a batch by shard."""
    positions: dict[Shard | None, list[int]] = {}
    for position, shard in enumerate(shards):
        positions.setdefault(shard, []).append(position)
    if len(positions) == 1:
        return [_Part(shard, request, places) for shard, places in positions.items()]
    items = request.items
    return [
        _Part(shard, type(request)(items=[items[place] for place in places]), places)
        for shard, places in positions.items()
    ]


class _Answers:
    """The answers of several shards to one batch, as one stream.

    Args:
        shards: All of them.
        plan: Divides the batch.
        call: Sends one part; gives the stream of its answers.
        took_all: Told of the error that a part's stream ended with; says whether the episodes
            in it are lost.
        response: The kind of message.
    """

    def __init__(
        self,
        shards: Shards,
        plan: Callable[[], Awaitable[list[_Part]]],
        call: Callable[[_Part], Any],
        took_all: Callable[[Shard, grpc.aio.AioRpcError], Awaitable[bool]],
        response: Any,
    ) -> None:
        self._shards = shards
        self._plan = plan
        self._call = call
        self._took_all = took_all
        self._response = response
        self._readers: list[asyncio.Task[None]] = []

    def cancel(self) -> None:
        """End what is still to come."""
        for reader in self._readers:
            reader.cancel()

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            parts = await self._plan()
        except UnavailableError as error:
            raise rpc_from_error(error) from None
        ready: asyncio.Queue[Any] = asyncio.Queue()
        for part in parts:
            reader = asyncio.create_task(self._read(part, ready.put_nowait))
            reader.add_done_callback(ready.put_nowait)
            self._readers.append(reader)
        left = len(parts)
        while left:
            item = await ready.get()
            if isinstance(item, asyncio.Task):
                left -= 1
                item.result()
            else:
                yield item

    async def _read(self, part: _Part, put: Callable[[Any], None]) -> None:
        """Pass on the answers to one part; what stays open gets the error that ended it."""
        shard, positions = part.shard, part.positions
        if shard is None:
            put(self._failures(positions, _lost()))
            return
        unanswered = set(positions)
        try:
            with self._shards.watched():
                async for response in self._call(part):
                    for result in response.results:
                        index = result.index
                        place = positions[index] if index < len(positions) else _NO_POSITION
                        result.index = place
                        unanswered.discard(place)
                    put(response)
        except asyncio.CancelledError:
            if not _is_ours(shard):
                raise
            put(self._failures(unanswered, _lost()))
        except grpc.aio.AioRpcError as rpc_error:
            lost = await self._took_all(shard, rpc_error)
            error = _lost() if lost else error_from_rpc(rpc_error)
            if isinstance(error, DeadlineExceededError):
                # Has no reason on the wire; what it asks for is the same.
                error = UnavailableError(str(error))
            put(self._failures(unanswered, error))

    def _failures(self, positions: Iterable[int], error: SandboxError) -> Any:
        told = item_from_error(error)
        response = self._response()
        for position in positions:
            response.results.add(index=position, error=told)
        return response


def _is_ours(shard: Shard) -> bool:
    """Whether a call was cancelled for its shard's sake, not with the task that made it."""
    task = asyncio.current_task()
    return shard.closed and task is not None and not task.cancelling()


def _lost() -> EpisodeLostError:
    return EpisodeLostError("the shard that had it is gone")
