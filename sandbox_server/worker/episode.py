"""The serving loop of one episode process: one program, one environment, one socket."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import socket
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from . import frames, lockdown, program, text

_MESSAGE_BYTES = 4_000
_TAIL_BYTES = 2_000
# Released when memory runs out, so that saying so does not run out of it too.
_BALLAST_BYTES = 2 * 1024 * 1024

# Numbers of `sandbox_api.v1.Phase`.
_COMPILE, _LOAD, _CONSTRUCT, _RESET, _STEP, _VERIFY, _SOLUTION = range(1, 8)


class OutputLimitError(BaseException):
    """The program printed more than it may. Not an Exception: programs catch those."""


class InfoTooLargeError(Exception):
    """The info is larger than it may be."""


class _Output(io.TextIOBase):
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


class _Failure(Exception):
    """A program's failure, ready to be told."""

    def __init__(self, outcome: int, diagnostic: dict[str, Any]) -> None:
        super().__init__(diagnostic.get("message", ""))
        self.outcome = outcome
        self.diagnostic = diagnostic


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
        self._limits = limits
        self._output = _Output(limits["max_output_bytes"])
        sys.stdout = sys.stderr = self._output  # type: ignore[assignment]
        self._ballast: bytearray | None = bytearray(_BALLAST_BYTES)
        self._factory: Any = None
        self._environment: program.Environment | None = None

    def serve(self) -> None:
        """Answer until the supervisor closes its end."""
        handlers = {
            frames.LOAD: self._load,
            frames.RESET: self._reset,
            frames.STEP: self._step,
            frames.VERIFY: self._verify,
            frames.SOLUTION: self._solution,
        }
        while True:
            message = frames.read_message(self._fd)
            if message is None:
                return
            op, request_id, body = frames.unpack_request(message)
            if op == frames.FORK:
                self._fork(request_id)
                continue
            try:
                reply = handlers[op](op, request_id, body)
                if self._output.exceeded:
                    raise _Failure(*self._output_exceeded(_STEP))
            except _Failure as failure:
                reply = frames.pack_reply(
                    op,
                    request_id,
                    failure.outcome,
                    extra=json.dumps(failure.diagnostic).encode("utf-8", "replace"),
                )
            frames.write_message(self._fd, reply)

    # -- requests ----------------------------------------------------------------------

    def _load(self, op: int, request_id: int, body: bytes) -> bytes:
        request = json.loads(body)
        with self._phase(_COMPILE):
            code = program.compile_source(request["source"])
        with self._phase(_LOAD):
            module = program.execute(code)
        with self._phase(_CONSTRUCT):
            self._factory = program.find_entry(module, request["entry"])
        if not request["describe"]:
            return frames.pack_reply(op, request_id, frames.COMPLETED)
        with self._phase(_CONSTRUCT):
            program.seed_globals(0)
            environment = program.Environment(self._factory, {}, 0)
            description = {
                "entry": getattr(self._factory, "__name__", "make_env"),
                "kind": environment.kind,
                "has_verify": environment.has_verify,
                "has_solution": environment.has_solution,
                "tools": environment.tools(),
            }
        return frames.pack_reply(
            op, request_id, frames.COMPLETED, extra=json.dumps(description).encode()
        )

    def _reset(self, op: int, request_id: int, body: bytes) -> bytes:
        request = json.loads(body)
        with self._phase(_CONSTRUCT):
            program.seed_globals(request["seed"])
            self._environment = program.Environment(
                self._factory, request["options"], request["max_turns"]
            )
        with self._phase(_RESET):
            observation, info = self._environment.reset(request["seed"])
            tools = self._environment.tools()
            extra = json.dumps(tools).encode() if tools else b""
            if len(extra) > frames.MAX_EXTRA_BYTES:
                raise program.ContractError("get_tools() is over 256 KiB as JSON")
            return self._result(op, request_id, observation, info, extra=extra)
        raise AssertionError("unreachable")

    def _step(self, op: int, request_id: int, body: bytes) -> bytes:
        with self._phase(_STEP):
            step = self._require_environment().step(body.decode())
            return self._result(
                op,
                request_id,
                step.observation,
                step.info,
                reward=step.reward,
                terminated=step.terminated,
                truncated=step.truncated,
            )
        raise AssertionError("unreachable")

    def _verify(self, op: int, request_id: int, body: bytes) -> bytes:
        with self._phase(_VERIFY):
            verified, message = self._require_environment().verify()
            said = {"verified": verified, "message": message[:_MESSAGE_BYTES]}
        return frames.pack_reply(op, request_id, frames.COMPLETED, extra=json.dumps(said).encode())

    def _solution(self, op: int, request_id: int, body: bytes) -> bytes:
        with self._phase(_SOLUTION):
            environment = self._require_environment()
            extra = json.dumps({"solution": environment.solution()}).encode()
            if len(extra) > frames.MAX_EXTRA_BYTES:
                raise program.ContractError("solution() is over 256 KiB as JSON")
        return frames.pack_reply(op, request_id, frames.COMPLETED, extra=extra)

    def _fork(self, request_id: int) -> None:
        """Copy this process, state and all, onto the descriptor that comes next.

        The copy is a grandchild: its parent ends at once, so that the jail's init adopts
        and reaps it, and neither side is the other's to wait for.
        """
        # All of it spelled out: asking the kernel for it is off the list of system calls.
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=os.dup(self._fd)
        ) as channel:
            _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        outcome = frames.COMPLETED
        # The standard library seeds its global generator anew in every forked child.
        generator = random.getstate()
        try:
            child = os.fork()
            if child == 0:
                try:
                    if os.fork() != 0:
                        os._exit(0)
                except OSError:
                    os._exit(1)
                os.dup2(descriptors[0], self._fd)
                os.close(descriptors[0])
                random.setstate(generator)
            elif os.waitpid(child, 0)[1] != 0:
                outcome = frames.PROGRAM_ERROR
        except OSError:
            outcome = frames.PROGRAM_ERROR
        else:
            if child == 0:
                # The copy says hello on its own socket; the original answers the request.
                frames.write_message(
                    self._fd, frames.pack_reply(frames.FORK, request_id, frames.COMPLETED)
                )
                return
        os.close(descriptors[0])
        frames.write_message(self._fd, frames.pack_reply(frames.FORK, request_id, outcome))

    # -- results and failures ----------------------------------------------------------

    def _require_environment(self) -> program.Environment:
        if self._environment is None:
            raise program.ContractError("the episode was not reset")
        return self._environment

    def _result(
        self, op: int, request_id: int, observation: str, info: Any, **fields: Any
    ) -> bytes:
        shown, cut_bytes = text.cut(observation, self._limits["max_observation_bytes"])
        diagnostics = text.info_bytes(info)
        if len(diagnostics) > self._limits["max_info_bytes"]:
            raise InfoTooLargeError(f"info is {len(diagnostics)} bytes as JSON")
        return frames.pack_reply(
            op,
            request_id,
            frames.COMPLETED,
            observation=shown,
            cut_bytes=cut_bytes,
            info=diagnostics,
            **fields,
        )

    @contextlib.contextmanager
    def _phase(self, phase: int) -> Iterator[None]:
        """Turn whatever the program raises into a _Failure that knows the phase."""
        try:
            yield
        except MemoryError as error:
            self._ballast = None
            failure = frames.MEMORY_LIMIT, self._diagnostic(phase, error, "memory_bytes")
        except OutputLimitError:
            failure = self._output_exceeded(phase)
        except InfoTooLargeError as error:
            failure = frames.OUTPUT_LIMIT, self._diagnostic(phase, error, "max_info_bytes")
        except OSError as error:
            limit = lockdown.limit_name(error)
            outcome = frames.OUTPUT_LIMIT if limit == "scratch_bytes" else frames.PROGRAM_ERROR
            failure = outcome, self._diagnostic(phase, error, limit)
        except BaseException as error:
            failure = frames.PROGRAM_ERROR, self._diagnostic(phase, error, "")
        else:
            return
        # Raised here, outside the handlers: the program's frames and what they hold are gone.
        raise _Failure(*failure)

    def _output_exceeded(self, phase: int) -> tuple[int, dict[str, Any]]:
        message = f"the program printed more than {self._limits['max_output_bytes']} bytes"
        return frames.OUTPUT_LIMIT, {
            "phase": phase,
            "message": message,
            "limit": "max_output_bytes",
            "output_tail": self._output.tail,
        }

    def _diagnostic(self, phase: int, error: BaseException, limit: str) -> dict[str, Any]:
        try:
            message = str(error)
        except BaseException:
            # An exception's __str__ is the program's code too.
            message = ""
        return {
            "phase": phase,
            "line": _line(error),
            "exception": type(error).__name__,
            "message": message[:_MESSAGE_BYTES],
            "limit": limit,
            "output_tail": self._output.tail,
        }
