"""The shards behind one book of addresses: which there are, and how much each has to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc

from sandbox_api._play import PlayingStub
from sandbox_api.access import Access
from sandbox_api.errors import UnavailableError
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc as pb_grpc

# How a call fails that no server has answered.
NO_ANSWER = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
# What separates the secret of an episode's id from the name of its shard.
_SEPARATOR = "."
# Others start episodes, too: what a shard said of its load is believed for so long.
_LOAD_AGE_S = 1.0
# A shard that does not say its load within this is out of reach.
_ASK_TIMEOUT_S = 5.0
_BOOK_TIMEOUT_S = 5.0
# While a call is in work the book is asked so often whether its shard still is: a machine that
# is gone without a word would otherwise be missed only when the connection times out.
_WATCH_S = 2.0


class Shard:
    """One server of several.

    Attributes:
        name: Stays when it is started again.
        address: Where it is; another address is another `Shard`.
        stub: Its methods.
        live: Episodes it has, as it said last, and what this client has changed since.
        capacity: Episodes it can have; 0 until it has said so.
        programs: Ids of those that this client knows it to have.
        lacking: Ids of those that it has said not to have, and that this client cannot give it.
        is_within_reach: Whether it answered when it was last asked.
        closed: The book no longer has it: calls in work end.
    """

    def __init__(self, name: str, address: str, access: Access, options: Any) -> None:
        self.name = name
        self.address = address
        self.live = 0
        self.capacity = 0
        self.programs: set[str] = set()
        self.lacking: set[str] = set()
        self.is_within_reach = True
        self.closed = False
        self._channel = access.channel(address, options)
        stub = pb_grpc.SandboxServiceStub(self._channel)
        self.stub = PlayingStub(access.authorized(stub))

    @property
    def load(self) -> float:
        """Its part of its capacity that is in use."""
        return self.live / max(1, self.capacity)

    async def ask(self, timeout_s: float) -> pb.GetServerInfoResponse:
        """What it is and does; sets what of it is known here.

        Raises:
            grpc.aio.AioRpcError: If it does not answer.
        """
        try:
            info = await self.stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            self.is_within_reach = error.code() not in NO_ANSWER
            raise
        self.is_within_reach = True
        self.live = info.load.live_episodes
        self.capacity = info.max_episodes
        return info

    async def aclose(self) -> None:
        self.closed = True
        await self.stub.aclose()
        await self._channel.close()


class Shards:
    """The shards that a book names.

    Args:
        book: The stub of the book.
        address: Of the book.
        access: What it and its shards are reached with.
        options: Of the shards' channels.
    """

    def __init__(self, book: Any, address: str, access: Access, options: Any) -> None:
        self._book = book
        self._host = address.rpartition(":")[0]
        self._access = access
        self._options = options
        self._by_name: dict[str, Shard] = {}
        self._looking: asyncio.Task[None] | None = None
        self._calls = 0
        self._watcher: asyncio.Task[None] | None = None
        self._questions: dict[Shard, asyncio.Task[None]] = {}
        self._loads_at = 0.0
        self._loads_lock = asyncio.Lock()

    async def aclose(self) -> None:
        """Close the connections to all shards."""
        for task in (self._looking, self._watcher, *self._questions.values()):
            if task is not None:
                task.cancel()
        await asyncio.gather(*(shard.aclose() for shard in self._by_name.values()))
        self._by_name.clear()

    def __iter__(self) -> Iterator[Shard]:
        return iter(self._by_name.values())

    def of(self, episode_id: str) -> Shard | None:
        """The shard that has an episode; None where it is gone, and its episodes with it."""
        shard = self._by_name.get(episode_id.rpartition(_SEPARATOR)[2])
        if shard is not None and not shard.is_within_reach and self._within_reach():
            return None
        return shard

    def is_gone(self, shard: Shard) -> bool:
        """Whether what a shard had is to be looked for elsewhere."""
        if self._by_name.get(shard.name) is not shard:
            return True
        return not shard.is_within_reach and bool(self._within_reach())

    def _within_reach(self) -> list[Shard]:
        return [shard for shard in self._by_name.values() if shard.is_within_reach]

    def choose(self, program_id: str = "") -> Shard:
        """Where there is the least to do, of the shards that may have a program.

        Raises:
            UnavailableError: If there is none at all.
        """
        # Where none is within reach they are all tried: that is how they come back.
        shards = self._within_reach() or list(self._by_name.values())
        if not shards:
            raise UnavailableError("the book of addresses does not answer")
        able = [shard for shard in shards if program_id not in shard.lacking]
        return min(able or shards, key=lambda shard: shard.load)

    async def look_up(self) -> None:
        """Ask the book which shards there are; where it does not answer all stays as it was.

        Those that ask at the same time share one answer.
        """
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_up())
            self._looking.add_done_callback(self._looked)
        await asyncio.shield(self._looking)

    def _looked(self, _: Any) -> None:
        self._looking = None

    async def _look_up(self) -> None:
        with suppress(grpc.aio.AioRpcError):
            request = pb.GetServerInfoRequest()
            answer = await self._book.GetServerInfo(request, timeout=_BOOK_TIMEOUT_S)
            # None are those of a server that is no book any more.
            if answer.shards:
                await self.update(answer.shards)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While the block runs, what the book no longer has is noticed."""
        self._calls += 1
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._calls -= 1

    async def _watch(self) -> None:
        while self._calls:
            await asyncio.sleep(_WATCH_S)
            if self._calls:
                await self.look_up()
        self._watcher = None

    async def update(self, entries: Iterable[pb.Shard]) -> None:
        """Take over what the book says."""
        known, self._by_name = self._by_name, {}
        for entry in entries:
            address = self._host + entry.address if entry.address[:1] == ":" else entry.address
            shard = known.get(entry.name)
            if shard is not None and shard.address == address:
                del known[entry.name]
            else:
                shard = Shard(entry.name, address, self._access, self._options)
            self._by_name[entry.name] = shard
        # A new one has told nothing of itself.
        if any(not shard.capacity for shard in self):
            self._loads_at = 0.0
        for shard in known.values():
            await shard.aclose()

    async def learn_loads(self) -> None:
        """Ask all shards how much they have to do, if that was long ago."""
        async with self._loads_lock:
            if time.monotonic() - self._loads_at > _LOAD_AGE_S:
                await self.look_up()
                asked = self._within_reach()
                for shard in self:
                    if shard not in asked:
                        # Nobody waits for what has not answered before.
                        self._question(shard)
                await _answers(asked, _ASK_TIMEOUT_S)
                self._loads_at = time.monotonic()

    async def check(self, shard: Shard) -> None:
        """A call has brought no answer: find out what of the shard is left."""
        await self.look_up()
        if self._by_name.get(shard.name) is shard:
            await asyncio.shield(self._question(shard))

    def _question(self, shard: Shard) -> asyncio.Task[None]:
        """Ask a shard, once for all that want to know."""
        if shard not in self._questions:
            self._questions[shard] = asyncio.create_task(self._ask(shard))
        return self._questions[shard]

    async def _ask(self, shard: Shard) -> None:
        with suppress(grpc.aio.AioRpcError):
            await shard.ask(_ASK_TIMEOUT_S)
        del self._questions[shard]

    async def ask_all(self, timeout_s: float) -> list[pb.GetServerInfoResponse]:
        """What all shards say that answer.

        Raises:
            grpc.aio.AioRpcError: If none does.
        """
        return await _answers(self, timeout_s)


async def _answers(shards: Iterable[Shard], timeout_s: float) -> list[pb.GetServerInfoResponse]:
    """What those say of themselves that answer.

    Raises:
        grpc.aio.AioRpcError: If none of several does.
    """
    asked = [shard.ask(timeout_s) for shard in shards]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    infos = [answer for answer in answers if isinstance(answer, pb.GetServerInfoResponse)]
    for answer in answers:
        if not infos and isinstance(answer, BaseException):
            raise answer
    return infos
