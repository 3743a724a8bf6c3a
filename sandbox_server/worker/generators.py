"""The states of the global random generators, which the episodes of a group take turns with."""

from __future__ import annotations

import _random
import contextlib
import ctypes
import random
import sys
from typing import Any

# PyObject_HEAD; behind it lie the state's index and its 624 words.
_HEAD_BYTES = object.__basicsize__
_STATE_BYTES = _random.Random.__basicsize__ - _HEAD_BYTES


class Generators:
    """Saves and restores the global generators of `random`, and of numpy where it is loaded.

    By `getstate` and `setstate` that would take longer than the rest of a step. Where the
    interpreter keeps the state of `random` as CPython does, which is tried first, it is copied
    as bytes, in a tenth of a microsecond.
    """

    def __init__(self) -> None:
        self._random: Any = random._inst
        self._memory: Any = None
        with contextlib.suppress(Exception):
            self._memory = self._mapped()

    def _mapped(self) -> memoryview | None:
        """The memory of the state; None where it is not what it is taken for."""
        address = id(self._random) + _HEAD_BYTES
        memory = memoryview((ctypes.c_char * _STATE_BYTES).from_address(address)).cast("B")
        kept = self._random.getstate()
        try:
            random.seed(1)
            first, before = bytes(memory), self._random.getstate()
            random.random()
            second, after = bytes(memory), self._random.getstate()
            memory[:] = first
            if first == second or self._random.getstate() != before:
                return None
            memory[:] = second
            return memory if self._random.getstate() == after else None
        finally:
            self._random.setstate(kept)

    def save(self) -> tuple[Any, ...]:
        """The state of all of them now."""
        memory, numpy = self._memory, sys.modules.get("numpy")
        return (
            self._random.getstate() if memory is None else bytes(memory),
            self._random.gauss_next,
            None if numpy is None else numpy.random.get_state(legacy=False),
        )

    def restore(self, state: tuple[Any, ...]) -> None:
        """Bring all of them back to a state."""
        mine, gauss_next, numpys = state
        if self._memory is None:
            self._random.setstate(mine)
        else:
            self._memory[:] = mine
        self._random.gauss_next = gauss_next
        if numpys is not None:
            sys.modules["numpy"].random.set_state(numpys)
