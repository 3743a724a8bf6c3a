"""Gates 3 to 8: what a program does when it is loaded, played, replayed and solved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import zip_longest

from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits, OracleResult, Outcome, Trial

from designer.checks import (
    check_answered,
    check_blind,
    check_load,
    check_oracle,
    check_reproduced,
    check_starts,
)
from designer.drafts import Reason
from designer.findings import RefusedError, refusal, shown_by
from designer.inspection import inspect_program, reads_clock
from designer.plays import Play
from designer.probes import (
    Policy,
    constant_actions,
    fuzz_actions,
    guessing,
    replayed,
)
from designer.subjects import Subject


class InspectGate:
    """Gates 1 and 2: parses, and imports what the runtime offers."""

    name = "inspect"

    async def judge(self, subject: Subject) -> None:
        inspect_program(subject.source, subject.runtime)


class LoadGate:
    """Gate 3, first half: the program loads inside its limits.

    Args:
        client: Registers it.
        limits: Of its episodes; None means the server's defaults.
    """

    name = "load"

    def __init__(self, client: AsyncSandboxClient, limits: Limits | None) -> None:
        self._client = client
        self._limits = limits

    async def judge(self, subject: Subject) -> None:
        subject.program = await self._client.register_program(
            subject.source, runtime=subject.runtime, limits=self._limits
        )
        check_load(subject.program)


class FuzzGate:
    """Gate 4, what gate 3 asks of every play, and the starts for gate 6."""

    name = "fuzz"

    async def judge(self, subject: Subject) -> None:
        settings = subject.settings
        assert subject.program is not None
        actions = fuzz_actions(subject.program.limits.max_action_bytes)
        seeds = range(subject.first_seed, subject.first_seed + settings.starts)
        # The starts share the actions; an episode that ends early leaves its share over. The
        # first goes ahead alone, with the huge ones: a program that hangs keeps a CPU busy for
        # as long as its limits let it, and so one.
        first, *others = _shares(actions, seeds)
        plays = await subject.play([first])
        plays += await subject.play(others)
        subject.fuzzed, subject.fuzzed_at = plays, time.monotonic()
        await subject.close(plays[settings.replays :])
        # A game that ends at any mistake would take an episode for each of the others.
        rest = [Trial(subject.first_seed, (action,)) for action in actions]
        if rest:
            tried = await subject.try_plays(plays[0], rest)
            doubted = [
                trial
                for trial, result in zip_longest(rest, tried)
                if result is None
                or result.outcome is not Outcome.COMPLETED
                or abs(result.final_reward or 0.0) > 1.0
            ]
            await subject.play([(trial.seed, replayed(trial.actions)) for trial in doubted])


class ReplayGate:
    """Gate 5: fuzzed and random episodes replay alike in a fresh process."""

    name = "replay"

    async def judge(self, subject: Subject) -> None:
        settings = subject.settings
        count = settings.replays + settings.oracles
        subject.guessed = await subject.play(_random_plans(subject, range(count)))
        if reads_clock(subject.source):
            # Within one second most clocks show the same.
            passed_s = time.monotonic() - subject.fuzzed_at
            await asyncio.sleep(max(0.0, settings.clock_s - passed_s))
        chosen = subject.fuzzed[: settings.replays] + subject.guessed[: settings.replays]
        # One goes ahead, as in gate 4: its verify() may hang, too.
        verdicts = await subject.verify(chosen[:1])
        check_answered(chosen[:1], verdicts)
        verdicts += await subject.verify(chosen[1:])
        check_reproduced(chosen, verdicts)
        check_answered(chosen, verdicts)
        subject.replayed = list(zip(chosen, verdicts, strict=True))


class OracleGate:
    """Gates 6 and 7: starts differ, and the program's own solution wins on every seed."""

    name = "oracle"

    async def judge(self, subject: Subject) -> None:
        settings = subject.settings
        assert subject.program is not None
        if not subject.program.has_solution:
            advice = "Define solution(self): the list of actions that wins from right after reset."
            raise refusal(
                Reason.ORACLE, "the program has no solution()", advice=advice, phase="solution"
            )
        plays = subject.guessed[settings.replays :]
        count = settings.oracle_seeds - settings.oracles
        seeds = range(subject.first_seed, subject.first_seed + count)
        # One goes ahead, with the many seeds, as in gate 4: solution() may hang.
        verdicts = await subject.verify(plays[:1], run_oracle=True, oracle_seeds=seeds)
        swept = dict(zip(seeds, verdicts[0].oracles, strict=False))
        if len(swept) == len(seeds):
            verdicts += await subject.verify(plays[1:], run_oracle=True)
        plays = plays[: len(verdicts)]
        check_reproduced(plays, verdicts)
        subject.replayed += zip(plays, verdicts, strict=True)
        fresh = {
            play.seed: verdict.oracle
            for play, verdict in zip(plays, verdicts, strict=True)
            if verdict.oracle is not None
        }
        subject.oracles = {**fresh, **swept}
        try:
            check_starts(subject.fuzzed, list(subject.oracles.values()))
            subject.oracle_steps = check_oracle(subject.oracles, settings, subject.max_turns)
        except RefusedError as refused:
            await self._show(subject, refused)
            raise

    async def _show(self, subject: Subject, refused: RefusedError) -> None:
        """Put the solution's play into the finding: a verdict tells its actions only."""
        seed = refused.finding.seed
        oracle: OracleResult | None = subject.oracles.get(seed) if seed is not None else None
        if seed is None or oracle is None or refused.finding.reason is not Reason.ORACLE:
            return
        actions = oracle.actions if oracle.outcome is Outcome.COMPLETED else ()
        (play,) = await subject.rebuild([(seed, replayed(actions))])
        if play.fault is None:
            refused.finding = shown_by(refused.finding, play)


