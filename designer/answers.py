"""What the actions of a solution say: their values, without the form that step() takes them in."""

from __future__ import annotations

import bisect
import unicodedata
from collections.abc import Iterator

# Signs that may stand between the values of a sequence that a text tells; blanks, too.
_BETWEEN = frozenset(",;:>-|/.\"'()[]")

# A program chooses both the values and the texts that they are looked for in. Whatever they are,
# what follows takes time in proportion to their lengths; regular expressions would not.


def tagged(text: str, opening: str, closing: str) -> Iterator[tuple[int, int]]:
    """Where texts between two marks begin and end, from one closing mark to the next."""
    end = 0
    while (start := text.find(opening, end)) >= 0:
        start += len(opening)
        stop = text.find(closing, start)
        if stop < 0:
            return
        yield start, stop
        end = stop + len(closing)


def _value_place(action: str) -> tuple[int, int] | None:
    """Where the value of a boxed or tagged action begins and ends; None for any other."""
    start = action.find("\\boxed{")
    stop = action.rfind("}")
    if 0 <= start < stop:
        return start + len("\\boxed{"), stop
    return next(tagged(action, "<answer>", "</answer>"), None)


def value_of(action: str) -> str:
    """What is in the action's box or answer tags, else the action; "" for a tool call."""
    if "<tool_call>" in action:
        return ""
    place = _value_place(action)
    return (action[slice(*place)] if place else action).strip()


def with_value(action: str, value: str) -> str:
    """The action with another value in the same form."""
    if (place := _value_place(action)) is None:
        return value
    start, stop = place
    return action[:start] + value + action[stop:]


def find_sequence(values: list[str], text: str) -> bool:
    """Whether the text tells these values in order, with nothing but signs between them."""
    text = text.lower()
    words = [value.lower() for value in values]
    if not words or not all(word in text for word in words):
        return False
    gaps = _gap_starts(text)
    ends: list[int] = []
    for number, word in enumerate(words):
        places = _places(word, text)
        if number:
            # The last value must end where only signs are between it and this one.
            places = (
                p
                for p in places
                if (i := bisect.bisect_left(ends, gaps[p])) < len(ends) and ends[i] <= p
            )
        else:
            places = (p for p in places if not _is_word(text[p - 1 : p]))
        ends = [place + len(word) for place in places]
    return any(not _is_word(text[end : end + 1]) for end in ends)


def squeezed(text: str) -> str:
    """A text's letters and digits alone, those that look alike made one, in small letters.

    So that blanks or signs in a word, some of which nobody sees, hide it from no search.
    """
    plain = unicodedata.normalize("NFKC", text).lower()
    return "".join(character for character in plain if character.isalnum())


def _places(word: str, text: str) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + 1)


def _gap_starts(text: str) -> list[int]:
    """For each place, where the blanks and signs before it begin."""
    starts = [0]
    for place, character in enumerate(text, 1):
        is_gap = character in _BETWEEN or character.isspace()
        starts.append(starts[-1] if is_gap else place)
    return starts


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
