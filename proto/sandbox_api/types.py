"""Plain values of the sandbox API, free of protobuf.

Units: times are wall seconds unless the name says `cpu`, sizes are bytes. A limit of 0
means the server's default.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field, fields
from typing import Any

from sandbox_api.v1 import sandbox_pb2 as pb


class Outcome(enum.IntEnum):
    """What became of a program's code; only COMPLETED carries a reward."""

    COMPLETED = pb.OUTCOME_COMPLETED
    PROGRAM_ERROR = pb.OUTCOME_PROGRAM_ERROR
    SIGNALED = pb.OUTCOME_SIGNALED
    EXITED = pb.OUTCOME_EXITED
    TIME_LIMIT = pb.OUTCOME_TIME_LIMIT
    MEMORY_LIMIT = pb.OUTCOME_MEMORY_LIMIT
    OUTPUT_LIMIT = pb.OUTCOME_OUTPUT_LIMIT
    PROTOCOL_VIOLATION = pb.OUTCOME_PROTOCOL_VIOLATION


class Phase(enum.IntEnum):
    """Where in a program's life something happened."""

    COMPILE = pb.PHASE_COMPILE
    LOAD = pb.PHASE_LOAD
    CONSTRUCT = pb.PHASE_CONSTRUCT
    RESET = pb.PHASE_RESET
    STEP = pb.PHASE_STEP
    VERIFY = pb.PHASE_VERIFY
    SOLUTION = pb.PHASE_SOLUTION


_PHASES = frozenset(Phase)


class ProgramKind(enum.IntEnum):
    """The shape in which a program presents itself."""

    GAME = pb.PROGRAM_KIND_GAME
    TOOL_USE = pb.PROGRAM_KIND_TOOL_USE
    GYMNASIUM = pb.PROGRAM_KIND_GYMNASIUM


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one episode; see the message of the same name for each field."""

    step_timeout_s: float = 0.0
    load_timeout_s: float = 0.0
    cpu_time_s: float = 0.0
    memory_bytes: int = 0
    max_processes: int = 0
    max_open_files: int = 0
    scratch_bytes: int = 0
    scratch_inodes: int = 0
    max_observation_bytes: int = 0
    max_info_bytes: int = 0
    max_action_bytes: int = 0
    max_output_bytes: int = 0
    max_steps: int = 0
    idle_timeout_s: float = 0.0
    lifetime_s: float = 0.0

    @classmethod
    def from_proto(cls, message: pb.Limits) -> Limits:
        return cls(**{f.name: getattr(message, f.name) for f in fields(cls)})

    def to_proto(self) -> pb.Limits:
        return pb.Limits(**{f.name: getattr(self, f.name) for f in fields(self)})


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What a program did wrong, as far as it can be told.

    Attributes:
        line: Line in the program's source, from 1; 0 when unknown.
        exception: Class name of the exception; empty when there was none.
        message: One line or a few, at most 4,000 bytes.
        limit: Name of the `Limits` field that was exceeded; empty when none.
        signal: Signal number that the process died of; 0 when none.
        exit_status: Of a process that ended itself; 0 otherwise.
        output_tail: The end of what the program printed in the episode, at most 2,000 bytes.
    """

    phase: Phase | None = None
    line: int = 0
    exception: str = ""
    message: str = ""
    limit: str = ""
    signal: int = 0
    exit_status: int = 0
    output_tail: str = ""

    @classmethod
    def from_proto(cls, message: pb.Diagnostic) -> Diagnostic:
        return cls(
            # One that is new to this client is as good as none: it decides nothing.
            phase=Phase(message.phase) if message.phase in _PHASES else None,
            line=message.line,
            exception=message.exception,
            message=message.message,
            limit=message.limit,
            signal=message.signal,
            exit_status=message.exit_status,
            output_tail=message.output_tail,
        )

    def __str__(self) -> str:
        where = self.phase.name.lower() if self.phase else "program"
        if self.line:
            where += f", line {self.line}"
        what = f"{self.exception}: {self.message}" if self.exception else self.message
        return f"{where}: {what}"


@dataclass(frozen=True, slots=True)
class Program:
    """A registered program; usable only if `outcome` is COMPLETED.

    Attributes:
        tools: OpenAI-format tool schemas.
        limits: Limits in force, defaults filled in.
        group_size: How many of its episodes share a process.
    """

    program_id: str
    outcome: Outcome
    diagnostic: Diagnostic | None = None
    kind: ProgramKind | None = None
    entry: str = ""
    has_verify: bool = False
    has_solution: bool = False
    tools: list[dict[str, Any]] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    group_size: int = 1


