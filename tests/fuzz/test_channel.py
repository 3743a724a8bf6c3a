"""The supervisor's end of an episode's socket, against datagrams of any kind and order."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.channel import Channel
from sandbox_server.endpoint import Answer
from sandbox_server.failures import Failure, ProcessEnd
from sandbox_server.family import Family
from sandbox_server.worker import frames
from tests.fuzz.budget import fuzzed
from tests.fuzz.inputs import replies

LIMITS = pb.Limits(max_observation_bytes=1_000, max_info_bytes=1_000, cpu_time_s=60)


class Still:
    """A poller that calls nobody: the test says when."""

    def __init__(self) -> None:
        self.watched: dict[int, Callable[[int], None]] = {}

    def add(self, fd: int, callback: Callable[[int], None]) -> None:
        self.watched[fd] = callback

    def remove(self, fd: int) -> None:
        self.watched.pop(fd, None)

    def want_write(self, fd: int, wanted: bool) -> None: ...

    def call_at(self, when: float, callback: Callable[[Any], None], argument: Any) -> None: ...


class Killed:
    """A jail that notes whom it was asked to kill."""

    def __init__(self) -> None:
        self.asked = 0

    def kill(self, _: Channel) -> None:
        self.asked += 1


@contextlib.contextmanager
def _locked_down() -> Iterator[tuple[Channel, Still, Killed, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    poller, jail = Still(), Killed()
    channel = Channel(
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
    with theirs:
        theirs.send(frames.LOCKED_DOWN)
        poller.watched[ours.fileno()](1)
        assert channel.locked_down
        try:
            yield channel, poller, jail, theirs
        finally:
            channel.on_exit(ProcessEnd(0, 0.0))


_GOOD = frames.pack_reply(frames.STEP, 1, frames.COMPLETED, b"seen", 0.5)
_DATAGRAMS = st.lists(
    st.one_of(
        st.binary(max_size=20),
        replies().map(lambda reply: b"\x00" + reply[:60_000]),
        st.just(b"\x00" + _GOOD),
        st.just(b"\x01" + bytes(60_000)),
        st.just(b"\x00" + bytes(61_000)),
        st.integers(0, len(_GOOD)).map(lambda at: b"\x01" + _GOOD[:at]),
        st.integers(0, 255).map(lambda kind: bytes([kind]) + _GOOD),
    ),
    max_size=6,
)


@fuzzed(datagrams=_DATAGRAMS, requests=st.integers(0, 2), inputs=600)
def test_each_request_is_answered_once_and_what_is_no_answer_kills(
    datagrams: list[bytes], requests: int
) -> None:
    said: list[Answer] = []
    with _locked_down() as (channel, poller, jail, process):
        for _ in range(requests):
            channel.request(frames.STEP, b"act", 10.0, said.append)
        for datagram in datagrams:
            with contextlib.suppress(OSError):
                process.send(datagram)
            for callback in list(poller.watched.values()):
                callback(1)
        assert len(said) <= requests
        for answer in said:
            assert isinstance(answer, frames.Reply)
            assert len(answer.observation.encode()) <= 1_000
        more_to_come, at_its_end = bool(channel._inbox), b"" in datagrams
        if len(datagrams) > len(said) and not more_to_come and not at_its_end:
            assert jail.asked == 1
    assert len(said) == requests
    assert all(isinstance(answer, frames.Reply | Failure) for answer in said)


@fuzzed(observation=st.text(max_size=300), cuts=st.lists(st.integers(0, 9), max_size=3))
def test_a_whole_reply_arrives_as_it_was_sent(observation: str, cuts: list[int]) -> None:
    data = observation.encode("utf-8", "replace")[:1_000].decode("utf-8", "ignore").encode()
    message = frames.pack_reply(frames.STEP, 1, frames.COMPLETED, data, extra=b" " * 200_000)
    said: list[Answer] = []
    with _locked_down() as (channel, poller, _, process):
        channel.request(frames.STEP, b"act", 10.0, said.append)
        for fragment in frames.fragments(message):
            process.send(fragment)
            for callback in list(poller.watched.values()):
                callback(1)
        (reply,) = said
        assert isinstance(reply, frames.Reply)
        assert reply.observation.encode() == data
