"""Gates 1 to 8: is this program an environment that can teach?

Many drafts are judged together. A gate sends the episodes of all drafts that are still in to
the sandbox in few batched calls; a draft leaves at the first gate that it fails. What the
service gets wrong is never held against a program: such drafts are judged again, and are
UNJUDGED if the service keeps failing. A time limit counts when it runs out twice, since a busy
machine is slow, too. No program runs in this process.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from sandbox_api.client import AsyncSandboxClient
from sandbox_api.errors import SandboxError
from sandbox_api.types import Limits, Verdict

from designer.checks import (
    GateSettings,
    RefusedError,
    Subject,
    TooSlowError,
    check_blind,
    check_hint,
    check_load,
    check_oracle,
    check_plays,
    check_reproduced,
    check_starts,
)
from designer.drafts import Draft, GateReport, Reason
from designer.inspection import InspectionError, inspect_program
from designer.plays import Play, close_plays, count_work, run_plays
from designer.probes import (
    Policy,
    constant,
    constant_actions,
    fuzz_actions,
    guessing,
    limited,
)


class Gates:
    """Judges drafts through a sandbox.

    Args:
        client: Connected to the sandbox.
        settings: How hard to look.
        limits: Limits of the programs' episodes; None means the server's defaults.
        runtime: Runtime of the server to load them in; empty means its default.
        seed: For the random policies.
    """

    def __init__(
        self,
        client: AsyncSandboxClient,
        *,
        settings: GateSettings | None = None,
        limits: Limits | None = None,
        runtime: str = "",
        seed: int = 0,
    ) -> None:
        self._client = client
        self._settings = settings or GateSettings()
        self._limits = limits
        self._runtime = runtime
        self._seed = seed

    async def judge(self, drafts: Sequence[Draft]) -> list[GateReport]:
        """Judge drafts; reports in the same order.

        Drafts that come with a reason keep it. Nothing is raised for a program or for the
        service: the reports say UNJUDGED where the service kept failing.
        """
        subjects = [Subject(draft) for draft in drafts]
        for subject in subjects:
            if subject.draft.reason is not None:
                subject.reason = Reason(subject.draft.reason)
                subject.detail = subject.draft.detail
            else:
                self._inspect(subject)
        retries = self._settings.service_retries
        for attempt in range(1 + retries):
            pending = [subject for subject in subjects if subject.reason is None]
            if attempt:
                pending = [subject for subject in pending if subject.fault is not None]
            for subject in pending:
                subject.counts["retries"] += bool(attempt)
                subject.patient = attempt < retries and not isinstance(subject.fault, TooSlowError)
                subject.fault = None
            size = self._settings.drafts_at_once
            for start in range(0, len(pending), size):
                await self._run_gates(pending[start : start + size])
        return [subject.report() for subject in subjects]

    def _inspect(self, subject: Subject) -> None:
        began = time.perf_counter()
        try:
            inspect_program(subject.draft.source or "", self._runtime)
        except InspectionError as error:
            subject.reason, subject.detail = error.reason, str(error)
        subject.spend("inspect", time.perf_counter() - began)

    async def _run_gates(self, subjects: list[Subject]) -> None:
        gates = (self._load, self._start_and_fuzz, self._replay_and_oracle, self._blind)
        for gate in gates:
            still = [subject for subject in subjects if subject.open]
            if not still:
                return
            try:
                await gate(still)
            except SandboxError as error:
                for subject in still:
                    if subject.reason is None:
                        subject.fault = error

    async def _load(self, subjects: list[Subject]) -> None:
        """Gate 3, first half: the program loads inside its limits."""
        slots = asyncio.Semaphore(self._settings.concurrent_loads)

        async def load(subject: Subject) -> None:
            assert subject.draft.source is not None
            async with slots:
                began = time.perf_counter()
                try:
                    subject.program = await self._client.register_program(
                        subject.draft.source, runtime=self._runtime, limits=self._limits
                    )
                except SandboxError as error:
                    subject.fault = error
                    return
                finally:
                    subject.spend("load", time.perf_counter() - began)
            subject.apply(check_load, subject.program)

        await asyncio.gather(*map(load, subjects))

    async def _start_and_fuzz(self, subjects: list[Subject]) -> None:
        """Gates 3 (second half) and 4, the starts for gate 6, a first replay for gate 5."""
        settings = self._settings
        left = {id(subject): _fuzz_actions(subject) for subject in subjects}

        def plans(subject: Subject) -> list[tuple[int, Policy]]:
            # The starts share the actions; an episode that ends early leaves its share over.
            actions = left[id(subject)]
            share = -(-len(actions) // settings.starts)
            seeds = range(settings.first_seed, settings.first_seed + settings.starts)
            return [(seed, _taking(actions, share)) for seed in seeds]

        async with self._plays(subjects, "fuzz", plans) as played:
            self._check_plays(subjects, played)
            still = [subject for subject in subjects if subject.open]
            for subject in still:
                subject.starts = len({play.observations[0] for play in played[id(subject)]})
            chosen = {id(subject): played[id(subject)][:2] for subject in still}
            verdicts = await self._verify(still, chosen, "replay", run_oracle=False)
            for subject in still:
                subject.apply(check_reproduced, verdicts[id(subject)])
        while still := [subject for subject in subjects if subject.open and left[id(subject)]]:
            async with self._plays(still, "fuzz", plans) as played:
                self._check_plays(still, played)

    async def _replay_and_oracle(self, subjects: list[Subject]) -> None:
        """Gates 5, 6 and 7, and the answer in the hint, which needs the oracle's play."""
        settings = self._settings

        def plans(subject: Subject) -> list[tuple[int, Policy]]:
            seeds = range(settings.first_seed, settings.first_seed + settings.replay_seeds)
            turns = settings.replay_turns
            return [(seed, limited(guessing(self._rng(subject, seed)), turns)) for seed in seeds]

        async with self._plays(subjects, "replay", plans) as played:
            self._check_plays(subjects, played)
            still = [subject for subject in subjects if subject.open]
            verdicts = await self._verify(still, played, "oracle", run_oracle=True)
        for subject in still:
            subject.apply(self._check_verdicts, subject, verdicts[id(subject)])

    def _check_verdicts(self, subject: Subject, verdicts: list[Verdict]) -> None:
        check_reproduced(verdicts)
        oracles = [verdict.oracle for verdict in verdicts if verdict.oracle is not None]
        if not oracles:
            raise RefusedError(Reason.ORACLE, "the program has no solution()")
        check_starts(subject.starts, self._settings.starts, oracles)
        max_turns = subject.draft.request.max_turns
        subject.oracle_steps = check_oracle(oracles, self._settings, max_turns)
        check_hint(subject.draft.hint, oracles)

    async def _blind(self, subjects: list[Subject]) -> None:
        """Gate 8: doing nothing, a constant and random actions practically never win."""
        settings = self._settings
        first = settings.first_seed + 1_000
        seeds = range(first, first + settings.blind_plays)
        openings: dict[int, Play] = {}

        def nothing_plans(_: Subject) -> list[tuple[int, Policy]]:
            return [(first, constant("")), (first + 1, constant("\\boxed{}"))]

        def constant_plans(subject: Subject) -> list[tuple[int, Policy]]:
            opening = openings[id(subject)]
            actions = constant_actions(opening.observations[0], opening.listed)
            taken = [actions[i % len(actions)] for i in range(len(seeds))]
            # Shuffled: a program may make seeds of one parity easy, and must not meet the
            # same action on all of those.
            self._rng(subject, first).shuffle(taken)
            return [(seed, constant(action)) for seed, action in zip(seeds, taken, strict=True)]

        def random_plans(subject: Subject) -> list[tuple[int, Policy]]:
            # Every other play knows the valid actions, where the program lists them.
            listed = openings[id(subject)].listed
            return [
                (seed, guessing(self._rng(subject, seed), listed if seed % 2 else ()))
                for seed in seeds
            ]

        for what, plans in (
            ("doing nothing", nothing_plans),
            ("a constant action", constant_plans),
            ("random actions", random_plans),
        ):
            still = [subject for subject in subjects if subject.open]
            async with self._plays(still, "blind", plans) as played:
                self._check_plays(still, played)
                for subject in still:
                    if subject.open:
                        plays = played[id(subject)]
                        openings.setdefault(id(subject), plays[0])
                        subject.apply(check_blind, what, plays, settings)

    def _rng(self, subject: Subject, seed: int) -> random.Random:
        return random.Random(f"{self._seed} {subject.program_id} {seed}")

    def _check_plays(self, subjects: Sequence[Subject], played: dict[int, list[Play]]) -> None:
        """Ask of all plays what gates 3 and 4 ask; keep a service fault for another try."""
        for subject in subjects:
            plays = played[id(subject)]
            # What the program failed stands, whatever the service did elsewhere.
            subject.apply(check_plays, [play for play in plays if play.fault is None])
            fault = next((play.fault for play in plays if play.fault is not None), None)
            if subject.reason is None and fault is not None:
                subject.fault = fault

    @asynccontextmanager
    async def _plays(
        self,
        subjects: Sequence[Subject],
        gate: str,
        plans: Callable[[Subject], list[tuple[int, Policy]]],
    ) -> AsyncIterator[dict[int, list[Play]]]:
        """Play the plans of all subjects in lockstep; the episodes stay open inside."""
        played = {
            id(subject): [
                Play(subject.program_id, seed, subject.draft.request.max_turns, policy)
                for seed, policy in plans(subject)
            ]
            for subject in subjects
        }
        everything = [play for plays in played.values() for play in plays]
        try:
            await run_plays(self._client, everything)
            for subject in subjects:
                subject.spend(gate, sum(play.cost_s for play in played[id(subject)]))
                subject.counts.update(count_work(played[id(subject)]))
            yield played
        finally:
            await close_plays(self._client, everything)

    async def _verify(
        self,
        subjects: Sequence[Subject],
        played: dict[int, list[Play]],
        gate: str,
        *,
        run_oracle: bool,
    ) -> dict[int, list[Verdict]]:
        owners = [(subject, play) for subject in subjects for play in played[id(subject)]]
        verdicts: dict[int, list[Verdict]] = {id(subject): [] for subject in subjects}
        if not owners:
            return verdicts
        began = time.perf_counter()
        results = await self._client.verify(
            [play.episode_id for _, play in owners], run_oracle=run_oracle
        )
        share_s = (time.perf_counter() - began) / len(owners)
        for (subject, _), verdict in zip(owners, results, strict=True):
            verdicts[id(subject)].append(verdict)
            subject.fault = subject.fault or verdict.error
            subject.spend(gate, share_s)
            subject.counts["verdicts"] += 1
        return verdicts


def _taking(actions: list[str], count: int) -> Policy:
    """Takes up to `count` actions off a list that several policies share."""
    left = count

    def policy(_: str, __: int) -> str | None:
        nonlocal left
        if not left or not actions:
            return None
        left -= 1
        return actions.pop(0)

    return policy


def _fuzz_actions(subject: Subject) -> list[str]:
    limits = subject.program.limits if subject.program else Limits()
    return fuzz_actions(limits.max_action_bytes)
