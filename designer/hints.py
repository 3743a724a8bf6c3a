"""The hint filter: a hint may tell how a good answer looks, never the answer."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence

from designer.answers import find_sequence, value_of

MAX_HINT_CHARACTERS = 600
# A sequence of so few characters turns up in a sentence by chance.
SHORT_ANSWER_CHARACTERS = 8
# A value of so few characters, too: a small number, a letter, "up".
SHORT_VALUE_CHARACTERS = 3
_QUOTED = re.compile(
    r"(\\boxed\{[^{}]*\}|<tool_call>.*?</tool_call>|<answer>.*?</answer>)"
    r"|`([^`\n]+)`|\"([^\"\n]+)\"|(?<!\w)'([^'\n]+)'(?!\w)|\u201c([^\u201d\n]+)\u201d",
    re.DOTALL,
)


class HintError(ValueError):
    """The hint is refused; the message says why."""


def check_hint_text(hint: str) -> None:
    """What can be said of a hint without knowing the answer.

    Raises:
        HintError: If it is empty, too long or code.
    """
    if not hint.strip():
        raise HintError("the hint is empty")
    if len(hint) > MAX_HINT_CHARACTERS:
        raise HintError(f"the hint has {len(hint)} characters; at most {MAX_HINT_CHARACTERS}")
    if _is_code(hint):
        raise HintError("the hint holds code")


def _is_code(hint: str) -> bool:
    if "```" in hint or re.search(
        r"^\s*(def|class|import|from|return|for|while)\b.*[:(]", hint, re.M
    ):
        return True
    if re.search(r"\bself\.\w+|\blambda\b.*:", hint):
        return True
    try:
        tree = ast.parse(hint)
    except (SyntaxError, ValueError):
        return False
    return any(
        isinstance(node, ast.Assign | ast.Call | ast.For | ast.If) for node in ast.walk(tree)
    )


def check_hint_against(
    hint: str, solutions: Sequence[Sequence[str]], openings: Sequence[str] = ()
) -> None:
    """Look for the answer in a hint.

    A hint is one text for all seeds. A single value that solution() returns, or a whole
    sequence of actions, refuses it; a sequence of a few single characters only if it is the
    solution of more than half of the seeds, since chance puts "n", "o" in any sentence. So
    does any one value of a solution that no chance puts there, unless it is a move: the player
    is told it anyway, or the solutions of most seeds have it.

    Args:
        hint: The hint.
        solutions: Actions of an oracle play on each tested seed.
        openings: First observations, and what else the player is told of the moves.

    Raises:
        HintError: If the hint gives the answer.
    """
    short_hits: Counter[str] = Counter()
    for actions in solutions:
        plain = [value for action in actions if (value := value_of(action))]
        if not find_sequence(plain, hint):
            continue
        if sum(map(len, plain)) >= SHORT_ANSWER_CHARACTERS or len(plain) == 1:
            raise HintError(f"the hint holds the solution {' '.join(plain)[:80]!r}")
        short_hits[" ".join(plain)] += 1
    for answer, hits in short_hits.items():
        if hits > len(solutions) / 2:
            raise HintError(f"the hint holds {answer!r}, the solution of most seeds")
    told = "\n".join(openings).casefold()
    seeds_of = Counter(
        value for actions in solutions for value in {value_of(action) for action in actions}
    )
    for value, seeds in sorted(seeds_of.items()):
        is_move = not openings or value.casefold() in told or seeds > len(solutions) / 2
        if len(value) >= SHORT_VALUE_CHARACTERS and not is_move and find_sequence([value], hint):
            raise HintError(f"the hint holds {value[:80]!r}, which solution() returns")


def quoted_commands(hint: str, like: Sequence[str]) -> list[str]:
    """Commands that the hint quotes, in the form that the solution's actions have.

    Args:
        hint: The hint.
        like: Actions of a solution; where they are boxed, so are the commands.
    """
    quoted = [next(filter(None, found)) for found in _QUOTED.findall(hint)]
    boxed = any("\\boxed" in action for action in like)
    return [f"\\boxed{{{said}}}" if boxed and "\\boxed" not in said else said for said in quoted]
