"""How many pieces a request has, counted before it is read.

Two bytes of a message can stand for an empty item, which takes a hundred once it is read: a
message within the bound on its size would take gigabytes, and the event loop some seconds.
"""

from __future__ import annotations

import functools

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from sandbox_api.errors import InvalidRequestError

# Items, actions, ids and fields of one request, all together. A full batch of resets has half
# as many without prefix_actions, an episode of the most steps has three quarters in its own.
MAX_PIECES = 131_072
# What is not worth counting: a piece is at least two bytes.
_SURELY_FEW_BYTES = 2 * MAX_PIECES

_VARINT, _FIXED64, _DELIMITED, _GROUP, _GROUP_END, _FIXED32 = range(6)
_MAX_VARINT_BITS = 70


def check(kind: Descriptor, data: bytes) -> None:
    """Hold a request to the bound; what is no message at all is left to who reads it.

    Args:
        kind: What it is said to be.
        data: As it came.

    Raises:
        InvalidRequestError: If it has more pieces.
    """
    if len(data) > _SURELY_FEW_BYTES and _count(kind, data, 0, len(data), 0) > MAX_PIECES:
        raise InvalidRequestError(
            f"the request has more than {MAX_PIECES} items, actions and ids in all; send it in "
            "several calls"
        )


@functools.cache
def _with_repeated(kind: Descriptor) -> dict[int, Descriptor]:
    """Fields of a message that are messages with repeated fields of their own."""
    return {
        field.number: field.message_type
        for field in kind.fields
        if field.type == FieldDescriptor.TYPE_MESSAGE
        and any(inner.is_repeated for inner in field.message_type.fields)
    }


def _count(kind: Descriptor, data: bytes, at: int, end: int, count: int) -> int:
    """Add the fields from `at` to `end` to a count; stops where it is over the bound."""
    inner = _with_repeated(kind)
    while at < end and count <= MAX_PIECES:
        count += 1
        try:
            tag, at = _varint(data, at)
            form = tag & 7
            if form == _DELIMITED:
                length, at = _varint(data, at)
                if found := inner.get(tag >> 3):
                    count = _count(found, data, at, min(at + length, end), count)
                at += length
            elif form == _VARINT:
                _, at = _varint(data, at)
            elif form in (_FIXED64, _FIXED32):
                at += 8 if form == _FIXED64 else 4
            elif form not in (_GROUP, _GROUP_END):
                # No field at all. A group, which the contract does not have, is passed over
                # tag by tag, or what follows it would not be counted.
                return count
        except IndexError:
            return count
    return count


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; IndexError if it has none."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _MAX_VARINT_BITS:
            raise IndexError("a number without end")
    return value, at
