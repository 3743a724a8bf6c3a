"""The serving loop of a group process: one program, many environments, one socket.

The episodes take turns. What an interpreter has once is exchanged at each turn: the states of
the global generators, and what is printed. Everything else that a program keeps outside its
environment is shared; docs/design/group.md says what that gives up.
"""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import sys
import time
from typing import Any

from . import episode, frames, group_frames, program, progress, text
from .generators import Generators

# Answers that have waited for so long go out, before the next step begins.
_FLUSH_S = 0.002


class _SharedOutput(io.TextIOBase):
    """Standard output of a group: the episode's whose turn it is, whoever kept a hold of it."""

    def __init__(self, current: io.TextIOBase) -> None:
        self.current = current

    def writable(self) -> bool:
        return True

    def write(self, written: str) -> int:
        return self.current.write(written)


class _Member:
    """One episode of the group."""

    __slots__ = ("environment", "output", "state")

    def __init__(self, environment: program.Environment, output: Any, state: Any) -> None:
        self.environment = environment
        self.output = output
        self.state = state


class GroupServer(episode.EpisodeServer):
    """Answers the supervisor's requests about the episodes of one program, in order."""

    def __init__(self, fd: int, limits: dict[str, Any], page: mmap.mmap) -> None:
        """Args:
        fd, limits: As for an `EpisodeServer`.
        page: Where to say which step is in work.
        """
        super().__init__(fd, limits)
        self._page = page
        self._max_output_bytes = limits["max_output_bytes"]
        self._shown = _SharedOutput(self._output)
        sys.stdout = sys.stderr = self._shown
        self._members: dict[int, _Member] = {}
        self._generators = Generators()

    def serve(self) -> None:
        """Answer until the supervisor closes its end."""
        while True:
            message = frames.read_message(self._fd)
            if message is None:
                return
            op, request_id = frames.unpack_request(message)
            if op == group_frames.STEPS:
                self._steps(request_id, message)
            elif op == group_frames.DROP:
                self._drop(message)
            else:
                self._one(op, request_id, message)

    def _one(self, op: int, request_id: int, message: bytes) -> None:
        try:
            if op == frames.LOAD:
                reply = self._load(request_id, message)
            else:
                reply = self._join(request_id, message)
            if self._output.exceeded:
                raise episode.OutputLimitError
        except BaseException as error:
            failure = self._failure(error)
        else:
            frames.write_message(self._fd, reply)
            return
        self._tell(op, request_id, failure)

    def _tell(self, op: int, request_id: int, failure: tuple[Any, ...]) -> None:
        outcome, diagnostic = failure
        extra = json.dumps(diagnostic).encode("utf-8", "replace")
        frames.write_message(self._fd, frames.pack_reply(op, request_id, outcome, extra=extra))
        if self._ballast is None:
            # The next one that runs out of memory shall be told so, too.
            with contextlib.suppress(OSError):
                self._ballast = mmap.mmap(-1, episode.BALLAST_BYTES)

    # -- requests ----------------------------------------------------------------------

    def _join(self, request_id: int, message: bytes) -> bytes:
        """Reset one more episode, or one that is to start over."""
        at = frames.REQUEST_HEADER_BYTES
        key = group_frames.MEMBER.unpack_from(message, at)[0]
        # It may be there already, and hold much.
        self._members.pop(key, None)
        self._output = self._shown.current = episode.Output(self._max_output_bytes)
        body = message[at + group_frames.MEMBER.size :]
        reply = self._reset(request_id, message[:at] + body)
        environment, self._environment = self._environment, None
        assert environment is not None
        self._members[key] = _Member(environment, self._output, self._generators.save())
        return reply

    def _drop(self, message: bytes) -> None:
        body = memoryview(message)[frames.REQUEST_HEADER_BYTES :]
        for (key,) in group_frames.MEMBER.iter_unpack(body):
            # What a program does when its objects go is its own affair, even if it raises.
            with contextlib.suppress(BaseException):
                self._members.pop(key, None)

    def _steps(self, request_id: int, message: bytes) -> None:
        """Step many episodes, one after another; answers go out in chunks."""
        self._phase = episode.STEP_PHASE
        members, shown_by, most = self._members, self._shown, self._max_observation_bytes
        save, restore, clock = self._generators.save, self._generators.restore, time.monotonic
        page, note = self._page, progress.note
        keys, lengths, at = group_frames.unpack_steps(message)
        flags: list[int] = []
        rewards: list[float] = []
        cuts: list[int] = []
        observations: list[bytes] = []
        infos: list[bytes] = []
        columns = (flags, rewards, cuts, observations, infos)
        failure: tuple[Any, ...]
        size = 0
        sent_at = now = clock()
        for index, (key, length) in enumerate(zip(keys, lengths, strict=True)):
            note(page, 0, request_id, index, now)
            end = at + length
            try:
                member = members[key]
                self._output = shown_by.current = output = member.output
                restore(member.state)
                observation, reward, step_flags, info = member.environment.step(
                    message[at:end].decode()
                )
                member.state = save()
                shown = observation.encode("utf-8", "replace")
                cut_bytes = 0
                if len(shown) > most:
                    shown, cut_bytes = text.cut(observation, most)
                packed = self._info(info) if info else b""
                if output.exceeded:
                    raise episode.OutputLimitError
            except BaseException as error:
                failure = self._failure(error)
            else:
                failure = ()
                flags.append(step_flags)
                rewards.append(reward)
                cuts.append(cut_bytes)
                observations.append(shown)
                infos.append(packed)
                size += len(shown) + len(packed)
            at = end
            if failure:
                # Told here, outside the handler: the program's frames and what they hold are gone.
                member = observation = info = None  # type: ignore[assignment]
                with contextlib.suppress(BaseException):
                    members.pop(key, None)
                self._flush(request_id, columns)
                self._tell(frames.STEP, request_id, failure)
                size = 0
                sent_at = now = clock()
                continue
            now = clock()
            if (
                len(flags) == group_frames.MAX_CHUNK_ITEMS
                or size >= group_frames.CHUNK_BYTES
                or now - sent_at > _FLUSH_S
            ):
                self._flush(request_id, columns)
                size = 0
                sent_at = now = clock()
        self._flush(request_id, columns)

    def _flush(self, request_id: int, columns: tuple[list[Any], ...]) -> None:
        if columns[0]:
            frames.write_message(self._fd, group_frames.pack_chunk(request_id, *columns))
            for column in columns:
                column.clear()
