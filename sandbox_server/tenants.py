"""Tenants: the file that names them, and each one's part of the server.

Every tenant has an engine of its own: its own jails, programs, episodes and bounds. What one
may not see of another is not checked for; it is not there.

    [tenant.trainer]
    token_sha256 = "..."      # `spadework token trainer` prints an entry
    weight = 3
    max_episodes = 4000       # and so on: the fields of TenantConfig
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sandbox_server.config import DEFAULT_TENANT, ServerConfig, TenantConfig

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KINDS = {str: "a text", int: "a whole number", float: "a number"}
# A tenant of however little weight must get on.
_MIN_RUNNING_STEPS = 32
_MIN_SHARE = 1
_MAX_WEIGHT = 1_000
_CPU_WEIGHT = 100


class TenantFileError(Exception):
    """The tenants file cannot be used; the message says where and what to do."""


def is_name(text: str) -> bool:
    """Whether a tenant may be called so."""
    return bool(_NAME.fullmatch(text))


def read_tenants(path: str | Path) -> tuple[TenantConfig, ...]:
    """Read a tenants file.

    Raises:
        TenantFileError: If it cannot be read, or says something that is not understood.
    """
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise TenantFileError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TenantFileError(f"{path} is no TOML: {error}") from None
    tables = found.pop("tenant", {})
    if found or not isinstance(tables, dict) or not tables:
        raise TenantFileError(
            f"{path}: write one table [tenant.NAME] for each tenant, and no more"
        )
    tenants = tuple(_tenant(str(path), name, table) for name, table in tables.items())
    for field in ("token_sha256", "certificate"):
        values = [getattr(tenant, field) for tenant in tenants if getattr(tenant, field)]
        if len(set(values)) < len(values):
            raise TenantFileError(f"{path}: two tenants have the same {field}")
    return tenants


def _tenant(path: str, name: str, table: Any) -> TenantConfig:
    where = f"{path}: tenant {name!r}"
    if not is_name(name):
        raise TenantFileError(
            f"{where}: a name is of lower-case letters, digits, - and _, 32 at most"
        )
    if not isinstance(table, dict):
        raise TenantFileError(f"{where}: write it as a table, [tenant.{name}]")
    kinds = {f.name: type(f.default) for f in dataclasses.fields(TenantConfig) if f.name != "name"}
    for key, value in table.items():
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, 1)
            meant = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(kinds)}"
            raise TenantFileError(f"{where}: no setting {key!r}{meant}")
        kind = kinds[key]
        fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if not fits or isinstance(value, bool):
            raise TenantFileError(f"{where}: {key} is {value!r}; it must be {_KINDS[kind]}")
        if kind is not str and not 0 <= value < float("inf"):
            raise TenantFileError(f"{where}: {key} is {value}; it must not be negative")
    tenant = TenantConfig(name, **table)
    if not tenant.token_sha256 and not tenant.certificate:
        raise TenantFileError(
            f"{where}: it needs a token_sha256 (`spadework token {name}` makes one) or the name "
            "in its certificate"
        )
    if tenant.token_sha256 and not _SHA256.fullmatch(tenant.token_sha256):
        raise TenantFileError(f"{where}: token_sha256 must be 64 lower-case hexadecimal digits")
    if not 1 <= tenant.weight <= _MAX_WEIGHT:
        raise TenantFileError(f"{where}: weight is {tenant.weight}; it is from 1 to {_MAX_WEIGHT}")
    return tenant


def parts(config: ServerConfig) -> dict[str, ServerConfig]:
    """Divide a server among its tenants: what is not given out by number goes by weight.

    Returns:
        The settings of each tenant's engine, by the tenant's name; the server's own under
        DEFAULT_TENANT where it has no tenants.

    Raises:
        TenantFileError: If the tenants are promised more than the server has.
    """
    tenants = config.tenants
    if not tenants:
        return {DEFAULT_TENANT: config}
    weights = sum(tenant.weight for tenant in tenants)
    episodes = _divide("max_episodes", config.max_episodes, tenants)
    programs = _divide("max_programs", config.max_programs, tenants)
    divided = {}
    for tenant in tenants:
        share = tenant.weight / weights

        def some_of(total: int, least: int = _MIN_SHARE, share: float = share) -> int:
            return max(least, int(total * share))

        divided[tenant.name] = dataclasses.replace(
            config,
            tenants=(),
            tenant=tenant.name,
            max_episodes=episodes[tenant.name],
            max_programs=programs[tenant.name],
            max_programs_bytes=some_of(config.max_programs_bytes),
            max_records=some_of(config.max_records),
            max_record_bytes=some_of(config.max_record_bytes),
            max_pending_items=some_of(config.max_pending_items),
            max_streams=some_of(config.max_streams),
            max_unread_bytes=some_of(config.max_unread_bytes),
            max_running_steps=some_of(config.max_running_steps, _MIN_RUNNING_STEPS),
            max_steps_per_s=tenant.steps_per_s,
            tenant_memory_bytes=tenant.memory_bytes,
            cpu_weight=max(1, int(_CPU_WEIGHT * share * len(tenants))),
        )
    return divided


def _divide(field: str, total: int, tenants: Iterable[TenantConfig]) -> dict[str, int]:
    """Each tenant's own number where it has one; the rest by weight."""
    given = {t.name: getattr(t, field) for t in tenants if getattr(t, field)}
    sharing = {t.name: t.weight for t in tenants if t.name not in given}
    left = total - sum(given.values())
    if left < len(sharing):
        raise TenantFileError(
            f"the tenants' {field} add up to {sum(given.values())}, with {len(sharing)} more that "
            f"have none; the server has {total}: give out less, or raise the server's"
        )
    weights = sum(sharing.values())
    return given | {name: max(1, left * weight // weights) for name, weight in sharing.items()}
