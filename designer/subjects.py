"""A draft on its way through the gates, with what they learnt of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandbox_api.errors import UnavailableError
from sandbox_api.types import OracleResult, Outcome, Program, Trial, TrialResult, Verdict

from designer.checks import check_plays
from designer.drafts import Draft, Finding, GateReport, Reason
from designer.player import Player
from designer.plays import Play, count_work
from designer.probes import Policy, replayed
from designer.settings import GateSettings

# Of one call, as servers have it.
MAX_TRIALS = 100


class TooSlowError(Exception):
    """A time limit ran out for the first time; the draft is judged once more."""


class ServiceFaultError(Exception):
    """The service failed an item, so that the gate has no verdict.

    Attributes:
        fault: What it said.
    """

    def __init__(self, fault: Exception) -> None:
        super().__init__(str(fault))
        self.fault = fault


class SharedClock:
    """Wall time, each moment of it shared out evenly among those at work then.

    So the costs of drafts that are judged side by side add up to the time that passed.
    """

    def __init__(self) -> None:
        self._share_s = 0.0
        self._working = 0
        self._at = time.perf_counter()

    def _read(self) -> float:
        now = time.perf_counter()
        if self._working:
            self._share_s += (now - self._at) / self._working
        self._at = now
        return self._share_s

    @contextmanager
    def charge(self, costs_s: dict[str, float], name: str) -> Iterator[None]:
        """Add the share of whoever works inside to its costs."""
        began = self._read()
        self._working += 1
        try:
            yield
        finally:
            spent = self._read() - began
            self._working -= 1
            costs_s[name] = costs_s.get(name, 0.0) + spent


# Seeds that training draws from.
SEEDS = 1_000_000


@dataclass
class Subject:
    """A draft on its way through the gates, with what they learnt of it.

    Attributes:
        rng_seed: Of the random policies.
        fault: What kept the service from a verdict; the draft waits for another try.
        patient: Whether a time limit is held against the machine and not the program.
        runtime: Runtime of the server.
        fuzzed: Plays of gate 4, each on a seed of its own, from `first_seed` on.
        fuzzed_at: When they were played, in seconds of `time.monotonic`.
        guessed: Random plays, on seeds from `blind_seed` on.
        replayed: Plays with their verdicts of gate 5.
        oracles: Plays of solution() by seed, in the order of the seeds.
        open_plays: Plays whose episodes are to be closed.
    """

    draft: Draft
    player: Player
    settings: GateSettings
    rng_seed: int = 0
    runtime: str = ""
    program: Program | None = None
    finding: Finding | None = None
    fault: Exception | None = None
    patient: bool = False
    cost_s: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    oracle_steps: int = 0
    fuzzed: list[Play] = field(default_factory=list)
    fuzzed_at: float = 0.0
    guessed: list[Play] = field(default_factory=list)
    replayed: list[tuple[Play, Verdict]] = field(default_factory=list)
    oracles: dict[int, OracleResult] = field(default_factory=dict)
    open_plays: list[Play] = field(default_factory=list)

    @property
    def source(self) -> str:
        return self.draft.source or ""

    @property
    def max_turns(self) -> int:
        return self.draft.request.max_turns

    @property
    def program_id(self) -> str:
        assert self.program is not None
        return self.program.program_id

    @property
    def first_seed(self) -> int:
        """Where the gates' seeds begin.

        Among those that episodes are trained on, and elsewhere for each source: a program that
        does well on the seeds of its gates alone would have to know them as it is written.
        """
        return random.Random(f"{self.rng_seed} {self.program_id} gates").randrange(SEEDS)

    @property
    def blind_seed(self) -> int:
        """The first seed of plays that understand nothing, apart from those of the starts."""
        return self.first_seed + 1_000

    @property
    def openings(self) -> dict[int, str]:
        """First observations by seed."""
        plays = [*self.fuzzed, *self.guessed]
        return {play.seed: play.observations[0] for play in plays if play.observations}

    def begin_try(self, patient: bool) -> None:
        """Forget what an earlier try has seen."""
        self.patient, self.fault = patient, None
        self.fuzzed, self.guessed, self.replayed, self.oracles = [], [], [], {}

    def rng(self, seed: int) -> random.Random:
        """A generator that depends on program and seed alone."""
        return random.Random(f"{self.rng_seed} {self.program_id} {seed}")

    async def play(self, plans: Sequence[tuple[int, Policy]]) -> list[Play]:
        """Play an episode for each (seed, policy), and ask of all what gates 3 and 4 ask.

        The episodes stay open until they are closed, or the draft is judged.

        Raises:
            RefusedError: CONTRACT or FUZZ.
            SandboxError: If the service cannot be reached.
            ServiceFaultError: If it failed one of them, and the program failed none.
        """
        plays = await self.rebuild(plans)
        check_plays([play for play in plays if play.fault is None])
        for play in plays:
            if play.fault is not None:
                raise ServiceFaultError(play.fault)
        return plays

    async def rebuild(self, plans: Sequence[tuple[int, Policy]]) -> list[Play]:
        """Play an episode for each (seed, policy), and ask nothing of them.

        Raises:
            SandboxError: If the service cannot be reached.
        """
        plays = [Play(self.program_id, seed, self.max_turns, policy) for seed, policy in plans]
        self.open_plays += plays
        try:
            await self.player.play(plays)
        finally:
            self.counts.update(count_work(plays))
        return plays

    async def verify(
        self,
        plays: Sequence[Play],
        *,
        run_oracle: bool = False,
        oracle_seeds: Sequence[int] = (),
        trials: Sequence[Trial] = (),
    ) -> list[Verdict]:
        """Have plays replayed.

        Raises:
            SandboxError: If the service cannot be reached.
            ServiceFaultError: If it failed one of them.
        """
        self.counts["verdicts"] += len(plays)
        verdicts = await self.player.verify(
            plays, run_oracle=run_oracle, oracle_seeds=oracle_seeds, trials=trials
        )
        for verdict in verdicts:
            if verdict.error is not None:
                raise ServiceFaultError(verdict.error)
        return verdicts

    async def try_plays(self, play: Play, trials: Sequence[Trial]) -> list[TrialResult]:
        """Try plays in one process, as many at a time as the server takes.

        Args:
            play: An open play, which is replayed on the way.
            trials: What to try; at least one.

        Returns:
            At least one result; the last may be of a trial that failed, after which none follow.

        Raises:
            SandboxError, ServiceFaultError: If the service failed.
        """
        (verdict,) = await self.verify([play], trials=trials[:MAX_TRIALS])
        self.counts["trials"] += len(verdict.trials)
        if not verdict.trials:
            raise ServiceFaultError(UnavailableError("the server tries no plays; use a newer one"))
        return list(verdict.trials)

    async def play_winners(self, trials: Sequence[Trial]) -> list[Play | None]:
        """Try plays in one process, and play those that win there in episodes of their own.

        What a program keeps from one play to the next so refuses nobody. A trial that came to
        no result is played, too.

        Returns:
            The play of each trial; None for one that did not win.

        Raises:
            RefusedError: CONTRACT or FUZZ.
            SandboxError, ServiceFaultError: If the service failed.
        """
        results: list[TrialResult | None] = list(await self.try_plays(self.guessed[0], trials))
        results += [None] * (len(trials) - len(results))
        winners = [
            index
            for index, result in enumerate(results)
            if result is None
            or result.outcome is not Outcome.COMPLETED
            or (result.terminated and (result.final_reward or 0.0) >= self.settings.win_reward)
        ]
        chosen = [trials[index] for index in winners]
        plays = await self.play([(trial.seed, replayed(trial.actions)) for trial in chosen])
        by_index = dict(zip(winners, plays, strict=True))
        return [by_index.get(index) for index in range(len(trials))]

    async def close(self, plays: Sequence[Play] | None = None) -> None:
        """End episodes: those of these plays, or all."""
        closing = self.open_plays if plays is None else list(plays)
        done = {id(play) for play in closing}
        self.open_plays = [play for play in self.open_plays if id(play) not in done]
        await self.player.close(closing)

    def report(self) -> GateReport:
        reason, detail = Reason.OK, ""
        if self.finding is not None:
            reason, detail = self.finding.reason, self.finding.message
        elif self.fault is not None:
            reason = Reason.UNJUDGED
            detail = f"the sandbox service failed: {type(self.fault).__name__}: {self.fault}"
        return GateReport(
            draft=self.draft,
            reason=str(reason),
            detail=detail,
            program=self.program,
            cost_s=dict(self.cost_s),
            env_id=self.program.program_id if self.program else "",
            counts=dict(self.counts),
            oracle_steps=self.oracle_steps,
            finding=self.finding,
        )
