"""The supervisor's end of a group process takes nothing from it but answers, one for each step."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.failures import Failure, Lost, ProcessEnd
from sandbox_server.family import Family
from sandbox_server.group_channel import GroupChannel
from sandbox_server.worker import frames, group_frames, progress
from tests.fuzz.test_channel import LIMITS, Killed, Still

_MEMBERS = 3
# What an honest process says of three steps.
_COLUMNS = (
    [0, 1, 2],
    [0.5, -1.0, 0.0],
    [0, 7, 0],
    [b"one", b"", "drei\u00df".encode()],
    [b"", b"{}", b""],
)


class _Told:
    """Steps that note what they are told."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.end: tuple[Failure | Lost, int | None] | None = None
        self.ends = 0

    def answered(self, first: int, chunk: group_frames.Chunk) -> None:
        assert first == len(self.done)
        assert all(map(math.isfinite, chunk.rewards))
        self.done += chunk.observations

    def failed(self, index: int, reply: frames.Reply) -> None:
        assert index == len(self.done)
        assert reply.outcome != frames.COMPLETED
        self.done.append("failed")

    def ended(self, cause: Failure | Lost, culprit: int | None) -> None:
        self.ends += 1
        self.end = cause, culprit


class _Rig:
    """A group channel with a process that the test plays."""

    def __init__(self) -> None:
        ours, self.process = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process.setblocking(False)
        self.poller, self.jail, self.now = Still(), Killed(), 100.0
        self.channel = GroupChannel(
            self.poller,
            lambda: self.now,
            self.jail,
            ours,
            LIMITS,
            key=1,
            family=Family(0, sweep=False),
            kill_timeout_s=1.0,
            on_end=lambda _: None,
        )
        self.fd = ours.fileno()
        self.page = progress.take(self.process.fileno())
        self.process.send(frames.LOCKED_DOWN)
        self.poll()
        self.told = _Told()
        self.channel.step([4, 5, 6], [b"a", b"b", b"c"], [1.0, 2.0, 1.0], self.told)
        request = self.process.recv(70_000)[1:]
        assert frames.unpack_request(request) == (group_frames.STEPS, 1)

    def poll(self) -> None:
        if callback := self.poller.watched.get(self.fd):
            callback(1)

    def say(self, *datagrams: bytes) -> None:
        for datagram in datagrams:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                self.process.send(datagram)
            self.poll()

    def late(self) -> bool:
        """Whether a look at the clock ends the process."""
        self.channel._on_deadline(0.0)
        return self.jail.asked > 0

    def end(self) -> tuple[Failure | Lost, int | None] | None:
        self.channel.on_exit(ProcessEnd(9, 0.0))
        assert self.told.ends <= 1
        return self.told.end


@contextlib.contextmanager
def _rig() -> Iterator[_Rig]:
    rig = _Rig()
    try:
        yield rig
    finally:
        rig.end()
        rig.process.close()


def _chunk(request_id: int = 1, **changed: object) -> bytes:
    names = ("flags", "rewards", "cuts", "observations", "infos")
    columns = dict(zip(names, _COLUMNS, strict=True)) | changed
    return group_frames.pack_chunk(request_id, *columns.values())  # type: ignore[arg-type]


def test_a_chunk_comes_back_as_it_went() -> None:
    chunk = group_frames.unpack_chunk(_chunk(), 1, 3, 1_000, 1_000)
    assert chunk.observations == ["one", "", "dreiß"]
    assert (list(chunk.flags), list(chunk.rewards)) == ([0, 1, 2], [0.5, -1.0, 0.0])
    assert (list(chunk.cuts), list(chunk.infos)) == ([0, 7, 0], [b"", b"{}", b""])


def test_answers_may_come_in_several_chunks_and_failures_between() -> None:
    with _rig() as rig:
        one = group_frames.pack_chunk(1, [0], [0.0], [0], [b"first"], [b""])
        failed = frames.pack_reply(frames.STEP, 1, frames.PROGRAM_ERROR, extra=b"{}")
        rig.say(b"\x00" + one, b"\x00" + failed, b"\x00" + one)
        assert rig.told.done == ["first", "failed", "first"]
        assert not rig.jail.asked
        assert rig.end() is None


