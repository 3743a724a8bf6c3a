"""The serving loop of one episode process: one program, one environment, one socket."""

from __future__ import annotations

import io
import json
import marshal
import mmap
import os
import sys
import traceback
from typing import Any

from . import copying, frames, lockdown, program, text

_MESSAGE_BYTES = 4_000
_TAIL_BYTES = 2_000
# Released when memory runs out, so that saying so does not run out of it too.
BALLAST_BYTES = 2 * 1024 * 1024

# Numbers of `sandbox_api.v1.Phase`.
_COMPILE, _LOAD, _CONSTRUCT, _RESET, STEP_PHASE, _VERIFY, _SOLUTION = range(1, 8)


class OutputLimitError(BaseException):
    """The program printed more than it may. Not an Exception: programs catch those."""


class InfoTooLargeError(Exception):
    """The info is larger than it may be."""


class Output(io.TextIOBase):
    """Standard output of a program: counted, its end kept, the rest dropped."""

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes
        self.exceeded = False
        self.tail = ""

    def writable(self) -> bool:
        return True

    def write(self, written: str) -> int:
        self._left_bytes -= len(written)
        if self._left_bytes < 0:
            self.exceeded = True
            raise OutputLimitError
        self.tail = (self.tail + written[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        return len(written)


def _line(error: BaseException) -> int:
    """The program's own line nearest to where the error came from, or 0."""
    if isinstance(error, SyntaxError) and error.filename == program.FILENAME:
        return error.lineno or 0
    line = 0
    for frame, number in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == program.FILENAME:
            line = number
    return line


class EpisodeServer:
    """Answers the supervisor's requests about one program, in order."""

    def __init__(self, fd: int, limits: dict[str, Any]) -> None:
        """Args:
        fd: The episode's end of its socket, blocking.
        limits: The fields of `sandbox_api.v1.Limits`.
        """
        self._fd = fd
        self._max_observation_bytes = limits["max_observation_bytes"]
        self._max_info_bytes = limits["max_info_bytes"]
        self._phase = _COMPILE
        self._output = Output(limits["max_output_bytes"])
        sys.stdout = sys.stderr = self._output
        # Address space alone: its pages are never touched, so it costs no memory.
        self._ballast: mmap.mmap | None = mmap.mmap(-1, BALLAST_BYTES)
        self._factory: Any = None
        self._environment: program.Environment | None = None

    def serve(self) -> None:
        """Answer until the supervisor closes its end.

        A thousand processes take turns on a core, so what a step costs is the memory it
        touches: each object, page and function on its way is a miss of some cache. Hence no
        layers between the socket and the program for a step that fits in one datagram and
        goes well, and a buffer to read into: the allocator would write at the far end of a
        new one.
        """
        handlers = {
            frames.COMPILE: self._compile,
            frames.LOAD: self._load,
            frames.RESET: self._reset,
            frames.STEP: self._step,
            frames.VERIFY: self._verify,
            frames.SOLUTION: self._solution,
            frames.FORK: self._fork,
            frames.PLAY: self._play,
        }
        fd, output = self._fd, self._output
        # Of its own pages, of which a short request touches one. Private: copies have theirs.
        datagram = mmap.mmap(
            -1, frames.MAX_FRAGMENT_BYTES + 1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        buffers = (datagram,)
        readv, write = os.readv, os.write
        unpack_request, pack_reply = frames.FIRST.unpack_from, frames.ONLY_REPLY.pack
        header_bytes, step_op, completed = frames.FIRST.size, frames.STEP, frames.COMPLETED
        most_bytes = min(self._max_observation_bytes, frames.MAX_ONLY_REPLY_BYTES)
        while True:
            length = readv(fd, buffers)
            if length == 0:
                return
            more, op, request_id = unpack_request(datagram)
            try:
                if op == step_op and not more:
                    self._phase = STEP_PHASE
                    observation, reward, flags, info = self._environment.step(  # type: ignore[union-attr]
                        datagram[header_bytes:length].decode()
                    )
                    shown = observation.encode("utf-8", "replace")
                    size = len(shown)
                    if info or size > most_bytes:
                        reply = self._stepped(request_id, observation, reward, flags, info)
                        parts = frames.fragments(reply)
                    else:
                        only = pack_reply(
                            0, op, request_id, completed, flags, reward, 0, size, 0, 0
                        )
                        parts = [only + shown]
                else:
                    message = datagram[1:length]
                    if more:
                        message += frames.read_rest(fd)
                    parts = frames.fragments(handlers[op](request_id, message))
                if output.exceeded:
                    raise OutputLimitError
            except BaseException as error:
                failure = self._failure(error)
            else:
                for part in parts:
                    write(fd, part)
                continue
            # Told here, outside the handler: the program's frames and what they hold are gone.
            outcome, diagnostic = failure
            extra = json.dumps(diagnostic).encode("utf-8", "replace")
            reply = frames.pack_reply(op, request_id, outcome, extra=extra)
            for part in frames.fragments(reply):
                write(fd, part)

    # -- requests ----------------------------------------------------------------------

    def _compile(self, request_id: int, message: bytes) -> bytes:
        """Compile a program for the processes that will load it; nothing of it runs here.

        Compiling is most of what a small program's start would cost. One that is too long
        for a reply when compiled is compiled by each of its processes.
        """
        self._phase = _COMPILE
        source = message[frames.REQUEST_HEADER_BYTES :].decode()
        compiled = marshal.dumps(program.compile_source(source))
        if len(compiled) > frames.MAX_EXTRA_BYTES:
            compiled = b""
        return frames.pack_reply(frames.COMPILE, request_id, frames.COMPLETED, extra=compiled)

    def _load(self, request_id: int, message: bytes) -> bytes:
        head, compiled = frames.split(message[frames.REQUEST_HEADER_BYTES :])
        request = json.loads(head)
        self._phase = _COMPILE
        code = marshal.loads(compiled) if compiled else program.compile_source(request["source"])
        self._phase = _LOAD
        module = program.execute(code)
        self._phase = _CONSTRUCT
        self._factory = program.find_entry(module, request["entry"])
        if not request["describe"]:
            return frames.pack_reply(frames.LOAD, request_id, frames.COMPLETED)
        program.seed_globals(0)
        environment = program.Environment(self._factory, {}, 0)
        description = {
            "entry": getattr(self._factory, "__name__", "make_env"),
            "kind": environment.kind,
            "has_verify": environment.has_verify,
            "has_solution": environment.has_solution,
            "tools": environment.tools(),
        }
        extra = _bounded(description, "get_tools()")
        return frames.pack_reply(frames.LOAD, request_id, frames.COMPLETED, extra=extra)

    def _reset(self, request_id: int, message: bytes) -> bytes:
        observation, info = self._start(message[frames.REQUEST_HEADER_BYTES :])
        tools = self._environment.tools()  # type: ignore[union-attr]
        shown, cut_bytes = text.cut(observation, self._max_observation_bytes)
        return frames.pack_reply(
            frames.RESET,
            request_id,
            frames.COMPLETED,
            shown,
            cut_bytes=cut_bytes,
            info=self._info(info),
            extra=_bounded(tools, "get_tools()") if tools else b"",
        )

    def _start(self, body: bytes) -> tuple[str, Any]:
        request = json.loads(body)
        self._phase = _CONSTRUCT
        program.seed_globals(request["seed"])
        self._environment = environment = program.Environment(
            self._factory, request["options"], request["max_turns"]
        )
        self._phase = _RESET
        return environment.reset(request["seed"])

    def _play(self, request_id: int, message: bytes) -> bytes:
        """A reset and steps up to the end; the last step's reward is the reply's."""
        start, script = frames.split(message[frames.REQUEST_HEADER_BYTES :])
        self._start(start)
        self._phase = STEP_PHASE
        reward, flags, steps = 0.0, 0, 0
        for action in json.loads(script):
            _, reward, flags, _ = self._environment.step(action)  # type: ignore[union-attr]
            steps += 1
            if flags:
                break
        extra = json.dumps({"steps": steps}).encode()
        return frames.pack_reply(
            frames.PLAY, request_id, frames.COMPLETED, reward=reward, flags=flags, extra=extra
        )

    def _step(self, request_id: int, message: bytes) -> bytes:
        """A step whose action is too long for one datagram."""
        self._phase = STEP_PHASE
        action = message[frames.REQUEST_HEADER_BYTES :].decode()
        return self._stepped(request_id, *self._environment.step(action))  # type: ignore[union-attr]

    def _stepped(
        self, request_id: int, observation: str, reward: float, flags: int, info: Any
    ) -> bytes:
        """The reply to a step, whatever its size."""
        shown, cut_bytes = text.cut(observation, self._max_observation_bytes)
        return frames.pack_reply(
            frames.STEP,
            request_id,
            frames.COMPLETED,
            shown,
            reward,
            flags,
            cut_bytes,
            self._info(info) if info else b"",
        )

    def _verify(self, request_id: int, _: bytes) -> bytes:
        self._phase = _VERIFY
        verified, message = self._environment.verify()  # type: ignore[union-attr]
        extra = json.dumps({"verified": verified, "message": message[:_MESSAGE_BYTES]}).encode()
        return frames.pack_reply(frames.VERIFY, request_id, frames.COMPLETED, extra=extra)

    def _solution(self, request_id: int, _: bytes) -> bytes:
        self._phase = _SOLUTION
        solution = self._environment.solution()  # type: ignore[union-attr]
        extra = _bounded({"solution": solution}, "solution()")
        return frames.pack_reply(frames.SOLUTION, request_id, frames.COMPLETED, extra=extra)

    def _fork(self, request_id: int, _: bytes) -> bytes:
        """Copy this process; a copy's first word is the reply that the original gives."""
        refused = copying.copy_process(self._fd) is False
        outcome = frames.PROGRAM_ERROR if refused else frames.COMPLETED
        return frames.pack_reply(frames.FORK, request_id, outcome)

    # -- results and failures ----------------------------------------------------------

    def _info(self, info: Any) -> bytes:
        packed = text.info_bytes(info)
        if len(packed) > self._max_info_bytes:
            raise InfoTooLargeError(f"info is {len(packed)} bytes as JSON")
        return packed

    def _failure(self, error: BaseException) -> tuple[int, dict[str, Any]]:
        """The outcome of what a handler raised, and its diagnostic."""
        if isinstance(error, MemoryError):
            if self._ballast is not None:
                self._ballast.close()
                self._ballast = None
            return frames.MEMORY_LIMIT, self._diagnostic(error, "memory_bytes")
        if isinstance(error, OutputLimitError) or self._output.exceeded:
            error = OutputLimitError("the program printed more than it may")
            return frames.OUTPUT_LIMIT, self._diagnostic(error, "max_output_bytes")
        if isinstance(error, InfoTooLargeError):
            return frames.OUTPUT_LIMIT, self._diagnostic(error, "max_info_bytes")
        if isinstance(error, OSError):
            limit = lockdown.limit_name(error)
            scratch = limit.startswith("scratch_")
            outcome = frames.OUTPUT_LIMIT if scratch else frames.PROGRAM_ERROR
            return outcome, self._diagnostic(error, limit)
        return frames.PROGRAM_ERROR, self._diagnostic(error, "")

    def _diagnostic(self, error: BaseException, limit: str) -> dict[str, Any]:
        try:
            message = str(error)
        except BaseException:
            # An exception's __str__ is the program's code too.
            message = ""
        return {
            "phase": self._phase,
            "line": _line(error),
            "exception": type(error).__name__,
            "message": message[:_MESSAGE_BYTES],
            "limit": limit,
            "output_tail": self._output.tail,
        }


def _bounded(value: Any, what: str) -> bytes:
    """JSON for the reply's extra part.

    Raises:
        ContractError: If it is over the bound.
    """
    packed = json.dumps(value).encode()
    if len(packed) > frames.MAX_EXTRA_BYTES:
        raise program.ContractError(f"{what} is over {frames.MAX_EXTRA_BYTES} bytes as JSON")
    return packed
