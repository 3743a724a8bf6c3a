"""Findings: what a gate has against a program, with the advice and the play that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sandbox_api.types import Diagnostic, Outcome, Phase

from designer.drafts import Draft, Exchange, Finding, Reason
from designer.plays import Play

# Longest text of an action or observation in a transcript; the huge ones of gate 4 are cut.
MAX_SHOWN_CHARACTERS = 2_000

ADVICE: dict[Reason, str] = {
    Reason.PARSE: "Send one whole Python program in one fenced block: every bracket and quote "
    "closed, and braces that are meant as text in an f-string doubled.",
    Reason.SPEC: "Write one JSON object with the family and each of its parameters, every value "
    "one of those that the schema lists.",
    Reason.HELD_OUT: "Choose other parameters: this world is kept for evaluation.",
    Reason.DUPLICATE: "Write another world: other rules and another state, not other names.",
    Reason.IMPORT: "Import only what the runtime offers, or write the part that you need.",
    Reason.LOAD: "Let the top level of the module only define things; build the world in reset, "
    "where it has a seed and a time limit of its own.",
    Reason.CONTRACT: "Define one class whose name ends in Env, with reset(seed) -> (text, dict) "
    "and step(action) -> (text, reward, terminated, truncated, dict), rewards in [-1, 1].",
    Reason.FUZZ: "Any text may come as an action. Check it before it is used, and answer one that "
    "makes no sense with an observation and a small reward or none; never raise, loop or exit.",
    Reason.NONDETERMINISTIC: "Draw everything from random.Random(seed) that reset makes. Use no "
    "clock, no id() or hash(), no generator without a seed, and sort a set before you show it.",
    Reason.SAME_START: "Let reset draw the world from the seed, so that each seed differs in what "
    "is seen first or in what solves it.",
    Reason.ORACLE: "Let solution() return, right after reset, the list of actions that wins from "
    "there, each as step() takes it, within the turn cap, and at least three of them.",
    Reason.CRITERION: "Compare the value of the world that the tools change with one of the same "
    "type, and let setup build a world in which no criterion holds yet.",
    Reason.UNREVEALED: "Let a tool, a message or a schema tell every value that a call or an "
    "answer needs; the player cannot read the program.",
    Reason.BLIND_WIN: "Let a win depend on what was observed: more possible actions, more steps "
    "that must be right, or an end of the episode at a mistake.",
    Reason.PERTURBED_WIN: "Check what each action does to the world, not only its form or their "
    "number, and let what wins depend on what reset drew from the seed.",
    Reason.VERIFY: "Let verify() and the winning reward ask the same question of the state: True "
    "exactly where the last step paid 1.0 and terminated.",
    Reason.LEAK: "Show what the answer follows from, not the answer: take it out of the text that "
    "reset returns.",
    Reason.HINT: "Tell how to find the answer and what a good one looks like, in at most 600 "
    "characters of prose; no code, no commands that win, no value of the answer.",
}

_PHASES = {
    Phase.COMPILE: "parse",
    Phase.LOAD: "load",
    Phase.CONSTRUCT: "reset",
    Phase.RESET: "reset",
    Phase.STEP: "step",
    Phase.VERIFY: "verify",
    Phase.SOLUTION: "solution",
}


class RefusedError(Exception):
    """A gate refuses the draft.

    Attributes:
        finding: What it has against it.
        timed_out: A time limit was the reason, which a busy machine may have been, too.
    """

    def __init__(self, finding: Finding, *, timed_out: bool = False) -> None:
        super().__init__(finding.message)
        self.finding = finding
        self.timed_out = timed_out


def refusal(
    reason: Reason,
    message: str,
    *,
    advice: str = "",
    phase: str = "",
    line: int = 0,
    seed: int | None = None,
    play: Play | None = None,
    steps: int | None = None,
    diagnostic: Diagnostic | None = None,
    outcome: Outcome | None = None,
) -> RefusedError:
    """Put a refusal together.

    Args:
        reason: Code of the gate.
        message: What was found.
        advice: What to change; empty takes the reason's usual advice.
        phase: See `Finding`; a diagnostic knows better.
        line: Of the source; a diagnostic knows better.
        seed: Where there is no play.
        play: The play that shows it.
        steps: How many of its steps; None for all.
        diagnostic: The sandbox's word on what failed.
        outcome: Of the call that failed; a time limit may be the machine's fault.
    """
    if diagnostic is not None:
        phase = _PHASES[diagnostic.phase] if diagnostic.phase else phase
        line = diagnostic.line or line
    finding = Finding(
        reason, message, advice or ADVICE.get(reason, ""), phase=phase, line=line, seed=seed
    )
    if play is not None:
        finding = shown_by(finding, play, steps)
    return RefusedError(finding, timed_out=outcome is Outcome.TIME_LIMIT)


def finding_of(draft: Draft) -> Finding:
    """The finding of a draft that came with a reason."""
    reason = Reason(draft.reason or Reason.OK)
    phase = "parse" if reason in (Reason.PARSE, Reason.SPEC) else ""
    return Finding(reason, draft.detail, ADVICE.get(reason, ""), phase=phase)


def shown_by(finding: Finding, play: Play, steps: int | None = None) -> Finding:
    """The finding with the first steps of a play as its transcript; None means all of them."""
    return replace(
        finding,
        seed=play.seed,
        opening=_cut(play.observations[0]) if play.observations else "",
        transcript=transcript(play)[:steps],
    )


def transcript(play: Play) -> tuple[Exchange, ...]:
    """The steps of a play; one that failed is the last, without observation and reward."""
    last = len(play.rewards) - 1
    exchanges = [
        Exchange(
            _cut(action),
            _cut(observation),
            reward,
            terminated=play.terminated and step == last,
            truncated=play.truncated and step == last,
        )
        for step, (action, observation, reward) in enumerate(
            zip(play.actions, play.observations[1:], play.rewards, strict=False)
        )
    ]
    exchanges += [Exchange(_cut(action), "", None) for action in play.actions[len(exchanges) :]]
    return tuple(exchanges)


def of_actions(actions: Sequence[str], final_reward: float | None) -> tuple[Exchange, ...]:
    """A transcript of which only the actions and the last reward are known."""
    rewards = [None] * (len(actions) - 1) + [final_reward]
    return tuple(
        Exchange(_cut(action), "", reward)
        for action, reward in zip(actions, rewards, strict=False)
    )


def _cut(text: str) -> str:
    more = len(text) - MAX_SHOWN_CHARACTERS
    return f"{text[:MAX_SHOWN_CHARACTERS]}... ({more} characters more)" if more > 0 else text
