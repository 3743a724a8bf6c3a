"""What the trainer needs from the outside: a sandbox, a designer, environments that are given.

The concrete classes live in packages that the trainer does not import; whoever starts a
run passes them in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox_api.types import Episode, Limits, Program, ResetItem, StepItem, StepResult, Verdict


class SandboxClient(Protocol):
    """The part of `sandbox_api.client.AsyncSandboxClient` that a run uses."""

    async def register_program(
        self, source: str, *, entry: str = "", runtime: str = "", limits: Limits | None = None
    ) -> Program: ...

    async def reset(self, items: Sequence[ResetItem]) -> list[Episode]: ...

    def reset_stream(self, items: Sequence[ResetItem]) -> AsyncIterator[tuple[int, Episode]]: ...

    def step_stream(self, items: Sequence[StepItem]) -> AsyncIterator[StepResult]: ...

    async def verify(
        self, episode_ids: Sequence[str], *, run_oracle: bool = False, timeout_s: float = 0.0
    ) -> list[Verdict]: ...

    async def close_episodes(self, episode_ids: Sequence[str]) -> int: ...


class DesignRequest(Protocol):
    """One completion that a designer wants from the model."""

    @property
    def skill(self) -> str: ...
    @property
    def messages(self) -> list[dict[str, Any]]: ...
    @property
    def json_schema(self) -> str | None: ...
    @property
    def max_turns(self) -> int: ...
    @property
    def seed(self) -> int: ...


@dataclass(frozen=True)
class Answer:
    """What a model wrote.

    Attributes:
        text: The completion.
        sample: What training needs of it; None where it cannot train.
        error: Why there is no completion, where that is the request's fault; else empty.
    """

    text: str
    sample: Any = None
    error: str = ""


class Writer(Protocol):
    """Anything that completes a designer's requests."""

    async def complete(
        self,
        requests: Sequence[Any],
        max_tokens: int,
        done: Callable[[], None] | None = None,
    ) -> Sequence[Answer | None]:
        """One answer a request, in order; None for what there is no budget for.

        Args:
            requests: See `DesignRequest`.
            max_tokens: Longest completion.
            done: Called for each answer.
        """
        ...

    def metrics(self) -> dict[str, float]:
        """What it cost so far, by the names of a run's metrics; empty where it costs nothing."""
        ...


class Progress(Protocol):
    """Shows how far long work has come."""

    def begin(self, description: str, total: int) -> None:
        """A new part of the work, of so many steps."""
        ...

    def advance(self) -> None:
        """One step of it is done."""
        ...


class Draft(Protocol):
    """What became of a completion, before the gates."""

    @property
    def request(self) -> Any: ...
    @property
    def source(self) -> str | None: ...
    @property
    def hint(self) -> str | None: ...
    @property
    def family(self) -> str: ...
    @property
    def reason(self) -> str | None: ...


class GateReport(Protocol):
    """What the gates said about a draft."""

    @property
    def draft(self) -> Any: ...
    @property
    def reason(self) -> str: ...
    @property
    def program(self) -> Program | None: ...
    @property
    def env_id(self) -> str: ...
    @property
    def passed(self) -> bool: ...


class Written(Protocol):
    """A draft's last verdict, and the samples that led to it."""

    @property
    def report(self) -> Any: ...
    @property
    def samples(self) -> Sequence[Any]: ...


class WritingOutcome(Protocol):
    """What a round of writing gave; see `designer.writing.WritingOutcome`."""

    @property
    def written(self) -> Sequence[Any]: ...
    @property
    def reasons(self) -> Counter[str]: ...
    @property
    def mended(self) -> int: ...
    @property
    def unanswered(self) -> int: ...


class Designer(Protocol):
    """Turns completions of the model into validated environments, and remembers them."""

    max_turns: int

    def rewind(self, step: int) -> None:
        """Forget what was recorded after `step`; 0 forgets all of a run."""
        ...

    def remember_given(self, given: GivenEnvironment) -> str:
        """Store an environment that nobody designs here; returns what the archive calls it."""
        ...

    async def write(
        self, writer: Writer, n: int, step: int, progress: Progress | None = None
    ) -> Any:
        """Have n environments written, judged, mended and remembered."""
        ...

    def record_plays(self, env_id: str, step: int, plays: list[dict[str, Any]]) -> None: ...

    def record_measurement(
        self,
        env_id: str,
        step: int,
        *,
        win_plain: float,
        win_hinted: float,
        regret: float,
        regret_se: float,
        regime: str,
        designer_reward: float | None,
    ) -> None: ...


@dataclass(frozen=True)
class EvaluationItem:
    """One environment that training never sees.

    Attributes:
        name: Shown in reports; unique in a suite.
        family: Groups items in reports.
        source: The program.
        hint: Its hint; unused by the default protocol.
        max_turns: Turn cap; 0 for the run's.
        actions: Valid actions, for the random policy, where `info["actions"]` has none.
    """

    name: str
    family: str
    source: str
    hint: str = ""
    max_turns: int = 0
    actions: tuple[str, ...] = ()


class PoolError(RuntimeError):
    """A pool cannot be trained on; the message lists what is wrong with which program."""


@dataclass(frozen=True)
class Level:
    """One difficulty of an environment.

    Attributes:
        source: The program.
        options: Constructor arguments, or options of reset.
    """

    source: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PoolItem:
    """One environment of a frozen pool.

    Attributes:
        name: Unique in the pool.
        origin: The source that it is from, as the configuration names it.
        levels: Its difficulties, the easiest first; one where it has none.
        share: Of the draws, relative to the other items.
        skill: What it asks of a player.
        family: Groups items in reports.
        runtime: At the server; empty means its default.
        max_turns: Turn cap; 0 for the run's.
    """

    name: str
    origin: str
    levels: tuple[Level, ...]
    share: float = 1.0
    skill: str = ""
    family: str = ""
    runtime: str = ""
    max_turns: int = 0


@dataclass(frozen=True)
class GivenEnvironment:
    """An environment of a pool, as it is remembered."""

    origin: str
    source: str
    skill: str
    family: str
    program: Program
