"""Memory that a zygote's children share for good: what none of them ever writes to.

A reference count is written on every use, and a page that is written is a page copied: most
of an episode's memory used to be copies of the zygote's objects with another count. From
CPython 3.12 on an object whose count is at its top is immortal, and its count is left alone
(PEP 683). So the zygote makes all that it has immortal before it forks, and sees to it that
its children's own objects do not go into the gaps between.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import types

# Versions whose count is 32 bits at the start of an object, immortal with all of them set.
_KNOWN = ((3, 12), (3, 13))
_IMMORTAL = 0xFFFFFFFF

# The allocator for small objects: it has pools of one size each, in steps up to the largest.
_POOL_BYTES, _STEP_BYTES, _SMALLEST_BYTES, _LARGEST_BYTES = 16 * 1024, 16, 48, 512
# Of each size, to fill: what has gaps is seldom more.
_POOLS = 3

_filling: list[bytes] = []


def make_all_immortal() -> bool:
    """Make immortal every object that the collector can reach.

    Returns:
        Whether this interpreter has immortal objects, of a layout that is known here.
    """
    usable = (
        sys.implementation.name == "cpython"
        and sys.version_info[:2] in _KNOWN
        and ctypes.sizeof(ctypes.c_void_p) == 8
        and ctypes.c_uint32.from_address(id(None)).value == _IMMORTAL
    )
    if not usable:
        return False
    found = {id(sys.modules): sys.modules}
    unseen = [*gc.get_objects(), sys.modules]
    while unseen:
        # By identity: to compare or to hash what is found would run its own code.
        new = {id(thing): thing for thing in gc.get_referents(*unseen) if id(thing) not in found}
        found.update((id(thing), thing) for thing in unseen)
        unseen = list(new.values())
    own = {id(found), id(unseen)}
    for address, thing in found.items():
        # A frame goes when its function returns, and takes what it holds with it.
        if address not in own and not isinstance(thing, types.FrameType):
            ctypes.c_uint32.from_address(address).value = _IMMORTAL
    return True


def fill_pools() -> None:
    """Fill the allocator's pools that have room left, for good."""
    least = sys.getsizeof(b"")
    for size in range(_SMALLEST_BYTES, _LARGEST_BYTES + 1, _STEP_BYTES):
        _filling.extend(bytes(size - least) for _ in range(_POOLS * _POOL_BYTES // size))