@dataclass(frozen=True, slots=True)
class ResetItem:
    """One episode to start.

    Attributes:
        max_turns: Turn cap; 0 means `Limits.max_steps`.
        prefix_actions: Actions to replay after the reset.
        timeout_s: Wall seconds of the reset and of each replayed step; 0 means
            `Limits.step_timeout_s`.
    """

    program_id: str
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    max_turns: int = 0
    prefix_actions: tuple[str, ...] = ()
    timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StepItem:
    """One action for one episode.

    Attributes:
        step_index: 0 for the first action after the reset.
        action: What the policy said, whole.
        timeout_s: Wall seconds of this step; 0 means `Limits.step_timeout_s`.
    """

    episode_id: str
    step_index: int
    action: str
    timeout_s: float = 0.0


@dataclass(slots=True)
class StepResult:
    """What one action led to. `reward` is None unless `outcome` is COMPLETED.

    Attributes:
        episode_id: The episode stepped.
        observation_cut_bytes: UTF-8 bytes cut from the observation's end.
        info_json: JSON object as bytes, undecoded; `info` decodes it.
        error: Set when the service failed this item; then nothing else is.
    """

    episode_id: str
    step_index: int
    outcome: Outcome | None
    observation: str = ""
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info_json: bytes = b""
    observation_cut_bytes: int = 0
    diagnostic: Diagnostic | None = None
    error: Exception | None = None

    @property
    def info(self) -> dict[str, Any]:
        return json.loads(self.info_json) if self.info_json else {}

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.COMPLETED


@dataclass(slots=True)
class Episode:
    """One started episode, or why it did not start.

    Attributes:
        episode_id: Empty unless `outcome` is COMPLETED.
        observation: First observation; after prefix_actions, the last replayed step's.
        prefix_results: One for each of prefix_actions.
        error: Set when the service failed this item; then nothing else is.
    """

    episode_id: str
    outcome: Outcome | None
    observation: str = ""
    info_json: bytes = b""
    tools: list[dict[str, Any]] = field(default_factory=list)
    observation_cut_bytes: int = 0
    prefix_results: list[StepResult] = field(default_factory=list)
    diagnostic: Diagnostic | None = None
    error: Exception | None = None

    @property
    def info(self) -> dict[str, Any]:
        return json.loads(self.info_json) if self.info_json else {}

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.COMPLETED


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a replay first differed; `step_index` -1 is the reset."""

    step_index: int
    field: str
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True)
class OracleResult:
    """A play of the program's own solution().

    Attributes:
        final_reward: Reward of the last step; None unless `outcome` is COMPLETED.
    """

    outcome: Outcome
    actions: tuple[str, ...] = ()
    final_reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    diagnostic: Diagnostic | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A play of given actions, to be tried."""

    seed: int
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What became of a trial.

    Attributes:
        final_reward: Reward of the last step; None unless `outcome` is COMPLETED and there was
            one.
    """

    outcome: Outcome
    final_reward: float | None = None
    terminated: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a replay in a fresh process found.

    Attributes:
        reproduced: It gave the same observations, rewards and end.
        divergence: Where it first did not; None where it did.
        verify_outcome: What became of the program's verify(); None when it was not run.
        verified: What it said; None unless `verify_outcome` is COMPLETED.
        oracle: The play of solution(); None unless it was asked for and there is one.
        oracles: Its plays on further seeds, in their order, up to the first that did not win.
        trials: Of the plays to be tried, in their order, up to the first that did not complete.
        diagnostic: Why the replay or verify() failed, where it did.
        error: Set when the service failed this item; then nothing else is.
    """

    episode_id: str
    reproduced: bool = False
    divergence: Divergence | None = None
    has_verify: bool = False
    verify_outcome: Outcome | None = None
    verified: bool | None = None
    verify_message: str = ""
    oracle: OracleResult | None = None
    oracles: tuple[OracleResult, ...] = ()
    trials: tuple[TrialResult, ...] = ()
    diagnostic: Diagnostic | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What the server is, allows and does at the moment.

    Attributes:
        isolation: Protections in force, by name, with what enforces each.
        runtimes: Python version of each runtime, by name.
        default_limits: What a limit of 0 means.
        max_limits: The largest limits that a program may ask for.
        max_episodes: Live episodes at most.
        max_batch_items: Items in one call at most.
        max_pending_items: Items in work in all calls together at most.
        ended_total: Episodes ended since the server started, by cause.
        shards: Addresses of the shards that run, by name, where there are any; the numbers are
            theirs together, and the rest is the first one's.
        group_size: How many episodes share a process in group mode; 1 where it is off.
    """

    version: str
    backend: str
    isolation: dict[str, str]
    runtimes: dict[str, str]
    default_limits: Limits
    max_limits: Limits
    max_episodes: int
    max_batch_items: int
    max_pending_items: int
    live_episodes: int
    pending_items: int
    programs: int
    jails: int
    steps_total: int
    ended_total: dict[str, int]
    shards: dict[str, str] = field(default_factory=dict)
    group_size: int = 1
