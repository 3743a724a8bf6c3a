"""What the gates do to a program: hostile actions, and policies that understand nothing."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Sequence

# Policies see the last observation and the turn's index; None ends the play.
Policy = Callable[[str, int], str | None]

# Below the usual cap of an observation, so that a program may echo it.
_HUGE_BYTES = 16_000
_TOKEN = re.compile(r"[A-Za-z]+|-?\d+(?:\.\d+)?|[^\sA-Za-z0-9]")
_ALPHANUMERIC = string.digits + string.ascii_letters
_GUESSES = ("0", "1", "A", "yes")
_MAX_CONSTANTS = 10


def fuzz_actions(max_action_bytes: int = 0) -> list[str]:
    """Fifty actions that a careless parser stumbles over.

    Args:
        max_action_bytes: The program's limit, which no action exceeds; 0 means unknown.
    """
    huge = min(_HUGE_BYTES, max_action_bytes) if max_action_bytes else _HUGE_BYTES
    # The huge ones first: whoever plays them finds what chokes on them.
    texts = ["x" * huge, "🦆" * (huge // 4), "\\boxed{" * (huge // 7), "a b " * (huge // 4)]
    texts += ["9" * min(5_000, huge), "(" * min(500, huge)]
    texts += ["", " ", "\n", "\t \r\n", "\x00", "\x1b[2J"]
    texts += ["é", "e\u0301", "\u202eabc", "\ufeff1", "\uff11\uff12"]
    texts += ["\u0663", "ß", "中文", "\U0001d7dc", "½"]
    boxed = ["", " ", "{", "}", "None", "-1", "0", "1", "99999999999999999999", "1.5", "1e309"]
    boxed += ["nan", "1,2", "(1, 2)", "[[]]", '{"a": 1}', "a b c d", "\\boxed{1}", "💥", "²"]
    texts += [f"\\boxed{{{text}}}" for text in boxed]
    texts += ["\\boxed{", "}", "\\boxed", "<answer>", "<tool_call>{</tool_call>", "{0}", "%s%n"]
    texts += ["None"]
    return texts


def replayed(actions: Sequence[str]) -> Policy:
    """Plays the given actions, then stops."""
    return lambda _, turn: actions[turn] if turn < len(actions) else None


def constant(action: str) -> Policy:
    """Plays one action over and over."""
    return lambda _, __: action


def cycled(actions: Sequence[str]) -> Policy:
    """Plays the given actions over and over."""
    return lambda _, turn: actions[turn % len(actions)]


def guessing(rng: random.Random, listed: Sequence[str] = ()) -> Policy:
    """Random actions.

    With `listed`, one of these, as it stands. Without, in a box: half of the time a word,
    number or sign of the last observation, else a character out of it, a digit or a letter.
    """

    def policy(observation: str, _: int) -> str:
        if listed:
            return rng.choice(listed)
        tokens = _TOKEN.findall(observation)
        if tokens and rng.random() < 0.5:
            return f"\\boxed{{{rng.choice(tokens)}}}"
        characters = sorted(set(observation) - set(string.whitespace)) + list(_ALPHANUMERIC)
        return f"\\boxed{{{rng.choice(characters)}}}"

    return policy


def constant_actions(observation: str, listed: Sequence[str] = ()) -> list[str]:
    """Actions worth repeating: those listed, else what the first observation names."""
    if listed:
        return list(listed)
    tokens = list(dict.fromkeys([*_quoted(observation), *_TOKEN.findall(observation)]))
    return [f"\\boxed{{{t}}}" for t in [*_GUESSES, *tokens][:_MAX_CONSTANTS]]


def _quoted(observation: str) -> list[str]:
    return re.findall(r"['\"`]([^'\"`\n]{1,20})['\"`]", observation)
