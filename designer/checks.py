"""What the gates ask of plays and verdicts, as plain functions that refuse or return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sandbox_api.types import OracleResult, Outcome, Program, Verdict

from designer.drafts import Draft, Finding, GateReport, Reason
from designer.hints import HintError, check_hint_against
from designer.plays import Play


@dataclass(frozen=True)
class GateSettings:
    """How hard the gates look.

    Attributes:
        starts: Seeds of gate 6; their episodes share the fuzzed actions of gate 4.
        replay_seeds: Episodes replayed by gate 5 and oracle plays of gate 7.
        replay_turns: Random actions in such an episode before it is replayed.
        min_oracle_steps: Shortest oracle play, where the turn cap allows as many.
        win_reward: Last reward from which a terminated episode counts as won.
        blind_plays: Plays of each of the constant and the random policies.
        max_blind_win_rate: Largest share of them that may win.
        service_retries: Times a draft is judged again after the service failed.
        concurrent_loads: Programs registered at once.
        drafts_at_once: Drafts judged together; bounds the episodes alive to this many times
            the larger of `blind_plays` and `starts`.
        first_seed: Seeds of the gates start here.
    """

    starts: int = 8
    replay_seeds: int = 4
    replay_turns: int = 3
    min_oracle_steps: int = 3
    win_reward: float = 0.9
    blind_plays: int = 20
    max_blind_win_rate: float = 0.05
    service_retries: int = 2
    concurrent_loads: int = 8
    drafts_at_once: int = 32
    first_seed: int = 10_000


class RefusedError(Exception):
    """A gate refuses the draft.

    Attributes:
        timed_out: A time limit was the reason, which a busy machine may have been, too.
    """

    def __init__(self, reason: Reason, detail: str, *, timed_out: bool = False) -> None:
        super().__init__(detail)
        self.reason = reason
        self.timed_out = timed_out


class TooSlowError(Exception):
    """A time limit ran out for the first time; the draft is judged once more."""


@dataclass
class Subject:
    """A draft on its way through the gates.

    Attributes:
        fault: What kept the service from a verdict; the draft waits for another try.
        patient: Whether a time limit is held against the machine and not the program.
        starts: Distinct first observations seen.
    """

    draft: Draft
    program: Program | None = None
    reason: Reason | None = None
    detail: str = ""
    fault: Exception | None = None
    patient: bool = False
    cost_s: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    oracle_steps: int = 0

    @property
    def open(self) -> bool:
        return self.reason is None and self.fault is None

    @property
    def program_id(self) -> str:
        assert self.program is not None
        return self.program.program_id

    def apply(self, check: Callable[..., None], *arguments: object) -> None:
        """Run a check on an open draft and keep its refusal."""
        if not self.open:
            return
        try:
            check(*arguments)
        except RefusedError as refused:
            if refused.timed_out and self.patient:
                self.fault = TooSlowError(str(refused))
            else:
                self.reason, self.detail = refused.reason, str(refused)

    def spend(self, gate: str, seconds: float) -> None:
        self.cost_s[gate] = self.cost_s.get(gate, 0.0) + seconds

    def report(self) -> GateReport:
        reason, detail = self.reason, self.detail
        if reason is None and self.fault is not None:
            reason = Reason.UNJUDGED
            detail = f"the sandbox service failed: {type(self.fault).__name__}: {self.fault}"
        return GateReport(
            draft=self.draft,
            reason=str(reason or Reason.OK),
            detail=detail,
            program=self.program,
            cost_s=dict(self.cost_s),
            env_id=self.program.program_id if self.program else "",
            counts=dict(self.counts),
            oracle_steps=self.oracle_steps,
            finding=Finding(self.reason, self.detail) if self.reason is not None else None,
        )


def check_load(program: Program) -> None:
    """Gate 3, first half: the program loads inside its limits.

    Raises:
        RefusedError: LOAD.
    """
    if program.outcome is not Outcome.COMPLETED:
        message = f"{program.outcome.name}: {program.diagnostic or ''}"
        raise RefusedError(Reason.LOAD, message, timed_out=_timed_out(program.outcome))


def _timed_out(outcome: Outcome | None) -> bool:
    return outcome is Outcome.TIME_LIMIT


def check_plays(plays: Sequence[Play]) -> None:
    """Gates 3 and 4: text within its cap, rewards within [-1, 1], and no action fails.

    Raises:
        RefusedError: CONTRACT or FUZZ.
    """
    for play in plays:
        _check_contract(play)
    for play in plays:
        if play.failed:
            raise RefusedError(Reason.FUZZ, play.failure(), timed_out=_timed_out(play.outcome))


def _check_contract(play: Play) -> None:
    """What gate 3 asks of a play: text within its cap, rewards within [-1, 1]."""
    if play.failed and not play.observations:
        message = f"reset failed: {play.failure()}"
        raise RefusedError(Reason.CONTRACT, message, timed_out=_timed_out(play.outcome))
    if not play.observations[0].strip():
        raise RefusedError(Reason.CONTRACT, f"seed {play.seed}: the first observation is empty")
    if play.cut_bytes:
        message = f"seed {play.seed}: an observation is {play.cut_bytes} bytes over its cap"
        raise RefusedError(Reason.CONTRACT, message)
    for reward in play.rewards:
        if not -1.0 <= reward <= 1.0:
            message = f"seed {play.seed}: reward {reward} is outside [-1, 1]"
            raise RefusedError(Reason.CONTRACT, message)


def check_reproduced(verdicts: Sequence[Verdict]) -> None:
    """Gate 5: a replay in a fresh process saw the same.

    Raises:
        RefusedError: NONDETERMINISTIC.
    """
    for verdict in verdicts:
        if verdict.reproduced:
            continue
        where = verdict.divergence
        if where is not None:
            step = "the reset" if where.step_index < 0 else f"step {where.step_index}"
            both = f"{where.recorded[:80]!r}, then {where.replayed[:80]!r}"
            message = f"{where.field} of {step} differed: {both}"
        else:
            message = f"the replay failed: {verdict.diagnostic or ''}"
        slow = Outcome.TIME_LIMIT.name in message
        raise RefusedError(Reason.NONDETERMINISTIC, message, timed_out=slow)


def check_starts(starts: int, seeds: int, oracles: Sequence[OracleResult]) -> None:
    """Gate 6: at least two distinct starts.

    Starts differ by their first observation or, where a game hides its state and opens every
    seed with the same words, by the oracle's play.

    Raises:
        RefusedError: SAME_START.
    """
    if starts < 2 and len({tuple(oracle.actions) for oracle in oracles}) < 2:
        message = f"one first observation in {seeds} seeds, and one solution"
        raise RefusedError(Reason.SAME_START, message)


def check_oracle(oracles: Sequence[OracleResult], settings: GateSettings, max_turns: int) -> int:
    """Gate 7: the program's own solution wins on every seed, and takes a few steps.

    Returns:
        Actions of the shortest solution.

    Raises:
        RefusedError: ORACLE.
    """
    for oracle in oracles:
        if oracle.outcome is not Outcome.COMPLETED:
            what = f"{oracle.outcome.name}: {oracle.diagnostic or ''}"
            slow = _timed_out(oracle.outcome)
            raise RefusedError(Reason.ORACLE, f"solution() failed: {what}", timed_out=slow)
        if not oracle.terminated or (oracle.final_reward or 0.0) < settings.win_reward:
            end = "terminated" if oracle.terminated else "not terminated"
            what = f"{len(oracle.actions)} actions, last reward {oracle.final_reward}, {end}"
            raise RefusedError(Reason.ORACLE, f"solution() does not win: {what}")
    steps = min(len(oracle.actions) for oracle in oracles)
    needed = min(settings.min_oracle_steps, max_turns)
    if steps < needed:
        raise RefusedError(Reason.ORACLE, f"solution() wins in {steps} steps, needs {needed}")
    return steps


def check_hint(hint: str | None, oracles: Sequence[OracleResult]) -> None:
    """The hint does not give the answer.

    Raises:
        RefusedError: HINT.
    """
    if hint is None:
        return
    try:
        check_hint_against(hint, [oracle.actions for oracle in oracles])
    except HintError as error:
        raise RefusedError(Reason.HINT, str(error)) from None


def check_blind(what: str, plays: Sequence[Play], settings: GateSettings) -> None:
    """Gate 8: a policy that understands nothing practically never wins.

    Raises:
        RefusedError: BLIND_WIN.
    """
    wins = sum(play.won(settings.win_reward) for play in plays)
    if wins > settings.max_blind_win_rate * len(plays):
        raise RefusedError(Reason.BLIND_WIN, f"{what} won {wins} of {len(plays)} plays")
