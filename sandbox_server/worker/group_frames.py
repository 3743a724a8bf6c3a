"""Frames of a group process: many steps in one request, and their answers in chunks.

Both go column by column, so that each end reads a whole batch with a few calls. As in
`frames`, requests are trusted and answers are not: `unpack_chunk` accepts exactly one layout.
A step that failed is told by a plain reply of `frames` in its place between the chunks.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import NamedTuple

from . import frames

# Operations of a request beside those of `frames`. A DROP has no answer.
STEPS, DROP = 32, 33

# A chunk goes out when it has so much. One item of any size may come on top of the bytes.
MAX_CHUNK_ITEMS = 64
CHUNK_BYTES = 40_000

# A member's number, before the body of its RESET, and once for each in a DROP.
MEMBER = struct.Struct("<I")

_COUNT = struct.Struct("<I")
# op, request id, how many
_CHUNK = struct.Struct("<BII")
# Of each item: flags, reward, cut bytes, lengths of observation and info.
_CHUNK_ITEM_BYTES = 1 + 8 + 8 + 4 + 4

MAX_CHUNK_BYTES = _CHUNK.size + MAX_CHUNK_ITEMS * _CHUNK_ITEM_BYTES + CHUNK_BYTES


class Chunk(NamedTuple):
    """Completed steps, in the order they were asked for. Infos are JSON bytes."""

    flags: Sequence[int]
    rewards: Sequence[float]
    cuts: Sequence[int]
    observations: Sequence[str]
    infos: Sequence[bytes]


def pack_steps(members: Sequence[int], actions: Sequence[bytes]) -> bytes:
    """The body of a STEPS request."""
    count = len(members)
    columns = struct.pack(f"<{1 + 2 * count}I", count, *members, *map(len, actions))
    return columns + b"".join(actions)


def unpack_steps(message: bytes) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Members and lengths of a STEPS request, and where the first action begins."""
    at = frames.REQUEST_HEADER_BYTES
    count = _COUNT.unpack_from(message, at)[0]
    numbers = struct.unpack_from(f"<{2 * count}I", message, at + _COUNT.size)
    return numbers[:count], numbers[count:], at + _COUNT.size * (1 + 2 * count)


def pack_chunk(
    request_id: int,
    flags: Sequence[int],
    rewards: Sequence[float],
    cuts: Sequence[int],
    observations: Sequence[bytes],
    infos: Sequence[bytes],
) -> bytes:
    count = len(flags)
    columns = struct.pack(
        f"<{count}B{count}d{count}Q{count}I{count}I",
        *flags,
        *rewards,
        *cuts,
        *map(len, observations),
        *map(len, infos),
    )
    head = _CHUNK.pack(STEPS, request_id, count)
    return b"".join((head, columns, *observations, *infos))


def unpack_chunk(
    message: bytes,
    request_id: int,
    most: int,
    max_observation_bytes: int,
    max_info_bytes: int,
) -> Chunk:
    """Unpack a hostile chunk.

    Args:
        message: As it came; its first byte is STEPS.
        request_id: Of the request in work.
        most: How many answers are still to come.
        max_observation_bytes: Of one item.
        max_info_bytes: Of one item.

    Raises:
        frames.FrameError: If it is not exactly what the protocol allows.
    """
    if len(message) < _CHUNK.size:
        raise frames.FrameError("chunk shorter than its header")
    _, answered, count = _CHUNK.unpack_from(message)
    if answered != request_id or not 1 <= count <= min(most, MAX_CHUNK_ITEMS):
        raise frames.FrameError("chunk answers other steps than those in work")
    start = _CHUNK.size + count * _CHUNK_ITEM_BYTES
    if len(message) < start:
        raise frames.FrameError("chunk shorter than its columns")
    flags = message[_CHUNK.size : _CHUNK.size + count]
    at = _CHUNK.size + count
    numbers = struct.unpack_from(f"<{count}d{count}Q{2 * count}I", message, at)
    rewards = numbers[:count]
    shown, told = numbers[2 * count : 3 * count], numbers[3 * count :]
    middle = start + sum(shown)
    if len(message) != middle + sum(told):
        raise frames.FrameError("chunk lengths do not add up")
    if max(shown) > max_observation_bytes or max(told) > max_info_bytes:
        raise frames.FrameError("chunk has an observation or info that is too long")
    if max(flags) > frames.TERMINATED | frames.TRUNCATED:
        raise frames.FrameError("chunk has unknown flags")
    if not all(map(math.isfinite, rewards)):
        raise frames.FrameError("chunk has a reward that is not finite")
    text = message[start:middle]
    try:
        observations = _cut_text(text, shown)
    except UnicodeDecodeError as error:
        raise frames.FrameError("observation is not UTF-8") from error
    infos = _cut(message[middle:], told) if len(message) > middle else (b"",) * count
    return Chunk(flags, rewards, numbers[count : 2 * count], observations, infos)


def _cut_text(data: bytes, lengths: Sequence[int]) -> list[str]:
    """Texts of these lengths in bytes; each must be UTF-8 by itself."""
    if not data.isascii():
        return [piece.decode() for piece in _cut(data, lengths)]
    text, at, found = data.decode("ascii"), 0, []
    for length in lengths:
        end = at + length
        found.append(text[at:end])
        at = end
    return found


def _cut(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    at, found = 0, []
    for length in lengths:
        end = at + length
        found.append(data[at:end])
        at = end
    return found
