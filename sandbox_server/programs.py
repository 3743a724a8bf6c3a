"""Programs: each is checked, compiled and loaded once, and remembered by its hash."""

from __future__ import annotations

import hashlib
import json

from sandbox_api.errors import (
    EpisodeLostError,
    InvalidRequestError,
    ProgramNotFoundError,
    UnavailableError,
)
from sandbox_api.types import Limits
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import answers, replay
from sandbox_server.channel import Channel
from sandbox_server.config import ServerConfig
from sandbox_server.episode import ProgramRecord
from sandbox_server.failures import ProgramFailedError
from sandbox_server.jail_pool import PLAY_HASH_SEED, JailPool
from sandbox_server.runtime import Runtime
from sandbox_server.work import Work


class Programs:
    """The programs that this server knows."""

    def __init__(
        self, config: ServerConfig, runtimes: dict[str, Runtime], jails: JailPool, work: Work
    ) -> None:
        self._config = config
        self._runtimes = runtimes
        self._jails = jails
        self._work = work
        self._known: dict[str, ProgramRecord] = {}
        self._known_bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        self._known.clear()
        self._known_bytes = 0

    def find(self, program_id: str) -> ProgramRecord:
        """Look a program up.

        Raises:
            ProgramNotFoundError: If it is not known.
        """
        program = self._known.get(program_id)
        if program is None:
            raise ProgramNotFoundError(
                f"no program {program_id[:16]!r}; register it (a restarted server forgets)"
            )
        return program

    async def register(self, request: pb.RegisterProgramRequest) -> pb.RegisterProgramResponse:
        """Store a program and load it once. One that does not load is not stored.

        Raises:
            InvalidRequestError: If the request is wrong.
            CapacityError, QuotaError: If there is no room for its process now.
            UnavailableError: If its jail is being restarted.
        """
        program = self._checked(request)
        known = self._known.get(program.program_id)
        if known is not None:
            return known.response
        channel = None
        try:
            async with self._work.item():
                channel = await self._jails.spawn(program, PLAY_HASH_SEED)
                await self._load(channel, program)
        except ProgramFailedError as error:
            return pb.RegisterProgramResponse(
                program_id=program.program_id,
                limits=program.limits,
                outcome=error.failure.outcome,
                diagnostic=error.failure.diagnostic,
            )
        except EpisodeLostError as error:
            raise UnavailableError(str(error), self._config.retry_delay_s) from None
        finally:
            if channel is not None:
                channel.close()
        self._remember(program)
        return program.response

    def _remember(self, program: ProgramRecord) -> None:
        """Keep a program, and forget the oldest ones that there is no more room for."""
        self._forget(program.program_id)
        self._known[program.program_id] = program
        self._known_bytes += program.record_bytes
        while len(self._known) > 1 and (
            len(self._known) > self._config.max_programs
            or self._known_bytes > self._config.max_programs_bytes
        ):
            self._forget(next(iter(self._known)))

    def _forget(self, program_id: str) -> None:
        known = self._known.pop(program_id, None)
        if known is not None:
            self._known_bytes -= known.record_bytes
            known.forgotten = True

    def _checked(self, request: pb.RegisterProgramRequest) -> ProgramRecord:
        source = request.source
        if not source.strip():
            raise InvalidRequestError("source is empty")
        size = len(source.encode())
        if size > self._config.max_program_bytes:
            raise InvalidRequestError(
                f"source is {size} bytes; this server allows {self._config.max_program_bytes}"
            )
        runtime = request.runtime or "stdlib"
        if runtime not in self._runtimes:
            raise InvalidRequestError(
                f"no runtime {runtime!r}; this server has {', '.join(sorted(self._runtimes))}"
            )
        asked = Limits.from_proto(request.limits)
        limits = self._config.resolve_limits(asked).to_proto()
        if limits.max_processes > 1 and not self._jails.may_fork(runtime):
            raise InvalidRequestError(
                "limits.max_processes over 1 needs a user id per episode, which this "
                "server cannot map; run it as root, or keep max_processes at 1"
            )
        if limits.max_processes > 1 and request.group_mode:
            raise InvalidRequestError(
                "group_mode and limits.max_processes over 1 exclude each other: a group's process "
                "is not one episode's to copy; ask for one of them"
            )
        asked_for = [source, request.entry, runtime]
        if request.group_mode:
            asked_for.append("group")
        text = json.dumps(asked_for).encode()
        digest = hashlib.sha256(text + limits.SerializeToString(deterministic=True))
        program_id = digest.hexdigest()
        group_size = max(1, self._config.group_size) if request.group_mode else 1
        response = pb.RegisterProgramResponse(
            program_id=program_id, limits=limits, group_size=group_size
        )
        return ProgramRecord(
            program_id,
            source,
            request.entry,
            runtime,
            limits,
            response,
            group_size=group_size,
        )

    @staticmethod
    async def _load(channel: Channel, program: ProgramRecord) -> None:
        """Compile and load a program, and fill in what its process says of it."""
        program.code = await replay.compile_program(channel, program)
        reply = await replay.load(channel, program, describe=True)
        response = program.response
        try:
            told = json.loads(reply.extra)
            if told["kind"] not in pb.ProgramKind.values():
                raise ValueError("no such kind")
            response.kind = told["kind"]
            response.entry = answers.cut(told["entry"], 500)
            response.has_verify = bool(told["has_verify"])
            response.has_solution = bool(told["has_solution"])
            if told["tools"]:
                response.tools_json = answers.tools_json(told["tools"])
        except answers.MALFORMED:
            failure = answers.malformed("a description that is not one")
            raise ProgramFailedError(failure) from None
        response.outcome = pb.OUTCOME_COMPLETED
