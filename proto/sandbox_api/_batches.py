"""Reset, Step and Verify as batches: what each sends, accepts and recovers from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from sandbox_api import _convert
from sandbox_api._dispatch import is_worth_waiting
from sandbox_api._ledger import EpisodeRecord, Ledger
from sandbox_api.errors import (
    EpisodeLostError,
    EpisodeNotFoundError,
    ProgramNotFoundError,
    SandboxError,
    error_from_item,
)
from sandbox_api.types import (
    Episode,
    Limits,
    Outcome,
    ResetItem,
    StepItem,
    StepResult,
    Trial,
    Verdict,
)
from sandbox_api.v1 import sandbox_pb2 as pb

# Takes the server's id that was lost, by the caller's id; returns what went wrong, by the
# caller's id.
Rebuild = Callable[[dict[str, str]], Awaitable[dict[str, SandboxError]]]
# The same for programs that the server forgot.
Reregister = Callable[[set[str]], Awaitable[dict[str, SandboxError]]]

# Seconds more on a call's deadline for each of its items: a full server works a batch off
# in turn, and a reset costs it several milliseconds of CPU.
QUEUE_S_PER_ITEM = 0.02

_COMPLETED = Outcome.COMPLETED


class Deadlines:
    """Call deadlines: above any time the server's own deadlines can take."""

    def __init__(self, margin_s: float, default: Limits) -> None:
        self._margin_s = margin_s
        self._default = default

    def limits(self, limits: Limits | None) -> Limits:
        return limits or self._default

    def step_s(self, timeout_s: float, limits: Limits | None) -> float:
        return timeout_s or self.limits(limits).step_timeout_s

    def replay_s(self, timeout_s: float, limits: Limits | None, calls: int) -> float:
        """Of one fresh process that makes `calls` calls; a lifetime bounds it."""
        limits = self.limits(limits)
        calls_s = (timeout_s or limits.step_timeout_s) * calls
        return limits.load_timeout_s + min(calls_s, limits.lifetime_s or calls_s)

    def call_s(self, longest_s: float, items: int) -> float:
        return longest_s + self._margin_s + QUEUE_S_PER_ITEM * items


class _IndexedBatch:
    """What steps and verifications share: recovery of lost episodes, and its absence."""

    def __init__(self, ledger: Ledger, rebuild: Rebuild | None) -> None:
        self._ledger = ledger
        self._rebuild = rebuild
        self._sent_ids: dict[int, str] = {}

    def _episode_id(self, index: int) -> str:
        raise NotImplementedError

    async def recover(self, failed: dict[int, SandboxError]) -> dict[int, SandboxError]:
        hopeless: dict[int, SandboxError] = {}
        lost: dict[str, str] = {}
        lost_indices: list[int] = []
        for index, error in failed.items():
            if is_worth_waiting(error):
                continue
            episode_id = self._episode_id(index)
            if (
                self._rebuild is not None
                and isinstance(error, EpisodeLostError | EpisodeNotFoundError)
                and self._ledger.get(episode_id) is not None
            ):
                lost[episode_id] = self._sent_ids[index]
                lost_indices.append(index)
            else:
                hopeless[index] = error
        if lost and self._rebuild is not None:
            errors = await self._rebuild(lost)
            for index in lost_indices:
                if self._episode_id(index) in errors:
                    hopeless[index] = errors[self._episode_id(index)]
        return hopeless


class StepBatch(_IndexedBatch):
    """Steps of one Step call."""

    def __init__(
        self,
        items: Sequence[StepItem],
        deliver: Callable[[int, StepResult], None],
        *,
        stub: Any,
        ledger: Ledger,
        deadlines: Deadlines,
        rebuild: Rebuild | None,
    ) -> None:
        super().__init__(ledger, rebuild)
        self._items = items
        self._deliver = deliver
        self._stub = stub
        self._deadlines = deadlines

    def _episode_id(self, index: int) -> str:
        return self._items[index].episode_id

    def call(self, pending: Sequence[int]) -> Any:
        longest_s = 0.0
        request = pb.StepRequest()
        add = request.items.add
        get = self._ledger.get
        step_s = self._deadlines.step_s
        for index in pending:
            item = self._items[index]
            record = get(item.episode_id)
            if record is None:
                server_id, timeout_s = item.episode_id, step_s(item.timeout_s, None)
            else:
                server_id, timeout_s = record.server_id, step_s(item.timeout_s, record.limits)
            self._sent_ids[index] = server_id
            if timeout_s > longest_s:
                longest_s = timeout_s
            add(
                episode_id=server_id,
                step_index=item.step_index,
                action=item.action,
                timeout_s=item.timeout_s,
            )
        return self._stub.Step(request, timeout=self._deadlines.call_s(longest_s, len(pending)))

    def accept(self, index: int, message: pb.StepResult) -> SandboxError | None:
        item = self._items[index]
        if not message.outcome:
            return error_from_item(message.error)
        result = _convert.step_result(item.episode_id, message)
        if result.outcome is _COMPLETED and self._rebuild is not None:
            record = self._ledger.get(item.episode_id)
            if record is not None:
                record.append(item, result)
        self._deliver(index, result)
        return None

    def fail(self, index: int, error: SandboxError) -> None:
        item = self._items[index]
        self._deliver(index, StepResult(item.episode_id, item.step_index, None, error=error))


