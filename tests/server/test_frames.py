"""The frame codec takes nothing from a hostile end that it would not have sent itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.worker import frames

_COUNTS = st.integers(0, 2**32 - 1)


@given(
    op=st.integers(1, 6),
    request_id=_COUNTS,
    outcome=st.sampled_from([1, 2, 6, 7]),
    observation=st.text(max_size=200),
    reward=st.floats(allow_nan=False, allow_infinity=False),
    terminated=st.booleans(),
    truncated=st.booleans(),
    info=st.binary(max_size=200),
    extra=st.binary(max_size=200),
)
def test_a_reply_comes_back_as_it_went(
    op: int,
    request_id: int,
    outcome: int,
    observation: str,
    reward: float,
    terminated: bool,
    truncated: bool,
    info: bytes,
    extra: bytes,
) -> None:
    data = observation.encode("utf-8", "replace")
    packed = frames.pack_reply(
        op,
        request_id,
        outcome,
        data,
        reward,
        terminated * frames.TERMINATED | truncated * frames.TRUNCATED,
        info=info,
        extra=extra,
    )
    reply = frames.unpack_reply(packed)
    assert reply == (
        op, request_id, outcome, terminated, truncated, reward, 0, data.decode(), info, extra
    )  # fmt: skip


@given(st.binary(max_size=300))
def test_noise_is_an_error_and_nothing_else(noise: bytes) -> None:
    try:
        reply = frames.unpack_reply(noise)
    except frames.FrameError:
        return
    assert math.isfinite(reply.reward)
    assert reply.outcome in (1, 2, 6, 7)


@given(st.binary(min_size=1, max_size=400), st.data())
def test_a_reply_with_one_byte_changed_is_never_misread(extra: bytes, data: st.DataObject) -> None:
    packed = bytearray(frames.pack_reply(3, 1, 1, observation=b"seen", extra=extra, reward=1.0))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    try:
        reply = frames.unpack_reply(bytes(packed))
    except frames.FrameError:
        return
    assert math.isfinite(reply.reward)
    assert (
        len(reply.observation.encode()) + len(reply.info) + len(reply.extra)
        == len(packed) - frames.REPLY_HEADER_BYTES
    )


@pytest.mark.parametrize("size", [0, 1, 59_999, 60_000, 60_001, 120_000, 200_001])
def test_fragments_join_to_the_message(size: int) -> None:
    message = bytes(range(256)) * (size // 256 + 1)
    message = message[:size]
    fragments = frames.fragments(message)
    assert b"".join(fragment[1:] for fragment in fragments) == message
    assert [fragment[:1] for fragment in fragments] == [b"\x01"] * (len(fragments) - 1) + [b"\x00"]
    assert all(len(fragment) <= frames.MAX_FRAGMENT_BYTES + 1 for fragment in fragments)


async def test_long_messages_cross_in_fragments(sandbox) -> None:
    source = """
class EchoEnv:
    def reset(self, seed=None): return "", {}
    def step(self, action): return action[::-1], 1.0, False, False, {}
"""
    long = "".join(chr(97 + i % 26) for i in range(1_000_000))
    result = await sandbox.play_one(
        source, action=long, max_action_bytes=2_000_000, max_observation_bytes=2_000_000
    )
    assert result.observation == long[::-1]
