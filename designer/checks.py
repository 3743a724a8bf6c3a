"""What the gates ask of plays and verdicts, as plain functions that refuse or return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sandbox_api.types import OracleResult, Outcome, Program, Verdict

from designer.drafts import Reason
from designer.findings import RefusedError, of_actions, refusal
from designer.plays import Play
from designer.settings import GateSettings

# What the sandbox raises in a program's name for what is no observation, step or reward.
_CONTRACT_ERROR = "ContractError"


def check_load(program: Program) -> None:
    """Gate 3, first half: the program loads inside its limits.

    Raises:
        RefusedError: LOAD.
    """
    if program.outcome is not Outcome.COMPLETED:
        what = f": {program.diagnostic}" if program.diagnostic else ""
        raise refusal(
            Reason.LOAD,
            f"{program.outcome.name}{what}",
            phase="load",
            diagnostic=program.diagnostic,
            outcome=program.outcome,
        )


def check_plays(plays: Sequence[Play]) -> None:
    """Gates 3 and 4: text within its cap, rewards within [-1, 1], and no action fails.

    Raises:
        RefusedError: CONTRACT or FUZZ.
    """
    for play in plays:
        _check_contract(play)
    for play in plays:
        if play.failed:
            raise _failure(Reason.FUZZ, play)


def _failure(reason: Reason, play: Play, before: str = "") -> RefusedError:
    return refusal(
        reason,
        before + play.failure(),
        phase="step" if play.observations else "reset",
        play=play,
        diagnostic=play.diagnostic,
        outcome=play.outcome,
    )


def _check_contract(play: Play) -> None:
    """What gate 3 asks of a play: types, text within its cap, rewards within [-1, 1]."""
    if play.failed and not play.observations:
        raise _failure(Reason.CONTRACT, play, "reset failed: ")
    if play.failed and play.diagnostic and play.diagnostic.exception == _CONTRACT_ERROR:
        raise _failure(Reason.CONTRACT, play)
    if not play.observations[0].strip():
        message = f"seed {play.seed}: the first observation is empty"
        advice = "Let reset return a text that tells the task, the rules and how to answer."
        raise refusal(Reason.CONTRACT, message, advice=advice, phase="reset", play=play)
    if play.cut_bytes:
        message = f"seed {play.seed}: an observation is {play.cut_bytes} bytes over its cap"
        advice = "Show less: what the player needs now, not the whole state or history."
        raise refusal(Reason.CONTRACT, message, advice=advice, phase="step", play=play)
    for step, reward in enumerate(play.rewards):
        if not -1.0 <= reward <= 1.0:
            message = f"seed {play.seed}: reward {reward} is outside [-1, 1]"
            advice = "Scale rewards into [-1, 1]: 1.0 for a win, small ones for progress."
            raise refusal(
                Reason.CONTRACT, message, advice=advice, phase="step", play=play, steps=step + 1
            )


def check_reproduced(plays: Sequence[Play], verdicts: Sequence[Verdict]) -> None:
    """Gate 5: a replay in a fresh process saw the same.

    Raises:
        RefusedError: NONDETERMINISTIC.
    """
    for play, verdict in zip(plays, verdicts, strict=True):
        if verdict.reproduced:
            continue
        where = verdict.divergence
        steps = None
        if where is not None:
            steps = where.step_index + 1
            step = "the reset" if where.step_index < 0 else f"step {where.step_index}"
            recorded = where.recorded
            if where.field == "observation":
                # The server's record of it is a hash; the play has the words.
                recorded = play.observations[steps]
            both = f"{recorded[:200]!r}, then {where.replayed[:200]!r}"
            message = f"{where.field} of {step} differed: {both}"
        else:
            message = f"the replay failed: {verdict.diagnostic or ''}"
        # Of a replay that ran out of time there is nothing but this word.
        slow = Outcome.TIME_LIMIT if Outcome.TIME_LIMIT.name in message else None
        raise refusal(
            Reason.NONDETERMINISTIC,
            f"seed {play.seed}: {message}",
            phase="step" if steps else "reset",
            play=play,
            steps=steps,
            diagnostic=verdict.diagnostic,
            outcome=slow,
        )


def check_starts(plays: Sequence[Play], oracles: Sequence[OracleResult]) -> None:
    """Gate 6: at least two distinct starts.

    Starts differ by their first observation or, where a game hides its state and opens every
    seed with the same words, by the oracle's play.

    Raises:
        RefusedError: SAME_START.
    """
    starts = {play.observations[0] for play in plays}
    if len(starts) < 2 and len({oracle.actions for oracle in oracles}) < 2:
        message = f"one first observation in {len(plays)} seeds, and one solution"
        raise refusal(Reason.SAME_START, message, phase="reset", play=plays[0], steps=0)


def check_oracle(
    oracles: Mapping[int, OracleResult], settings: GateSettings, max_turns: int
) -> int:
    """Gate 7: the program's own solution wins on every seed, and takes a few steps.

    Args:
        oracles: Its plays, by seed.
        settings: What a win and a short play are.
        max_turns: Turn cap that the plays were under.

    Returns:
        Actions of the shortest solution.

    Raises:
        RefusedError: ORACLE.
    """
    for seed, oracle in oracles.items():
        if oracle.outcome is not Outcome.COMPLETED:
            what = f"{oracle.outcome.name}: {oracle.diagnostic or ''}"
            raise refusal(
                Reason.ORACLE,
                f"seed {seed}: solution() failed: {what}",
                phase="solution",
                seed=seed,
                diagnostic=oracle.diagnostic,
                outcome=oracle.outcome,
            )
        if not oracle.terminated or (oracle.final_reward or 0.0) < settings.win_reward:
            end = "terminated" if oracle.terminated else "not terminated"
            what = f"{len(oracle.actions)} actions, last reward {oracle.final_reward}, {end}"
            raise _oracle_refusal(f"solution() does not win: {what}", seed, oracle)
    seed, oracle = min(oracles.items(), key=lambda played: len(played[1].actions))
    steps, needed = len(oracle.actions), min(settings.min_oracle_steps, max_turns)
    if steps < needed:
        what = f"solution() wins in {steps} steps, needs {needed}"
        raise _oracle_refusal(what, seed, oracle)
    return steps


def _oracle_refusal(what: str, seed: int, oracle: OracleResult) -> RefusedError:
    refused = refusal(Reason.ORACLE, f"seed {seed}: {what}", phase="solution", seed=seed)
    shown = of_actions(oracle.actions, oracle.final_reward)
    refused.finding = replace(refused.finding, transcript=shown)
    return refused


def check_blind(
    what: str, won: Sequence[Play], count: int, settings: GateSettings, *, is_last: bool
) -> bool:
    """Gate 8: a policy that understands nothing practically never wins.

    Args:
        what: The policy, for the message.
        won: Those of its plays so far that won.
        count: How many it played.
        settings: How many may win.
        is_last: There will be no more of them.

    Returns:
        Whether more plays should tell: too many have won, and not by far.

    Raises:
        RefusedError: BLIND_WIN.
    """
    if len(won) <= settings.max_blind_win_rate * count:
        return False
    if not is_last and len(won) <= settings.clear_blind_win_rate * count:
        return True
    message = f"{what} won {len(won)} of {count} plays"
    shortest = min(won, key=lambda play: play.steps)
    raise refusal(Reason.BLIND_WIN, message, phase="step", play=shortest)


def check_answered(plays: Sequence[Play], verdicts: Sequence[Verdict]) -> None:
    """Of gate 10 what every replay shows: verify() returns.

    Raises:
        RefusedError: VERIFY.
    """
    for play, verdict in zip(plays, verdicts, strict=True):
        if verdict.verify_outcome not in (None, Outcome.COMPLETED):
            what = f"{verdict.verify_outcome.name}: {verdict.diagnostic or ''}"
            raise refusal(
                Reason.VERIFY,
                f"seed {play.seed}: verify() failed: {what}",
                phase="verify",
                play=play,
                diagnostic=verdict.diagnostic,
                outcome=verdict.verify_outcome,
            )


def check_verify(plays: Sequence[Play], verdicts: Sequence[Verdict], win_reward: float) -> None:
    """Gate 10: verify() says yes of a won play, and no of one that ended without a reward.

    Between the two, where a play earned something and did not win, it may say either.

    Raises:
        RefusedError: VERIFY.
    """
    check_answered(plays, verdicts)
    for play, verdict in zip(plays, verdicts, strict=True):
        if verdict.verified is None:
            continue
        lost = play.ended and play.rewards[-1] <= 0.0
        if (play.won(win_reward) and not verdict.verified) or (lost and verdict.verified):
            said = f"verify() says {verdict.verified}"
            if verdict.verify_message:
                said += f" ({verdict.verify_message[:200]})"
            message = f"seed {play.seed}: {said} of a play whose last reward is {play.rewards[-1]}"
            raise refusal(Reason.VERIFY, message, phase="verify", play=play)
