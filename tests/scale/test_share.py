"""Shards of one machine have its bounds together, and places of their own."""

from __future__ import annotations

import pytest

from sandbox_server.config import AddressError, ServerConfig, TenantConfig
from sandbox_server.shards.share import address, part
from sandbox_server.tenants import parts


def test_shards_together_have_what_one_server_would() -> None:
    whole = ServerConfig(max_episodes=1_000, jail_memory_bytes=2**30)
    shards = [part(whole, index, 4) for index in range(4)]
    assert [shard.shard for shard in shards] == ["0", "1", "2", "3"]
    for field in ("max_episodes", "max_records", "max_record_bytes", "max_programs_bytes"):
        assert sum(getattr(shard, field) for shard in shards) == getattr(whole, field)
    for field in ("max_pending_items", "max_unread_bytes", "jail_memory_bytes"):
        assert sum(getattr(shard, field) for shard in shards) == getattr(whole, field)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_tenants_quotas_are_divided_and_still_fit(count: int) -> None:
    tenants = (
        TenantConfig("a", "0" * 64, max_episodes=5, steps_per_s=70.0, memory_bytes=7 * 2**20),
        TenantConfig("b", "1" * 64, max_episodes=4),
        TenantConfig("c", "2" * 64),
    )
    shard = part(ServerConfig(max_episodes=20, tenants=tenants), 0, count)
    divided = parts(shard)
    assert divided["a"].max_episodes == max(1, 5 // count)
    assert divided["a"].max_steps_per_s == 70.0 / count
    assert divided["a"].tenant_memory_bytes == 7 * 2**20 // count
    assert divided["b"].tenant_memory_bytes == 0
    assert divided["c"].max_episodes >= 1


@pytest.mark.parametrize(
    ("whole", "second"),
    [
        ("127.0.0.1:50061", "127.0.0.1:50063"),
        ("[::1]:50061", "[::1]:50063"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("unix:/run/book", "unix:/run/book.1"),
        ("unix:", "unix:"),
        ("", ""),
    ],
)
def test_a_shard_listens_beside_the_book(whole: str, second: str) -> None:
    assert address(whole, 1) == second


def test_a_port_that_there_is_not_is_refused() -> None:
    with pytest.raises(AddressError, match="65536"):
        address("127.0.0.1:65535", 0)
