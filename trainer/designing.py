"""One cycle of designing: enough environments for a cycle's slots, whoever writes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from trainer.budget import BudgetSpentError
from trainer.config import DesignConfig
from trainer.environments import ActiveEnvironment, DesignSample
from trainer.protocols import Designer, Progress, Writer, Written


@dataclass
class DesignOutcome:
    """What a cycle of designing gave.

    Attributes:
        gates: Drafts by reason code, `OK` and repairs included.
        drafts: First drafts asked for and written.
        mended: Environments that passed after a repair.
        costs: What the writer cost since the run began, by metric.
    """

    environments: list[ActiveEnvironment] = field(default_factory=list)
    gates: Counter[str] = field(default_factory=Counter)
    drafts: int = 0
    mended: int = 0
    costs: dict[str, float] = field(default_factory=dict)


class DesignRound:
    """Has environments written until enough have passed the gates.

    Args:
        designer: Asks, judges and remembers.
        writer: The trained model, or an endpoint.
        config: How many, how often, and which completions train.
    """

    def __init__(self, designer: Designer, writer: Writer, config: DesignConfig) -> None:
        self._designer = designer
        self._writer = writer
        self._config = config
        # Shows how far it is, where somebody looks.
        self.progress: Progress | None = None

    async def run(self, step: int, max_turns: int) -> DesignOutcome:
        """Fill the cycle's slots, in at most `attempts` rounds.

        Args:
            step: Training step, from 1.
            max_turns: Turn cap in force.

        Raises:
            BudgetSpentError: If the budget reaches for no environment at all.
        """
        outcome = DesignOutcome()
        self._designer.max_turns = max_turns
        for _ in range(self._config.attempts):
            missing = self._config.environments - len(outcome.environments)
            if missing <= 0:
                break
            unanswered = await self._attempt(missing, step, outcome)
            if unanswered and not outcome.environments:
                raise BudgetSpentError(
                    "the endpoint's budget is spent, and the run stops here: go on with "
                    "--resume and a higher endpoint.budget_tokens or endpoint.budget_money"
                )
            if unanswered:
                break
        outcome.costs = self._writer.metrics()
        return outcome

    async def _attempt(self, n: int, step: int, outcome: DesignOutcome) -> int:
        """Ask for n more; returns how many the budget did not reach for."""
        written = await self._designer.write(self._writer, n, step, self.progress)
        taken = {environment.env_id for environment in outcome.environments}
        outcome.drafts += len(written.written)
        outcome.gates += written.reasons
        outcome.mended += written.mended
        for entry in written.written:
            # The same program twice in a cycle is one environment: its plays would be pooled.
            if entry.report.passed and entry.report.env_id not in taken:
                taken.add(entry.report.env_id)
                outcome.environments.append(
                    self._environment(entry, len(outcome.environments), step)
                )
        return written.unanswered

    def _environment(self, entry: Written, slot: int, step: int) -> ActiveEnvironment:
        report = entry.report
        draft = report.draft
        return ActiveEnvironment(
            env_id=report.env_id,
            slot=slot,
            skill=draft.request.skill,
            family=draft.family,
            source=draft.source,
            hint=draft.hint or "",
            max_turns=draft.request.max_turns,
            program_id=report.program.program_id,
            limits=report.program.limits,
            created_step=step,
            samples=self._trained(list(entry.samples)),
        )

    def _trained(self, samples: list[DesignSample | None]) -> list[DesignSample]:
        """The completions that the environment's reward trains."""
        chosen = {"first": samples[:1], "last": samples[-1:], "all": samples}
        return [s for s in chosen[self._config.repair_trains] if s is not None]
