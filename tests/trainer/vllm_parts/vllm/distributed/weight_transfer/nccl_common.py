"""See the package."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch.distributed import TCPStore


def trainer_init(init_info: dict[str, Any]) -> SimpleNamespace:
    """The trainer's end of the group."""
    store = TCPStore(
        init_info["master_address"],
        init_info["master_port"],
        is_master=True,
        wait_for_workers=False,
    )
    return SimpleNamespace(group=SimpleNamespace(store=store, socket=None))


def worker_init(init_info: dict[str, Any]) -> TCPStore:
    """The server's end."""
    return TCPStore(init_info["master_address"], init_info["master_port"], is_master=False)