_HOSTILE = {
    "another request": _chunk(2),
    "more than was asked": group_frames.pack_chunk(
        1, [0] * 4, [0.0] * 4, [0] * 4, [b""] * 4, [b""] * 4
    ),
    "none": struct.pack("<BII", group_frames.STEPS, 1, 0),
    "a count alone": struct.pack("<BII", group_frames.STEPS, 1, 3),
    "short": _chunk()[:-1],
    "long": _chunk() + b"x",
    "nan": _chunk(rewards=[0.0, math.nan, 0.0]),
    "infinity": _chunk(rewards=[0.0, math.inf, -math.inf]),
    "an unknown flag": _chunk(flags=[0, 4, 0]),
    "a long observation": _chunk(observations=[b"", b"x" * 1_001, b""]),
    "a long info": _chunk(infos=[b"", b"x" * 1_001, b""]),
    "no text": _chunk(observations=[b"", b"\xff", b""]),
    # Each is none by itself, though all of them together are.
    "half a character": _chunk(observations=[b"\xc3", b"\x9f", b""]),
    "a completed plain reply": frames.pack_reply(frames.STEP, 1, frames.COMPLETED, b"x", 1.0),
    "a failure of another": frames.pack_reply(frames.STEP, 2, frames.PROGRAM_ERROR, extra=b"{}"),
    "a failure with a text": frames.pack_reply(frames.STEP, 1, frames.PROGRAM_ERROR, b"x"),
    "another op": frames.pack_reply(frames.RESET, 1, frames.PROGRAM_ERROR, extra=b"{}"),
    "a signal": frames.pack_reply(frames.STEP, 1, pb.OUTCOME_SIGNALED, extra=b"{}"),
}


@pytest.mark.parametrize("message", _HOSTILE.values(), ids=_HOSTILE)
def test_what_is_no_answer_gives_no_result_and_ends_the_process(message: bytes) -> None:
    with _rig() as rig:
        progress.note(rig.page, 0, 1, 2, rig.now)
        rig.say(b"\x00" + message)
        assert rig.jail.asked == 1
        assert rig.told.done == []
        end = rig.end()
        assert end is not None
        assert isinstance(end[0], Failure)
        assert end[0].outcome == pb.OUTCOME_PROTOCOL_VIOLATION
        # The process may have gone on to another item by the time that it is read.
        assert end[1] is None


@given(st.lists(st.binary(max_size=60) | st.just(b"\x00" + _chunk()), max_size=4))
def test_datagrams_of_any_kind_give_each_step_one_end_at_most(datagrams: list[bytes]) -> None:
    with _rig() as rig:
        rig.say(*[datagram for datagram in datagrams if datagram])
        whole = len(rig.told.done) == _MEMBERS
        end = rig.end()
        assert len(rig.told.done) <= _MEMBERS
        assert (end is None) == whole


def test_an_answer_that_nobody_asked_for_ends_the_process() -> None:
    with _rig() as rig:
        rig.say(b"\x00" + _chunk())
        assert not rig.jail.asked
        rig.say(b"\x00" + _chunk())
        assert rig.jail.asked == 1


def test_the_deadline_is_that_of_the_item_in_work_from_its_own_beginning() -> None:
    with _rig() as rig:
        rig.now = 100.9
        assert not rig.late()
        progress.note(rig.page, 0, 1, 1, 100.9)
        # The second item has two seconds.
        rig.now = 102.8
        assert not rig.late()
        rig.now = 103.0
        assert rig.late()
        end = rig.end()
        assert end is not None
        assert isinstance(end[0], Failure)
        assert end[0].outcome == pb.OUTCOME_TIME_LIMIT
        assert end[1] == 1


@pytest.mark.parametrize(
    "said",
    [(1, 0, math.nan), (1, 0, 1e300), (1, 0, -1e300), (7, 0, 100.0), (1, 3, 100.0), (0, 0, 0.0)],
)
def test_a_process_that_lies_of_its_progress_is_late_all_the_same(
    said: tuple[int, int, float],
) -> None:
    with _rig() as rig:
        for rig.now in (100.5, 101.2, 102.4):
            progress.note(rig.page, 0, *said)
            if rig.late():
                break
        assert rig.jail.asked == 1
        os.fstat(rig.channel._page)


@pytest.mark.parametrize("turns", [(0, 1), (2, 1, 0), (1, 0)])
def test_a_process_that_goes_back_and_forth_in_its_steps_is_late_all_the_same(
    turns: tuple[int, ...],
) -> None:
    with _rig() as rig:
        for look in range(40):
            rig.now = 100.0 + 0.5 * (look + 1)
            progress.note(rig.page, 0, 1, turns[look % len(turns)], rig.now)
            if rig.late():
                break
        # All three steps together have four seconds.
        assert rig.now <= 104.5
        assert rig.jail.asked == 1


def test_a_page_cannot_be_cut_short() -> None:
    page = progress.create()
    with pytest.raises(PermissionError):
        os.ftruncate(page, 0)
    os.close(page)
