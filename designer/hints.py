"""The hint filter: a hint may tell how a good answer looks, never the answer."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence

MAX_HINT_CHARACTERS = 600
# A sequence of so few characters turns up in a sentence by chance.
SHORT_ANSWER_CHARACTERS = 6
_BETWEEN = r"[\s,;:>\-|/.\"'()\[\]]*"


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


def check_hint_against(hint: str, solutions: Sequence[Sequence[str]]) -> None:
    """Look for the answer in a hint.

    A hint is one text for all seeds. A single value that solution() returns, or a whole
    sequence of actions, refuses it; a sequence of a few single characters only if it is the
    solution of more than half of the seeds, since chance puts "n", "o" in any sentence.

    Args:
        hint: The hint.
        solutions: Actions of an oracle play on each tested seed.

    Raises:
        HintError: If the hint gives the answer.
    """
    short_hits: Counter[str] = Counter()
    for actions in solutions:
        plain = [_unboxed(action) for action in actions if _unboxed(action)]
        if not plain:
            continue
        pattern = _BETWEEN.join(re.escape(action) for action in plain)
        found = re.search(rf"(?<!\w){pattern}(?!\w)", hint, re.IGNORECASE)
        if not found:
            continue
        if sum(map(len, plain)) >= SHORT_ANSWER_CHARACTERS or len(plain) == 1:
            raise HintError(f"the hint holds the solution {' '.join(plain)[:80]!r}")
        short_hits[" ".join(plain)] += 1
    for answer, hits in short_hits.items():
        if hits > len(solutions) / 2:
            raise HintError(f"the hint holds {answer!r}, the solution of most seeds")


def _unboxed(action: str) -> str:
    match = re.search(r"\\boxed\{(.*)\}", action, re.DOTALL)
    return (match.group(1) if match else action).strip()
