"""One shard's part of what a whole server may have."""

from __future__ import annotations

import dataclasses

from sandbox_server.backends.ids import most_of_the_memory
from sandbox_server.config import AddressError, ServerConfig, TenantConfig

_LAST_PORT = 65_535


def part(config: ServerConfig, index: int, of_machine: int) -> ServerConfig:
    """The settings of one shard.

    Bounds are a machine's, and its shards share them evenly. Programs are not divided by
    number: each may be wanted on every shard.

    Args:
        config: Of the whole; its address is the book's.
        index: Of the shard, from 0, also over several machines.
        of_machine: How many shards share the machine.

    Raises:
        AddressError: If there is no port left for it.
    """

    def some_of(total: int) -> int:
        return max(1, total // of_machine)

    return dataclasses.replace(
        config,
        shard=str(index),
        address=address(config.address, index),
        metrics_address=address(config.metrics_address, index),
        tenants=tuple(_quota(tenant, of_machine) for tenant in config.tenants),
        # Rounded up: the tenants' own numbers, each at least 1, must have room in it.
        max_episodes=-(-config.max_episodes // of_machine),
        max_records=some_of(config.max_records),
        max_record_bytes=some_of(config.max_record_bytes),
        max_programs_bytes=some_of(config.max_programs_bytes),
        max_pending_items=some_of(config.max_pending_items),
        max_unread_bytes=some_of(config.max_unread_bytes),
        max_running_steps=some_of(config.max_running_steps),
        jail_memory_bytes=some_of(config.jail_memory_bytes or most_of_the_memory()),
        tenant_memory_bytes=config.tenant_memory_bytes // of_machine,
    )


def _quota(tenant: TenantConfig, of_machine: int) -> TenantConfig:
    """A tenant's part of one shard; what is 0 is no number, and stays so."""
    return dataclasses.replace(
        tenant,
        max_episodes=tenant.max_episodes and max(1, tenant.max_episodes // of_machine),
        steps_per_s=tenant.steps_per_s / of_machine,
        memory_bytes=tenant.memory_bytes // of_machine,
    )


def address(whole: str, index: int) -> str:
    """Where a shard listens: beside the book, so that firewalls can be told beforehand.

    "host:port" gives the next ports, "unix:/path" the path with the shard's index; any free
    port stays so, and so does a socket in a folder of the server's own.

    Raises:
        AddressError: If there are no more ports.
    """
    if whole in ("", "unix:"):
        return whole
    if whole.startswith(("unix:", "unix-abstract:")):
        return f"{whole}.{index}"
    host, _, port = whole.rpartition(":")
    if not port.isdecimal() or port == "0":
        return whole
    number = int(port) + 1 + index
    if number > _LAST_PORT:
        raise AddressError(f"shard {index} would listen on port {number}; name a lower port")
    return f"{host}:{number}"
