"""The server's record of one episode: what was asked, what came back, and what goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.endpoint import Seat

# A step whose result may take so much counts for one.
USUAL_RESULT_BYTES = 64 * 1024


@dataclass(slots=True)
class ProgramRecord:
    """A registered program and what its loading told.

    Attributes:
        code: The program compiled, by a process that had run nothing of it. Opaque here:
            only this program's own processes read it. Empty if it was too long to pass on.
        group_size: How many of its episodes share a process; 1 for none.
        forgotten: Whether only episodes remember it any more.
        step_cost: For how many a step of it counts among those that run at once: what its
            result may take waits in the server's memory.
        step_timeout_s: That of its limits, which is quicker to read here.
        surely_short_action: Characters of an action that is short enough, whatever they are.
    """

    program_id: str
    source: str
    entry: str
    runtime: str
    limits: pb.Limits
    response: pb.RegisterProgramResponse
    code: bytes = b""
    group_size: int = 1
    forgotten: bool = False
    step_cost: int = field(init=False)
    step_timeout_s: float = field(init=False)
    surely_short_action: int = field(init=False)

    def __post_init__(self) -> None:
        self.step_timeout_s = self.limits.step_timeout_s
        # At four bytes a character, which is the most.
        self.surely_short_action = self.limits.max_action_bytes // 4
        largest = self.limits.max_observation_bytes + self.limits.max_info_bytes
        self.step_cost = max(1, largest // USUAL_RESULT_BYTES)

    @property
    def record_bytes(self) -> int:
        """About what it takes while it is remembered."""
        return len(self.source) + len(self.code) + self.response.ByteSize()


class StepRecord(NamedTuple):
    """What a replay is compared with. The observation is kept as a digest only."""

    observation_sha256: str
    reward: float
    terminated: bool
    truncated: bool


def observation_digest(observation: str) -> str:
    return hashlib.sha256(observation.encode()).hexdigest()


class Sink(Protocol):
    """Where results of one call go."""

    def __call__(self, result: pb.StepResult, /) -> None: ...

    def put_all(self, results: list[pb.StepResult], size: int, /) -> None:
        """Take many, of about so many bytes together."""


@dataclass(slots=True)
class Episode:
    """One episode.

    Attributes:
        channel: Its process, or its part in a group's; None once the episode has ended.
        next_index: Index that the next step must have.
        reset_digest: Digest of the first observation.
        actions: All actions taken, in order.
        steps: What each led to; one shorter than `actions` while a step is in work, and
            for good when the last one failed.
        last_result: Result of the last step, for repeats; None before the first, where it was
            lost, and where `recall` makes it.
        recall: Makes the last result of an episode that is stepped without messages.
        waiters: Who waits for the step in work: result index and where to put it.
        ended: Why no further step is possible; empty while one is.
        record_bytes: About what the record takes: options, actions, steps, last result.
        users: Verify calls in work, during which it is not idle.
        last_result_bytes: The last result's part of it.
    """

    episode_id: str
    program: ProgramRecord
    seed: int
    options_json: bytes
    max_turns: int
    turn_cap: int
    started_at: float
    last_used_at: float
    channel: Seat | None = None
    next_index: int = 0
    reset_digest: str = ""
    actions: list[str] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    last_result: pb.StepResult | None = None
    waiters: list[tuple[int, Callable[[pb.StepResult], None]]] = field(default_factory=list)
    ended: str = ""
    users: int = 0
    record_bytes: int = 0
    last_result_bytes: int = 0
    recall: Callable[[], pb.StepResult | None] | None = None

    def recorded_result(self) -> pb.StepResult | None:
        """Result of the last step that has one."""
        if self.last_result is None and self.recall is not None:
            self.last_result = self.recall()
        return self.last_result

    @property
    def live(self) -> bool:
        return self.channel is not None
