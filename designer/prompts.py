"""What the designing model is asked: plain chat messages, in two styles.

"compact" is for models of a few million parameters that know nothing but this project's
text: one line. "chat" is for instruction-tuned models. Programs are asked for in
`program_prompts`, repairs in `repair_prompts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from designer.archive import Refused, Remembered
from designer.drafts import Operator
from designer.families import SKILLS, TOOL_SKILLS, families_of
from designer.lineage import Descent

PROMPT_STYLES = ("compact", "chat")
# Of what a gate found, in a prompt: the rest is a program's own words.
MAX_WHY_CHARACTERS = 300

Messages = list[dict[str, Any]]

# What an environment of a kind is called in a prompt.
NOUNS = {"game": "game", "tool_use": "tool-use task"}

_STRUCTURED_SYSTEM = (
    "You are the designer. You write specifications of small {noun}s that teach a player. "
    "A good {noun} is won about half of the time, and a hint about its hidden rule helps. "
    "Answer with one JSON object and nothing else."
)

_STRUCTURED_DESCENT = {
    Operator.EASIER: "Make an easier one of:",
    Operator.HARDER: "Make a harder one of:",
    Operator.THEME: "Keep how hard it is and change the hidden rule of:",
    Operator.CROSSOVER: "Take each value from one or the other of:",
}

_HINT_SYSTEM = (
    "You write hints. A hint tells the key insight of a {noun} and the form of a good answer. "
    "It holds on every seed. It never gives the answer, a full list of actions, numbers that "
    "the solution returns, or code. At most 600 characters, plain text, the hint only."
)


def structured_messages(
    style: str,
    skill: str,
    max_turns: int,
    memory: Sequence[Remembered],
    descent: Descent | None = None,
    refused: Refused | None = None,
) -> Messages:
    """Ask for a specification.

    Args:
        style: One of `PROMPT_STYLES`.
        skill: Key of `designer.families.SKILLS` or `TOOL_SKILLS`.
        max_turns: Turn cap in force.
        memory: Environments to differ from.
        descent: Parents, where the specification is to be made of some.
        refused: A draft not to write like.

    Raises:
        ValueError: If the style is unknown.
    """
    if style not in PROMPT_STYLES:
        raise ValueError(f"unknown prompt style {style!r}; one of {PROMPT_STYLES}")
    parents = [parent.spec_json for parent in descent.parents] if descent else []
    if style == "compact":
        verb = descent.operator if descent else "design"
        words = [verb, skill, str(max_turns), *parents]
        return [{"role": "user", "content": " ".join(words) + "\n"}]
    noun = NOUNS["tool_use" if skill in TOOL_SKILLS else "game"]
    lines = [
        f"Skill: {(SKILLS | TOOL_SKILLS)[skill]}. The player has {max_turns} turns.",
        "Families and parameters (c=1 tells the hidden rule to everybody, c=0 keeps it for the "
        "hint; s spare turns):",
    ]
    for family in families_of(skill):
        spans = " ".join(f"{n}={v[0]}..{v[-1]}" for n, v in family.parameters.items())
        lines.append(f"- {family.name}: {family.about}. {spans}")
    lines += memory_lines(memory, refused, noun, with_source=False)
    if descent is not None:
        lines.append(f"{_STRUCTURED_DESCENT[descent.operator]} {' and '.join(parents)}")
    lines.append("Write one specification.")
    return [
        {"role": "system", "content": _STRUCTURED_SYSTEM.format(noun=noun)},
        {"role": "user", "content": "\n".join(lines)},
    ]


def hint_messages(source: str, kind: str) -> Messages:
    """Ask for the hint of a program of a kind of `NOUNS`, its source shown."""
    noun = NOUNS[kind]
    return [
        {"role": "system", "content": _HINT_SYSTEM.format(noun=noun)},
        {"role": "user", "content": f"The {noun}:\n```python\n{source}```\nWrite the hint."},
    ]


def memory_lines(
    memory: Sequence[Remembered], refused: Refused | None, noun: str, *, with_source: bool
) -> list[str]:
    """Remembered environments to differ from, a line each, and one not to write like.

    Args:
        memory: Environments that passed.
        refused: A draft that did not; None for none.
        noun: What they are called.
        with_source: Whether programs are shown by class and docstring, not by specification.
    """
    lines = []
    if memory:
        lines.append(f"Earlier {noun}s, with the player's mean return; write something else:")
    for entry in memory:
        what = entry.summary if with_source else entry.spec_json
        lines.append(
            f"- {what} (plain {entry.return_plain:.2f}, hinted {entry.return_hinted:.2f})"
        )
    if refused is not None:
        why = " ".join(refused.why.split())[:MAX_WHY_CHARACTERS]
        lines.append(f"Not like this one, which was refused: {refused.summary} ({why})")
    return lines
