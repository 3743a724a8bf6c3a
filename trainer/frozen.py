"""The first weights, kept apart from what training makes of them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer


class _WithoutAdapters:
    """A model whose adapters are trained, played without them: its first weights, at no memory.

    Whatever else is asked of it, its mode included, is the model's.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Looked for at each call: they are put in when the training begins.
        layers = [layer for layer in self._model.modules() if isinstance(layer, BaseTunerLayer)]
        enabled = [layer for layer in layers if not layer.disable_adapters]
        for layer in enabled:
            layer.enable_adapters(False)
        try:
            return self._model(*args, **kwargs)
        finally:
            for layer in enabled:
                layer.enable_adapters(True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def first_weights(model: torch.nn.Module, *, adapters: bool) -> Any:
    """The weights as they are now, whatever training makes of `model` afterwards.

    Args:
        model: Just loaded.
        adapters: Whether adapters that will be put into it are all that trains.

    Returns:
        A model to sample from: a copy, or, with adapters, the same without them.
    """
    if adapters:
        return _WithoutAdapters(model)
    return copy.deepcopy(model).requires_grad_(False).eval()