class VerifyBatch(_IndexedBatch):
    """Episodes of one Verify call."""

    def __init__(
        self,
        episode_ids: Sequence[str],
        deliver: Callable[[int, Verdict], None],
        *,
        run_oracle: bool,
        oracle_seeds: Sequence[int],
        trials: Sequence[Trial],
        timeout_s: float,
        stub: Any,
        ledger: Ledger,
        deadlines: Deadlines,
        rebuild: Rebuild | None,
    ) -> None:
        super().__init__(ledger, rebuild)
        self._episode_ids = episode_ids
        self._deliver = deliver
        self._run_oracle = run_oracle
        self._oracle_seeds = oracle_seeds
        self._trials = [pb.Trial(seed=trial.seed, actions=trial.actions) for trial in trials]
        self._timeout_s = timeout_s
        self._stub = stub
        self._deadlines = deadlines

    def _episode_id(self, index: int) -> str:
        return self._episode_ids[index]

    def call(self, pending: Sequence[int]) -> Any:
        longest_s = 0.0
        items = []
        for index in pending:
            record = self._ledger.get(self._episode_ids[index])
            limits = self._deadlines.limits(record.limits if record else None)
            server_id = record.server_id if record else self._episode_ids[index]
            self._sent_ids[index] = server_id
            # The transcript is at most max_steps long, and so is each of the oracle's plays.
            plays = 1 + self._run_oracle + len(self._oracle_seeds) + len(self._trials)
            calls = (limits.max_steps + 2) * plays
            longest_s = max(longest_s, self._deadlines.replay_s(self._timeout_s, limits, calls))
            items.append(
                pb.VerifyItem(
                    episode_id=server_id,
                    run_oracle=self._run_oracle,
                    oracle_seeds=self._oracle_seeds,
                    trials=self._trials,
                    timeout_s=self._timeout_s,
                )
            )
        return self._stub.Verify(
            pb.VerifyRequest(items=items),
            timeout=self._deadlines.call_s(longest_s, len(pending)),
        )

    def accept(self, index: int, message: pb.Verdict) -> SandboxError | None:
        if message.HasField("error"):
            return error_from_item(message.error)
        self._deliver(index, _convert.verdict(self._episode_ids[index], message))
        return None

    def fail(self, index: int, error: SandboxError) -> None:
        self._deliver(index, Verdict(self._episode_ids[index], error=error))


class ResetBatch:
    """Episodes started by one Reset call."""

    def __init__(
        self,
        items: Sequence[ResetItem],
        deliver: Callable[[int, Episode], None],
        *,
        stub: Any,
        ledger: Ledger,
        deadlines: Deadlines,
        reregister: Reregister | None,
    ) -> None:
        self._items = items
        self._deliver = deliver
        self._stub = stub
        self._ledger = ledger
        self._deadlines = deadlines
        self._reregister = reregister

    def call(self, pending: Sequence[int]) -> Any:
        longest_s = 0.0
        request = pb.ResetRequest()
        for index in pending:
            item = self._items[index]
            limits = self._ledger.limits_of(item.program_id)
            calls = 1 + len(item.prefix_actions)
            longest_s = max(longest_s, self._deadlines.replay_s(item.timeout_s, limits, calls))
            request.items.append(_convert.reset_item_to_proto(item))
        return self._stub.Reset(request, timeout=self._deadlines.call_s(longest_s, len(pending)))

    def accept(self, index: int, message: pb.ResetResult) -> SandboxError | None:
        if not message.outcome:
            return error_from_item(message.error)
        self._deliver(index, _convert.episode(message))
        return None

    async def recover(self, failed: dict[int, SandboxError]) -> dict[int, SandboxError]:
        hopeless: dict[int, SandboxError] = {}
        forgotten: dict[int, str] = {}
        for index, error in failed.items():
            program_id = self._items[index].program_id
            if (
                self._reregister is not None
                and isinstance(error, ProgramNotFoundError)
                and program_id in self._ledger.programs
            ):
                forgotten[index] = program_id
            elif isinstance(error, EpisodeLostError) and self._reregister is not None:
                # Its process went before it had a result: it is simply started again.
                continue
            elif not is_worth_waiting(error):
                hopeless[index] = error
        if forgotten and self._reregister is not None:
            errors = await self._reregister(set(forgotten.values()))
            for index, program_id in forgotten.items():
                if program_id in errors:
                    hopeless[index] = errors[program_id]
        return hopeless

    def fail(self, index: int, error: SandboxError) -> None:
        self._deliver(index, Episode("", None, error=error))


def rebuild_item(record: EpisodeRecord) -> ResetItem:
    """The reset that replays a recorded episode up to now."""
    reset = record.reset
    return ResetItem(
        program_id=reset.program_id,
        seed=reset.seed,
        options=reset.options,
        max_turns=reset.max_turns,
        prefix_actions=tuple(record.actions),
        timeout_s=reset.timeout_s,
    )
