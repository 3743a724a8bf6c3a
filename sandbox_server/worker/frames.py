"""Frames between the supervisor and an episode process, over one SEQPACKET socket.

A message is a run of datagrams; the first byte of each says whether more follow. Both
ends bound a message before they join it. Requests are trusted, replies are not: the
supervisor unpacks a reply with `unpack_reply`, which accepts exactly one layout and
nothing looser.
"""

from __future__ import annotations

import math
import os
import struct
from typing import NamedTuple

# Operations of a request.
LOAD, RESET, STEP, VERIFY, SOLUTION, FORK, COMPILE, PLAY = range(1, 9)

# Kinds of a reply; the numbers are those of `sandbox_api.v1.Outcome`.
COMPLETED, PROGRAM_ERROR = 1, 2
MEMORY_LIMIT, OUTPUT_LIMIT = 6, 7

TERMINATED, TRUNCATED = 1, 2

# A datagram must fit in a socket's default send buffer, the kernel's share included.
MAX_FRAGMENT_BYTES = 60_000
MORE, LAST = b"\x01", b"\x00"

# Sockets of copies, after a FORK: few, since a process may have few open files left.
DESCRIPTORS_A_DATAGRAM = 8

# First datagram of an episode process, before it has seen its program. Anything else in
# its place is the text of what went wrong.
LOCKED_DOWN = b"\x00locked-down"

_REQUEST = struct.Struct("<BI")
# The same after the byte that says whether more follows.
FIRST = struct.Struct("<BBI")
# op, request id, outcome, flags, reward, cut bytes, lengths of observation, info, extra
_REPLY = struct.Struct("<BIBBdQIII")
ONLY_REPLY = struct.Struct("<BBIBBdQIII")

_LENGTH = struct.Struct("<I")

REQUEST_HEADER_BYTES = _REQUEST.size
REPLY_HEADER_BYTES = _REPLY.size
MAX_ONLY_REPLY_BYTES = MAX_FRAGMENT_BYTES - REPLY_HEADER_BYTES

# Room for a diagnostic, tool schemas or a solution, beyond observation and info.
MAX_EXTRA_BYTES = 256 * 1024


class FrameError(Exception):
    """The other end sent something that is not a frame of this protocol."""


class Reply(NamedTuple):
    """One reply of an episode process. `observation` is text; info and extra are JSON bytes."""

    op: int
    request_id: int
    outcome: int
    terminated: bool
    truncated: bool
    reward: float
    cut_bytes: int
    observation: str
    info: bytes
    extra: bytes


def pack_request(op: int, request_id: int, body: bytes) -> bytes:
    return _REQUEST.pack(op, request_id) + body


def unpack_request(message: bytes) -> tuple[int, int]:
    """The operation and the id; the body begins at REQUEST_HEADER_BYTES."""
    return _REQUEST.unpack_from(message)


def pack_reply(
    op: int,
    request_id: int,
    outcome: int,
    observation: bytes = b"",
    reward: float = 0.0,
    flags: int = 0,
    cut_bytes: int = 0,
    info: bytes = b"",
    extra: bytes = b"",
) -> bytes:
    """Pack a reply; `flags` is of TERMINATED and TRUNCATED."""
    header = _REPLY.pack(
        op,
        request_id,
        outcome,
        flags,
        reward,
        cut_bytes,
        len(observation),
        len(info),
        len(extra),
    )
    return header + observation + info + extra


def unpack_reply(message: bytes) -> Reply:
    """Unpack a hostile reply.

    Raises:
        FrameError: If a length, a flag, the outcome, the reward or the text is not
            exactly what the protocol allows.
    """
    if len(message) < _REPLY.size:
        raise FrameError("reply shorter than its header")
    op, request_id, outcome, flags, reward, cut, n_obs, n_info, n_extra = _REPLY.unpack_from(
        message
    )
    start = _REPLY.size
    if len(message) != start + n_obs + n_info + n_extra:
        raise FrameError("reply lengths do not add up")
    if outcome not in (COMPLETED, PROGRAM_ERROR, MEMORY_LIMIT, OUTPUT_LIMIT):
        raise FrameError("reply has an outcome that a process cannot report")
    if flags > TERMINATED | TRUNCATED:
        raise FrameError("reply has unknown flags")
    if not math.isfinite(reward):
        raise FrameError("reply has a reward that is not finite")
    try:
        observation = message[start : start + n_obs].decode()
    except UnicodeDecodeError as error:
        raise FrameError("observation is not UTF-8") from error
    middle = start + n_obs + n_info
    return Reply(
        op,
        request_id,
        outcome,
        bool(flags & TERMINATED),
        bool(flags & TRUNCATED),
        reward,
        cut,
        observation,
        message[start + n_obs : middle],
        message[middle:],
    )


def join(head: bytes, tail: bytes) -> bytes:
    """One message of two parts."""
    return _LENGTH.pack(len(head)) + head + tail


def split(message: bytes) -> tuple[bytes, bytes]:
    """The two parts that `join` made one of; the message is trusted."""
    end = _LENGTH.size + _LENGTH.unpack_from(message)[0]
    return message[_LENGTH.size : end], message[end:]


def fragments(message: bytes) -> list[bytes]:
    """Cut a message into datagrams, each with its leading more-or-last byte."""
    if len(message) <= MAX_FRAGMENT_BYTES:
        return [LAST + message]
    cuts = range(0, len(message), MAX_FRAGMENT_BYTES)
    last = cuts[-1]
    return [(LAST if at == last else MORE) + message[at : at + MAX_FRAGMENT_BYTES] for at in cuts]


def read_message(fd: int) -> bytes | None:
    """Read one trusted message from a blocking descriptor; None at end of file."""
    datagram = os.read(fd, MAX_FRAGMENT_BYTES + 1)
    if not datagram:
        return None
    return datagram[1:] if datagram[0] == 0 else datagram[1:] + read_rest(fd)


def read_rest(fd: int) -> bytes:
    """Read what follows the first datagram of a trusted message from a blocking descriptor."""
    parts = []
    while datagram := os.read(fd, MAX_FRAGMENT_BYTES + 1):
        parts.append(datagram[1:])
        if datagram[0] == 0:
            break
    return b"".join(parts)


def write_message(fd: int, message: bytes) -> None:
    for fragment in fragments(message):
        os.write(fd, fragment)
