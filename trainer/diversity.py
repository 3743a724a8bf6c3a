"""How different the environments of a step are: a score, a class that floods them, novelty."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

# Words and signs in a row that make one feature of a program.
NGRAM = 3
# Share of a step's environments of one class from which it is said to flood them, and the least
# number of environments of which that can be said.
FLOOD_SHARE, FLOOD_COUNT = 0.5, 4
_TOKEN = re.compile(r"\w+|[^\w\s]")
_CLASS = re.compile(r"^class (\w+Env)\b", re.MULTILINE)


def similarities(sources: Sequence[str], others: Sequence[str] | None = None) -> np.ndarray:
    """Cosine similarities of programs by how often each row of three tokens occurs in them.

    Args:
        sources: Programs, n of them.
        others: Programs to compare them with, m of them; None compares them with themselves.

    Returns:
        In [0, 1], of shape (n, m).
    """
    left = [_features(source) for source in sources]
    right = left if others is None else [_features(source) for source in others]
    result = np.zeros((len(left), len(right)))
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            shared = sum(count * other[feature] for feature, count in one.items())
            norms = _norm(one) * _norm(other)
            result[i, j] = shared / norms if norms else float(one == other)
    return result


def vendi_score(similarity: np.ndarray) -> float:
    """The effective number of different items: 1 of copies, n of n that share nothing.

    Args:
        similarity: Positive semidefinite with a diagonal of ones, of shape (n, n).

    Returns:
        exp of the entropy of the eigenvalues of similarity / n; NaN of no items.

    Source: arXiv:2210.02410.
    """
    n = len(similarity)
    if not n:
        return math.nan
    values = np.linalg.eigvalsh(similarity / n)
    values = values[values > 1e-12]
    return float(np.exp(-np.sum(values * np.log(values))))


def environment_class(source: str, family: str) -> str:
    """What an environment is one of: its family or, of free code, the name of its class."""
    found = _CLASS.findall(source)
    return family or (found[-1] if found else "")


def flooding_class(classes: Sequence[str]) -> tuple[str, float]:
    """The class with the most environments, if it floods them, and its share.

    Returns:
        Its name, empty where none floods; and the share of the most frequent class, NaN of none.
    """
    if not classes:
        return "", math.nan
    name, count = Counter(classes).most_common(1)[0]
    share = count / len(classes)
    floods = len(classes) >= FLOOD_COUNT and share >= FLOOD_SHARE
    return (name if floods else ""), share


def novelties(sources: Sequence[str], earlier: Sequence[str]) -> list[float]:
    """By program, one minus its similarity to the nearest of the earlier ones and of its own step.

    Args:
        sources: Programs of a step.
        earlier: Of steps before it.

    Returns:
        In [0, 1] each; 1 where there is nothing to be like.
    """
    own = similarities(sources)
    np.fill_diagonal(own, 0.0)
    nearest = own.max(axis=1, initial=0.0)
    if earlier:
        nearest = np.maximum(nearest, similarities(sources, earlier).max(axis=1))
    return [max(0.0, 1.0 - float(value)) for value in nearest]


def _features(source: str) -> Counter[tuple[str, ...]]:
    tokens = _TOKEN.findall(source)
    return Counter(zip(*(tokens[i:] for i in range(NGRAM)), strict=False))


def _norm(features: Counter[tuple[str, ...]]) -> float:
    return math.sqrt(sum(count * count for count in features.values()))
