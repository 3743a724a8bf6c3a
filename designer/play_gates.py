"""Gates 3 to 8: what a program does when it is loaded, played, replayed and solved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits, OracleResult, Outcome

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
    constant,
    constant_actions,
    fuzz_actions,
    guessing,
    replayed,
)
from designer.subjects import Subject

# Episodes of a later fuzzed round at most: a game that ends at any mistake takes an episode for
# each action.
_FUZZ_EPISODES = 24


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
        seeds = range(settings.first_seed, settings.first_seed + settings.starts)
        # The starts share the actions; an episode that ends early leaves its share over. The
        # first goes ahead alone, with the huge ones: a program that hangs keeps a CPU busy for
        # as long as its limits let it, and so one.
        first, *others = _shares(actions, seeds)
        plays = await subject.play([first])
        plays += await subject.play(others)
        subject.fuzzed, subject.fuzzed_at = plays, time.monotonic()
        await subject.close(plays[settings.replays :])
        # As many more as the rest needs, if they last as long as these did.
        lasting = max(1, sum(play.steps for play in plays) // len(plays))
        while actions:
            count = min(-(-len(actions) // lasting), _FUZZ_EPISODES)
            more = range(settings.first_seed, settings.first_seed + count)
            await subject.close(await subject.play(_shares(actions, more)))


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
        seeds = range(settings.first_seed, settings.first_seed + count)
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

    Each policy plays in stages, the later ones only where the earlier left a doubt.
    """

    name = "blind"

    async def judge(self, subject: Subject) -> None:
        settings = subject.settings
        *_, count = settings.blind_stages
        plans = {
            "a constant action": _constant_plans(subject, count),
            "random actions": _random_plans(subject, range(count)),
        }
        played: dict[str, list[Play]] = {
            "a constant action": [],
            "random actions": list(subject.guessed),
        }
        # After those of the policies, which use one seed a play.
        seed = settings.blind_seed + count
        nothing: list[tuple[int, Policy]] = [
            (seed, constant("")),
            (seed + 1, constant("\\boxed{}")),
        ]
        doubted = list(plans)
        for stage in settings.blind_stages:
            wanted = [
                (what, plan) for what in doubted for plan in plans[what][len(played[what]) : stage]
            ]
            plays = await subject.play([*nothing, *(plan for _, plan in wanted)])
            check_blind("doing nothing", plays[: len(nothing)], settings, is_last=True)
            for (what, _), play in zip(wanted, plays[len(nothing) :], strict=True):
                played[what].append(play)
            nothing = []
            is_last = stage == count
            doubted = [
                what
                for what in doubted
                if check_blind(what, played[what], settings, is_last=is_last)
            ]
            if not doubted:
                break
        await subject.close()


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


def _constant_plans(subject: Subject, count: int) -> list[tuple[int, Policy]]:
    opening = subject.fuzzed[0]
    actions = constant_actions(opening.observations[0], opening.listed)
    taken = [actions[i % len(actions)] for i in range(count)]
    # Shuffled: a program may make seeds of one parity easy, and must not meet the same action
    # on all of those.
    first = subject.settings.blind_seed
    subject.rng(first).shuffle(taken)
    return [(first + number, constant(action)) for number, action in enumerate(taken)]


def _random_plans(subject: Subject, numbers: range) -> list[tuple[int, Policy]]:
    """Random policies; every other one knows the valid actions, where the program lists them."""
    first, listed = subject.settings.blind_seed, subject.fuzzed[0].listed
    return [
        (first + number, guessing(subject.rng(first + number), listed if number % 2 else ()))
        for number in numbers
    ]
