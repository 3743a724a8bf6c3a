"""What a model thinks: can this environment be solved? Kept beside the gates' word.

An opinion passes nothing that a gate refuses, and refuses nothing that the gates pass. What it is
worth is told by comparing it with what the oracle, and players, could do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from designer.drafts import DesignRequest, GateReport, Reason
from designer.entries import Entry
from designer.prompts import NOUNS

MAX_REASON_CHARACTERS = 500
OPINION_TOKENS = 200
_SYSTEM = (
    "You check {noun}s for faults. You are shown a program and its turn cap. Decide whether a "
    "player who sees only what reset and step return can win it, on every seed, within the cap. "
    'Answer with one JSON object: {{"solvable": true or false, "reason": "one sentence"}}.'
)
# Verdicts of gates that are asked before the oracle plays: nothing is known of its winning.
_BEFORE_ORACLE = tuple(list(Reason)[: list(Reason).index(Reason.ORACLE)])
# Mean return from which players are said to have won now and then.
_WON = 0.05


@dataclass(frozen=True)
class Opinion:
    """A model's word on an environment.

    Attributes:
        solvable: None where its answer could not be read.
        reason: In its own words, cut.
    """

    solvable: bool | None
    reason: str


@dataclass(frozen=True)
class Confusion:
    """Opinions against what is known; counts of environments.

    Attributes:
        right_yes: Said to be solvable, and it is.
        wrong_yes: Said to be, and is not.
        right_no: Said not to be, and is not.
        wrong_no: Said not to be, and is.
    """

    right_yes: int
    wrong_yes: int
    right_no: int
    wrong_no: int

    @property
    def yes(self) -> int:
        return self.right_yes + self.wrong_yes

    @property
    def solvable(self) -> int:
        return self.right_yes + self.wrong_no


def opinion_request(report: GateReport) -> DesignRequest | None:
    """Ask a model about a program that was at least loaded; None for any other draft."""
    draft = report.draft
    if report.program is None or draft.source is None or report.reason == Reason.UNJUDGED:
        return None
    asked = f"Turn cap: {draft.request.max_turns}.\n```python\n{draft.source}\n```"
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": _SYSTEM.format(noun=NOUNS[draft.request.kind])},
        {"role": "user", "content": asked},
    ]
    return replace(draft.request, messages=messages, json_schema=None)


def read_opinion(completion: str) -> Opinion:
    """Read an answer; one that is none is kept as that."""
    for found in re.findall(r"\{[^{}]*\}", completion):
        try:
            values = json.loads(found)
        except ValueError:
            continue
        if isinstance(values, dict) and isinstance(values.get("solvable"), bool):
            reason = str(values.get("reason", ""))[:MAX_REASON_CHARACTERS]
            return Opinion(values["solvable"], reason)
    return Opinion(None, completion[:MAX_REASON_CHARACTERS])


def solved_by_oracle(entry: Entry) -> bool | None:
    """Whether its own solution wins; None where no gate got that far."""
    if entry.reason == Reason.ORACLE:
        return False
    unknown = (*_BEFORE_ORACLE[1:], Reason.UNJUDGED)
    return None if entry.reason in unknown else True


def solved_by_players(entry: Entry) -> bool | None:
    """Whether players, with the hint or without, won now and then; None if none played."""
    returns = [value for value in (entry.return_plain, entry.return_hinted) if value is not None]
    return max(returns) >= _WON if returns else None


def confusion(entries: Iterable[Entry], known: Callable[[Entry], bool | None]) -> Confusion:
    """Compare the opinions of an archive with what is known.

    Args:
        entries: Those without an opinion, or of which nothing is known, are left out.
        known: `solved_by_oracle` or `solved_by_players`.
    """
    counts = {(said, is_so): 0 for said in (True, False) for is_so in (True, False)}
    for entry in entries:
        is_so = known(entry)
        if entry.opinion is not None and is_so is not None:
            counts[entry.opinion, is_so] += 1
    return Confusion(
        right_yes=counts[True, True],
        wrong_yes=counts[True, False],
        right_no=counts[False, False],
        wrong_no=counts[False, True],
    )
