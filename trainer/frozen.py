"""The first weights, kept apart from what training makes of them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer


class _WithoutAdapters(torch.nn.Module):
    """A model whose adapters are trained, played without them: its first weights, at no memory."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        # In a list, so that it is no submodule: modes and devices are its owner's.
        self._models = [model]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        (model,) = self._models
        # Looked for at each call: they are put in when the training begins.
        layers = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer)]
        enabled = [layer for layer in layers if not layer.disable_adapters]
        for layer in enabled:
            layer.enable_adapters(False)
        try:
            return model(*args, **kwargs)
        finally:
            for layer in enabled:
                layer.enable_adapters(True)

    def train(self, mode: bool = True) -> _WithoutAdapters:
        self._models[0].train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_models"][0], name)

    @property
    def training(self) -> bool:
        """The model's own mode, which is put back after sampling."""
        return self._models[0].training if "_models" in self.__dict__ else True

    @training.setter
    def training(self, mode: bool) -> None:
        """Set by `torch.nn.Module` for itself; the model has its own."""


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
