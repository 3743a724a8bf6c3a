"""Gates 9 to 11 and the hint: whether a win means what it should, and who tells the answer."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_api.types import Trial

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

    More than half of a kind's plays must win to refuse, on few seeds and then on more: many games
    have more than one way.
    """

    name = "perturbed"

    async def judge(self, subject: Subject) -> None:
        settings = subject.settings
        self._check_constant(subject)
        played: dict[str, list[Play | None]] = {}
        # Kinds that are still played: at first all there are.
        doubted: dict[str, list[Play]] = {}
        first = 0
        for stage in settings.perturbed_stages:
            tried = [
                (way.what, Trial(seed, way.actions))
                for seed in list(subject.oracles)[first:stage]
                for way in self._ways(subject, seed)
                if not first or way.what in doubted
            ]
            plays = await subject.play_winners([trial for _, trial in tried])
            for (what, _), play in zip(tried, plays, strict=True):
                played.setdefault(what, []).append(play)
            won = {what: self._won(subject, plays) for what, plays in played.items()}
            doubted = {what: won[what] for what in won if len(won[what]) > len(played[what]) / 2}
            first = stage
            if not doubted:
                return
        what, winners = next(iter(doubted.items()))
        message = f"{what} won {len(winners)} of {len(played[what])} plays"
        raise refusal(Reason.PERTURBED_WIN, message, phase="step", play=winners[0])

    @staticmethod
    def _won(subject: Subject, plays: Sequence[Play | None]) -> list[Play]:
        least = subject.settings.win_reward
        return [play for play in plays if play is not None and play.won(least)]

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
    def _ways(subject: Subject, seed: int) -> list[Perturbation]:
        others = [o.actions for other, o in subject.oracles.items() if other != seed]
        solution = subject.oracles[seed].actions
        return perturbations(solution, others, subject.max_turns, subject.rng(seed))


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
            told = [*subject.openings.values(), *subject.fuzzed[0].listed]
            check_hint_against(hint, solutions, told)
        except HintError as error:
            raise refusal(Reason.HINT, str(error)) from None
        commands = quoted_commands(hint, solutions[0][0])
        if commands:
            await self._play(subject, commands)

    @staticmethod
    async def _play(subject: Subject, commands: list[str]) -> None:
        """Play the commands over and over."""
        settings = subject.settings
        seeds = list(subject.oracles)[: settings.perturbed_stages[0]]
        plays = await subject.play([(seed, cycled(commands)) for seed in seeds])
        won = [play for play in plays if play.won(settings.win_reward)]
        if len(won) > len(plays) / 2:
            shown = ", ".join(commands)[:200]
            message = f"the hint's commands alone ({shown}) won {len(won)} of {len(plays)} plays"
            raise refusal(Reason.HINT, message, phase="step", play=won[0])
