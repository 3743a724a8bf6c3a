"""What the trainer needs from the outside: a sandbox, a designer, environments to hold out.

The concrete classes live in packages that the trainer does not import; whoever starts a
run passes them in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox_api.types import Episode, Limits, Program, ResetItem, StepItem, StepResult, Verdict


class SandboxClient(Protocol):
    """The part of `sandbox_api.client.AsyncSandboxClient` that a run uses."""

    async def register_program(
        self, source: str, *, entry: str = "", runtime: str = "", limits: Limits | None = None
    ) -> Program: ...

    async def reset(self, items: Sequence[ResetItem]) -> list[Episode]: ...

    async def step(self, items: Sequence[StepItem]) -> list[StepResult]: ...

    async def verify(
        self, episode_ids: Sequence[str], *, run_oracle: bool = False, timeout_s: float = 0.0
    ) -> list[Verdict]: ...

    async def close_episodes(self, episode_ids: Sequence[str]) -> int: ...


class DesignRequest(Protocol):
    """One completion that a designer wants from the model."""

    @property
    def slot(self) -> int: ...
    @property
    def skill(self) -> str: ...
    @property
    def messages(self) -> list[dict[str, Any]]: ...
    @property
    def json_schema(self) -> str | None: ...
    @property
    def max_turns(self) -> int: ...


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


class Designer(Protocol):
    """Turns completions of the model into validated environments, and remembers them."""

    def rewind(self, step: int) -> None:
        """Forget what was recorded after `step`; 0 forgets all of a run."""
        ...

    def requests(self, n: int, step: int) -> list[Any]: ...

    def parse(self, request: Any, completion: str) -> Any: ...

    def hint_request(self, draft: Any) -> Any | None: ...

    def accept_hint(self, draft: Any, completion: str) -> Any: ...

    async def validate(self, drafts: list[Any]) -> list[Any]: ...

    def remember(self, report: Any, step: int) -> None: ...

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
