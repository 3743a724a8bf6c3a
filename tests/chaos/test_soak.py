"""A short soak; `make soak` is the long one."""

from __future__ import annotations

import pytest

from tests.chaos import soak
from tests.chaos.conftest import StartServer


@pytest.mark.nsjail
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_10000_steps_with_hostile_episodes_leave_memory_and_counts_flat(
    start_server: StartServer,
) -> None:
    soaked = await soak.run(start_server("nsjail"), steps=10_000, rounds=20)
    told = "\n".join(soak.report(soaked))
    print(told)
    assert not soaked.wrong, told
    assert soaked.flat(), told
    assert soaked.steps >= 10_000
    assert sum(soaked.outcomes.values()) > 10
