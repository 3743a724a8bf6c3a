"""See the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch


def packed_nccl_broadcast_producer(
    iterator: Iterator[tuple[str, torch.Tensor]],
    group: Any,
    src: int,
    post_iter_func: Callable[[tuple[str, torch.Tensor]], torch.Tensor],
) -> None:
    """Send tensors, one after the other."""
    store = group.group.store
    for item in iterator:
        tensor = post_iter_func(item).detach().contiguous()
        place = store.add("sent", 1) - 1
        store.set(f"tensor {place}", tensor.view(torch.uint8).numpy().tobytes())