class BlindGate:
    """Gate 8: doing nothing, a constant and random actions practically never win.

    Random plays that answer what they see were played for gate 5; the others are written
    beforehand, so that they can be tried in one process. Each policy plays in stages, the later
    ones only where the earlier left a doubt.
    """

    name = "blind"

    async def judge(self, subject: Subject) -> None:
        settings = subject.settings
        *_, count = settings.blind_stages
        scripts = {
            "a constant action": _constant_scripts(subject, count),
            "random actions": _random_scripts(subject, count - len(subject.guessed)),
            "doing nothing": _nothing_scripts(subject),
        }
        won: dict[str, list[Play]] = {what: [] for what in scripts}
        won["random actions"] = [p for p in subject.guessed if p.won(settings.win_reward)]
        played = {what: 0 for what in scripts}
        played["random actions"] = len(subject.guessed)
        doubted = list(scripts)
        for stage in settings.blind_stages:
            wanted = [
                (what, scripts[what].pop(0))
                for what in doubted
                for _ in range(min(stage - played[what], len(scripts[what])))
            ]
            plays = await subject.play_winners([trial for _, trial in wanted])
            for (what, _), play in zip(wanted, plays, strict=True):
                played[what] += 1
                if play is not None and play.won(settings.win_reward):
                    won[what].append(play)
            doubted = [
                what
                for what in doubted
                if check_blind(what, won[what], played[what], settings, is_last=not scripts[what])
            ]
            if not doubted:
                return


def _shares(actions: list[str], seeds: Sequence[int]) -> list[tuple[int, Policy]]:
    """Policies that take the actions off the list, each at most its share."""
    share = -(-len(actions) // len(seeds))

    def taking() -> Policy:
        left = share

        def policy(_: str, __: int) -> str | None:
            nonlocal left
            if not left or not actions:
                return None
            left -= 1
            return actions.pop(0)

        return policy

    return [(seed, taking()) for seed in seeds]


def _nothing_scripts(subject: Subject) -> list[Trial]:
    first = subject.blind_seed
    return [
        Trial(first + number, (action,) * subject.max_turns)
        for number, action in enumerate(("", "\\boxed{}"))
    ]


def _constant_scripts(subject: Subject, count: int) -> list[Trial]:
    opening = subject.fuzzed[0]
    actions = constant_actions(opening.observations[0], opening.listed)
    taken = [actions[i % len(actions)] for i in range(count)]
    # Shuffled: a program may make seeds of one parity easy, and must not meet the same action
    # on all of those.
    first = subject.blind_seed
    subject.rng(first).shuffle(taken)
    return [
        Trial(first + number, (action,) * subject.max_turns) for number, action in enumerate(taken)
    ]


def _random_scripts(subject: Subject, count: int) -> list[Trial]:
    """Random actions, out of a first observation that may be another seed's."""
    openings = [play.observations[0] for play in subject.fuzzed]
    done = len(subject.guessed)
    return [
        Trial(
            seed,
            tuple(
                str(policy(openings[number % len(openings)], turn))
                for turn in range(subject.max_turns)
            ),
        )
        for number, (seed, policy) in enumerate(_random_plans(subject, range(done, done + count)))
    ]


def _random_plans(subject: Subject, numbers: range) -> list[tuple[int, Policy]]:
    """Random policies; every other one knows the valid actions, where the program lists them."""
    first, listed = subject.blind_seed, subject.fuzzed[0].listed
    return [
        (first + number, guessing(subject.rng(first + number), listed if number % 2 else ()))
        for number in numbers
    ]
