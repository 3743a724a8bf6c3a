"""A book of fake servers, which a test may take down, move and freeze."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc as pb_grpc

from tests.api.fake_server import FakeServer, FakeServicer

SHARD_EPISODES = 100


class FakeBook(pb_grpc.SandboxServiceServicer):
    """Names the shards that run.

    Attributes:
        shards: By name; the book goes on naming those that were only stopped.
        asked: How often it was asked.
    """

    def __init__(self, stack: ExitStack, count: int) -> None:
        self.shards: dict[str, FakeServer] = {}
        self.asked = 0
        self._stack = stack
        for index in range(count):
            self.start(str(index))
        self.address = stack.enter_context(FakeServer(self)).address

    def start(self, name: str) -> None:
        """Start a shard at an address of its own; one of that name is forgotten."""
        servicer = FakeServicer()
        servicer.shard, servicer.max_episodes = name, SHARD_EPISODES
        self.shards[name] = FakeServer(servicer).__enter__()

    def stop(self, name: str) -> None:
        """End a shard."""
        self.shards[name].__exit__()

    def kill(self, name: str) -> None:
        """The same, and the book knows it."""
        self.shards.pop(name).__exit__()

    def servicer(self, name: str) -> FakeServicer:
        return self.shards[name].servicer

    def live(self) -> dict[str, int]:
        """Episodes of each shard."""
        return {name: len(shard.servicer.episodes) for name, shard in self.shards.items()}

    async def GetServerInfo(self, request: Any, context: Any) -> pb.GetServerInfoResponse:
        self.asked += 1
        shards = [pb.Shard(name=n, address=s.address) for n, s in self.shards.items()]
        return pb.GetServerInfoResponse(version="0", shards=shards)
