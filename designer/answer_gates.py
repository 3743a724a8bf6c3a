"""Gates 9 to 11 and the hint: whether a win means what it should, and who tells the answer."""

from __future__ import annotations

from designer.checks import check_verify
from designer.drafts import Reason
from designer.findings import refusal
from designer.hints import HintError, check_hint_against, check_hint_text, quoted_commands
from designer.leaks import find_leak
from designer.perturbations import Perturbation, perturbations
from designer.plays import Play
from designer.probes import Policy, cycled, replayed
from designer.subjects import Subject


class PerturbationGate:
    """Gate 9: what is nearly a solution does not win.

    On few seeds first; only where one of these plays wins, on all, and more than half of a
    kind's must win to refuse: many games have more than one way.
    """

    name = "perturbed"

    async def judge(self, subject: Subject) -> None:
        settings = subject.settings
        self._check_constant(subject)
        seeds = list(subject.oracles)[: settings.perturbed_seeds]
        first = await self._play(subject, seeds[: settings.perturbed_first])
        if any(play.won(settings.win_reward) for plays in first.values() for play in plays):
            more = await self._play(subject, seeds[settings.perturbed_first :])
            for what, plays in first.items():
                plays += more.get(what, [])
                won = [play for play in plays if play.won(settings.win_reward)]
                if len(won) > len(plays) / 2:
                    message = f"{what} won {len(won)} of {len(plays)} plays"
                    raise refusal(Reason.PERTURBED_WIN, message, phase="step", play=won[0])
        await subject.close()

    @staticmethod
    def _check_constant(subject: Subject) -> None:
        """One solution for all seeds is a password: nothing that is seen matters."""
        solutions = {oracle.actions for oracle in subject.oracles.values()}
        if len(solutions) == 1:
            message = f"the same actions win on all {len(subject.oracles)} seeds"
            raise refusal(
                Reason.PERTURBED_WIN,
                message,
                advice="Let what wins depend on what reset drew, and let the player find it out.",
                phase="solution",
                seed=next(iter(subject.oracles)),
            )

    @staticmethod
    async def _play(subject: Subject, seeds: list[int]) -> dict[str, list[Play]]:
        plans: list[tuple[int, Perturbation]] = []
        for seed in seeds:
            others = [o.actions for other, o in subject.oracles.items() if other != seed]
            rng = subject.rng(seed)
            ways = perturbations(subject.oracles[seed].actions, others, rng)
            plans += [(seed, way) for way in ways]
        plays = await subject.play([(seed, way.policy) for seed, way in plans])
        by_kind: dict[str, list[Play]] = {}
        for (_, way), play in zip(plans, plays, strict=True):
            by_kind.setdefault(way.what, []).append(play)
        return by_kind


class VerifyGate:
    """Gate 10: verify() agrees with the reward, on won and on lost plays."""

    name = "verify"

    async def judge(self, subject: Subject) -> None:
        settings = subject.settings
        assert subject.program is not None
        if not subject.program.has_verify:
            return
        lost, verdicts = zip(*subject.replayed, strict=True)
        check_verify(lost, verdicts, settings.win_reward)
        seeds = list(subject.oracles)[: settings.won_transcripts]
        plans: list[tuple[int, Policy]] = [
            (seed, replayed(subject.oracles[seed].actions)) for seed in seeds
        ]
        won = await subject.play(plans)
        check_verify(won, await subject.verify(won), settings.win_reward)
        await subject.close()


class LeakGate:
    """Gate 11: the answer is not in the first observation."""

    name = "leak"

    async def judge(self, subject: Subject) -> None:
        solutions = {seed: oracle.actions for seed, oracle in subject.oracles.items()}
        rule = find_leak(subject.openings, solutions)
        if rule:
            play = subject.fuzzed[0]
            message = f"the first observation gives the answer: {rule}"
            raise refusal(Reason.LEAK, message, phase="reset", play=play, steps=0)


class HintGate:
    """The hint is short prose, without the answer, and what it quotes does not win."""

    name = "hint"

    async def judge(self, subject: Subject) -> None:
        hint = subject.draft.hint
        if hint is None:
            return
        solutions = [oracle.actions for oracle in subject.oracles.values()]
        try:
            check_hint_text(hint)
            check_hint_against(hint, solutions, list(subject.openings.values()))
        except HintError as error:
            raise refusal(Reason.HINT, str(error)) from None
        commands = quoted_commands(hint, solutions[0][0])
        if commands:
            await self._play(subject, commands)

    @staticmethod
    async def _play(subject: Subject, commands: list[str]) -> None:
        """Play the commands over and over: on few seeds first, on more where they win."""
        settings = subject.settings
        seeds = list(subject.oracles)[: settings.perturbed_seeds]
        plays: list[Play] = []
        for some in (seeds[: settings.perturbed_first], seeds[settings.perturbed_first :]):
            plays += await subject.play([(seed, cycled(commands)) for seed in some])
            won = [play for play in plays if play.won(settings.win_reward)]
            if not won:
                break
        if len(won) > len(plays) / 2:
            shown = ", ".join(commands)[:200]
            message = f"the hint's commands alone ({shown}) won {len(won)} of {len(plays)} plays"
            raise refusal(Reason.HINT, message, phase="step", play=won[0])
        await subject.close()
