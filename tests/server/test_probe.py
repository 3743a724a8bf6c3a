"""A server whose jail does not hold does not serve."""

from __future__ import annotations

import pytest

from sandbox_server import probe, runtime
from sandbox_server.backends import BackendError
from sandbox_server.config import ServerConfig
from sandbox_server.engine import Engine


@pytest.mark.nsjail
async def test_an_attempt_that_goes_through_stops_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(probe.ATTEMPTS, "arithmetic: none", "1 + 1")
    engine = Engine(ServerConfig(), {"stdlib": runtime.ensure("stdlib")})
    with pytest.raises(BackendError, match=r"arithmetic: none: went through"):
        await engine.start()
