"""The quick way of usual answers takes what the long way takes, and nothing more."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from sandbox_server.channel import Channel
from sandbox_server.endpoint import Answer
from sandbox_server.episode_channel import Arrivals, EpisodeChannel
from sandbox_server.failures import Failure, ProcessEnd
from sandbox_server.family import Family
from sandbox_server.group_member import reply_of
from sandbox_server.worker import frames, group_frames
from tests.fuzz.budget import fuzzed
from tests.fuzz.inputs import replies
from tests.fuzz.test_channel import LIMITS, Killed, Still

_SIZES = st.sampled_from([0, 1, 999, 1_000, 1_001, 59_000])


def _answer(
    request_id: int, op: int, outcome: int, reward: float, flags: int, cut: int, shown: bytes
) -> bytes:
    return b"\x00" + frames.pack_reply(op, request_id, outcome, shown, reward, flags, cut)


# Nearly right, as of a process that wants to be believed.
_ANSWERS = st.builds(
    _answer,
    st.sampled_from([1, 1, 1, 2, 0, 3, 2**32 - 1]),
    st.sampled_from([frames.STEP, frames.STEP, frames.RESET, 0, 255]),
    st.sampled_from([frames.COMPLETED, frames.COMPLETED, frames.PROGRAM_ERROR, 3, 0]),
    st.sampled_from([0.5, -0.0, 1e308, math.nan, math.inf]),
    st.sampled_from([0, 0, 1, 3, 4]),
    st.sampled_from([0, 0, 7, 2**64 - 1]),
    st.one_of(_SIZES.map(lambda size: b"x" * size), st.binary(max_size=4)),
)
_DATAGRAMS = st.lists(
    st.one_of(
        _ANSWERS,
        _ANSWERS.map(lambda datagram: datagram + b"{}"),
        _ANSWERS.map(lambda datagram: b"\x01" + datagram[1:]),
        replies().map(lambda reply: b"\x00" + reply[:60_000]),
        st.binary(max_size=frames.ONLY_REPLY.size),
    ),
    max_size=4,
)


class _Episode:
    """As much of an episode as answers ask for."""

    waiters: Sequence[Any] = ()


def _told(answer: Answer) -> object:
    if isinstance(answer, frames.Reply):
        return answer._replace(request_id=0)
    assert isinstance(answer, Failure)
    return answer.outcome, answer.diagnostic.message


def _played(kind: type[Channel], datagrams: list[bytes], steps: int) -> tuple[list[object], int]:
    """What a process that says this is taken to have said, and whether it was killed for it."""
    said: list[object] = []
    poller, jail = Still(), Killed()
    ours, process = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = kind(
        poller,  # type: ignore[arg-type]
        lambda: 0.0,
        jail,
        ours,
        LIMITS,
        key=1,
        family=Family(0, sweep=False),
        kill_timeout_s=1.0,
        on_end=lambda _: None,
    )

    def take(answer: Answer) -> None:
        said.append(_told(answer))

    def settle(_: list[EpisodeChannel], chunk: group_frames.Chunk) -> None:
        said.extend(_told(reply_of(*item)) for item in zip(*chunk, strict=True))

    arrivals = Arrivals(settle)
    with process:
        process.send(frames.LOCKED_DOWN)
        poller.watched[ours.fileno()](1)
        if isinstance(channel, EpisodeChannel):
            channel.attach(_Episode(), take, arrivals)  # type: ignore[arg-type]
        for _ in range(steps):
            if isinstance(channel, EpisodeChannel):
                channel.step("act", 10.0)
            else:
                channel.request(frames.STEP, b"act", 10.0, take)
        for datagram in datagrams:
            with contextlib.suppress(OSError):
                process.send(datagram)
            for callback in list(poller.watched.values()):
                callback(1)
            # Its end may be noted before what it said is settled.
            if datagram is datagrams[-1]:
                channel.on_exit(ProcessEnd(0, 0.0))
            arrivals.settle()
        channel.on_exit(ProcessEnd(0, 0.0))
    return said, jail.asked


@fuzzed(datagrams=_DATAGRAMS, steps=st.integers(0, 2), inputs=1_500)
def test_an_answer_is_worth_the_same_by_either_way_and_each_step_has_one(
    datagrams: list[bytes], steps: int
) -> None:
    quick = _played(EpisodeChannel, datagrams, steps)
    assert quick == _played(Channel, datagrams, steps)
    assert len(quick[0]) == steps
