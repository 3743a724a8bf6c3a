"""What the designing model is asked: plain chat messages, in two styles.

"compact" is for models of a few million parameters that know nothing but this project's
text: one line. "chat" is for instruction-tuned models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from designer.archive import Remembered
from designer.families import FAMILIES, SKILLS

PROMPT_STYLES = ("compact", "chat")
DIFFICULTIES = ("easy", "medium", "hard")

Messages = list[dict[str, Any]]

_STRUCTURED_SYSTEM = (
    "You are the designer. You write specifications of small games that teach a player. "
    "A good game is won about half of the time, and a hint about its hidden rule helps. "
    "Answer with one JSON object and nothing else."
)

_CODE_SYSTEM = r"""You are the designer. You write a game for a language model as one Python file.

Contract:
- Exactly one class whose name ends in Env.
- __init__(self, max_turns={max_turns}) keeps max_turns.
- reset(self, seed=None) -> (str, dict): starts anew. Take all chance from
  self.rng = random.Random(seed). The text tells the rules, the goal and the form of an action.
- step(self, action: str) -> (str, float, bool, bool, dict): observation, reward, terminated,
  truncated, info. The player writes its action as \boxed{{...}}; read what is inside the last
  box. An action that is empty, huge or malformed must never raise: answer with a short
  explanation, which costs a turn.
- reward is a number from -1 to 1: 1.0 on the step that wins, 0 or less otherwise.
- terminated is True when the game is won or lost, truncated when max_turns are used up.
- solution(self) -> list of str: the boxed actions that win from the start of this seed.
- verify(self) -> bool: True only if the game was won.

What makes a game good:
- Real state, several decisions, at least 3 steps and at most {max_turns} to win.
- Every seed gives another start; the same seed always gives the same game.
- Doing nothing, repeating one action or acting at random practically never wins.
- The answer is not in the first observation.
- Use only the standard library. In f-strings write literal braces double: \\boxed{{{{...}}}}.

Answer with one Python code block and nothing else."""

_DIFFICULTY_TEXT = {
    "easy": "easy: a careful beginner wins it in 3 to 5 steps",
    "medium": "medium: winning needs a plan or a deduction over several steps",
    "hard": "hard: winning needs exact reasoning over many steps, with traps for the hasty",
}

_HINT_SYSTEM = (
    "You write hints. A hint tells the key insight of a game and the form of a good answer. "
    "It holds on every seed. It never gives the answer, a full list of actions, numbers that "
    "the solution returns, or code. At most 600 characters, plain text, the hint only."
)


def structured_messages(
    style: str, skill: str, max_turns: int, memory: Sequence[Remembered]
) -> Messages:
    """Ask for a specification.

    Raises:
        ValueError: If the style is unknown.
    """
    _check_style(style)
    if style == "compact":
        return [{"role": "user", "content": f"design {skill} {max_turns}\n"}]
    lines = [
        f"Skill: {SKILLS[skill]}. The player has {max_turns} turns.",
        "Families and parameters (c=1 tells the hidden rule to everybody, c=0 keeps it for the "
        "hint; s spare turns):",
    ]
    for family in FAMILIES.values():
        if family.skill == skill:
            spans = " ".join(f"{n}={v[0]}..{v[-1]}" for n, v in family.parameters.items())
            lines.append(f"- {family.name}: {family.about}. {spans}")
    lines += _memory_lines(memory, with_source=False)
    lines.append("Write one specification.")
    return [
        {"role": "system", "content": _STRUCTURED_SYSTEM},
        {"role": "user", "content": "\n".join(lines)},
    ]


def code_messages(
    skill: str, difficulty: str, max_turns: int, memory: Sequence[Remembered], grounding: str = ""
) -> Messages:
    """Ask for a program.

    Args:
        skill: Key of `designer.families.SKILLS`, or a skill in words.
        difficulty: One of `DIFFICULTIES`.
        max_turns: Turn cap in force.
        memory: Environments to differ from.
        grounding: A document to draw the setting from; empty for none.
    """
    lines = [
        f"Skill: {SKILLS.get(skill, skill)}.",
        f"Difficulty: {_DIFFICULTY_TEXT[difficulty]}.",
        f"The player has at most {max_turns} turns.",
    ]
    if grounding:
        lines += ["Draw the setting from this text:", '"""', grounding, '"""']
    lines += _memory_lines(memory, with_source=True)
    lines.append("Write the game.")
    return [
        {"role": "system", "content": _CODE_SYSTEM.format(max_turns=max_turns)},
        {"role": "user", "content": "\n".join(lines)},
    ]


def hint_messages(source: str) -> Messages:
    """Ask for the hint of a program, its source shown."""
    return [
        {"role": "system", "content": _HINT_SYSTEM},
        {"role": "user", "content": f"The game:\n```python\n{source}```\nWrite the hint."},
    ]


def _check_style(style: str) -> None:
    if style not in PROMPT_STYLES:
        raise ValueError(f"unknown prompt style {style!r}; one of {PROMPT_STYLES}")


def _memory_lines(memory: Sequence[Remembered], *, with_source: bool) -> list[str]:
    if not memory:
        return []
    lines = ["Earlier games, with the player's mean return; write something else:"]
    for entry in memory:
        what = entry.summary if with_source else entry.spec_json
        lines.append(
            f"- {what} (plain {entry.return_plain:.2f}, hinted {entry.return_hinted:.2f})"
        )
    return lines
