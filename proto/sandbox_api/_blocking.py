"""The client's methods for callers that wait: each hands its work over, and returns what came.

Where the work goes on is for who inherits them: a thread of its own, or the caller's.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from sandbox_api._async import AsyncSandboxClient
from sandbox_api._pipeline import MAX_PIPELINE_ITEMS, AsyncStepPipeline
from sandbox_api.types import (
    Episode,
    Limits,
    Program,
    ResetItem,
    ServerInfo,
    StepItem,
    StepResult,
    Trial,
    Verdict,
)

T = TypeVar("T")


class StepPipeline:
    """`AsyncStepPipeline` for callers without an event loop; each method is the one there.

    Made by `SandboxClient.pipeline()`, and used as a context manager.
    """

    def __init__(
        self, pipeline: AsyncStepPipeline, wait: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._pipeline = pipeline
        self._wait = wait

    def __enter__(self) -> StepPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is in flight; see `AsyncStepPipeline.aclose`."""
        self._wait(self._pipeline.aclose())

    @property
    def in_flight(self) -> int:
        """Items that have no result yet."""
        return self._pipeline.in_flight

    def submit(self, items: Sequence[StepItem]) -> None:
        """Send items; see `AsyncStepPipeline.submit`."""

        async def submit() -> None:
            self._pipeline.submit(items)

        self._wait(submit())

    def results(self, at_least: int = 1, at_most: int | None = None) -> list[StepResult]:
        """Wait for results; see `AsyncStepPipeline.results`."""
        return self._wait(self._pipeline.results(at_least, at_most))


class BlockingCalls(abc.ABC):
    """The methods of `AsyncSandboxClient`, for callers without an event loop.

    Used as a context manager it is closed at the end.
    """

    _client: AsyncSandboxClient

    @abc.abstractmethod
    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Have this done, and return what comes of it."""

    @abc.abstractmethod
    def close(self) -> None:
        """End it. Closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def register_program(
        self,
        source: str,
        *,
        entry: str = "",
        runtime: str = "",
        limits: Limits | None = None,
        group_mode: bool = False,
    ) -> Program:
        """Register a program; see `AsyncSandboxClient.register_program`."""
        return self._wait(
            self._client.register_program(
                source, entry=entry, runtime=runtime, limits=limits, group_mode=group_mode
            )
        )

    def reset(self, items: Sequence[ResetItem]) -> list[Episode]:
        """Start episodes; see `AsyncSandboxClient.reset`."""
        return self._wait(self._client.reset(items))

    def step(self, items: Sequence[StepItem]) -> list[StepResult]:
        """Advance episodes; see `AsyncSandboxClient.step`."""
        return self._wait(self._client.step(items))

    def pipeline(self, max_items: int = MAX_PIPELINE_ITEMS) -> StepPipeline:
        """Keep several batches of steps in flight; see `AsyncSandboxClient.pipeline`."""
        return StepPipeline(self._client.pipeline(max_items), self._wait)

    def verify(
        self,
        episode_ids: Sequence[str],
        *,
        run_oracle: bool = False,
        oracle_seeds: Sequence[int] = (),
        trials: Sequence[Trial] = (),
        timeout_s: float = 0.0,
    ) -> list[Verdict]:
        """Replay transcripts; see `AsyncSandboxClient.verify`."""
        return self._wait(
            self._client.verify(
                episode_ids,
                run_oracle=run_oracle,
                oracle_seeds=oracle_seeds,
                trials=trials,
                timeout_s=timeout_s,
            )
        )

    def fork(self, episode_id: str, copies: int) -> list[str]:
        """Copy a running episode; see `AsyncSandboxClient.fork`."""
        return self._wait(self._client.fork(episode_id, copies))

    def close_episodes(self, episode_ids: Sequence[str]) -> int:
        """End episodes; see `AsyncSandboxClient.close_episodes`."""
        return self._wait(self._client.close_episodes(episode_ids))

    def server_info(self) -> ServerInfo:
        """What the server is and does; see `AsyncSandboxClient.server_info`."""
        return self._wait(self._client.server_info())
