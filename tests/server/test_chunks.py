"""A call never waits for a result that will not come."""

from __future__ import annotations

import asyncio

import pytest
from sandbox_api.errors import UnavailableError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.chunks import gather
from sandbox_server.config import ServerConfig
from sandbox_server.unread import Unread


@pytest.mark.parametrize("given_up", ["one", "all"])
async def test_a_call_whose_item_is_given_up_from_below_ends_and_says_so(given_up: str) -> None:
    async def work(index: int, _: object) -> pb.StepResult:
        if index == 1 or given_up == "all":
            raise asyncio.CancelledError
        return pb.StepResult(index=index)

    async with asyncio.timeout(30):
        with pytest.raises(UnavailableError):
            async for _ in gather(work, [object()] * 3, lambda _: None, Unread(ServerConfig())):
                pass
