"""A model's opinion of what can be solved: kept, compared, and never decisive."""

from __future__ import annotations

from typing import Any

import pytest

from designer import Archive, Designer, Reason
from designer.entries import Entry, EntryFilter
from designer.opinions import (
    Confusion,
    Opinion,
    confusion,
    read_opinion,
    solved_by_oracle,
    solved_by_players,
)
from designer.writing import WritingSettings
from tests.designer import programs


def entry(reason: str = "OK", opinion: bool | None = True, **changes: Any) -> Entry:
    values: dict[str, Any] = dict.fromkeys(Entry.__dataclass_fields__)
    return Entry(**{**values, "reason": reason, "opinion": opinion, **changes})


@pytest.mark.parametrize(
    ("text", "opinion"),
    [
        ('{"solvable": true, "reason": "easy"}', Opinion(True, "easy")),
        ('So: ```json\n{"solvable": false, "reason": "r"}\n```', Opinion(False, "r")),
        ('{"solvable": "yes"} {"solvable": false}', Opinion(False, "")),
        ("I think so.", Opinion(None, "I think so.")),
        ("{" * 10_000, Opinion(None, "{" * 500)),
    ],
)
def test_an_opinion_is_read_or_kept_as_none(text: str, opinion: Opinion) -> None:
    assert read_opinion(text) == opinion


def test_what_is_known_of_an_oracle_is_what_the_gates_saw() -> None:
    assert solved_by_oracle(entry("OK")) is True
    assert solved_by_oracle(entry("LEAK")) is True
    assert solved_by_oracle(entry("BLIND_WIN")) is True
    assert solved_by_oracle(entry("ORACLE")) is False
    for reason in ("PARSE", "LOAD", "FUZZ", "SAME_START", "UNJUDGED"):
        assert solved_by_oracle(entry(reason)) is None


def test_players_have_solved_what_they_won_with_the_hint_or_without() -> None:
    assert solved_by_players(entry(return_plain=0.0, return_hinted=0.5)) is True
    assert solved_by_players(entry(return_plain=0.0, return_hinted=0.01)) is False
    assert solved_by_players(entry()) is None


def test_opinions_are_counted_against_what_is_known() -> None:
    entries = [entry("OK"), entry("OK"), entry("ORACLE"), entry("OK", False)]
    entries += [entry("ORACLE", False), entry("OK", None), entry("PARSE")]
    counts = confusion(entries, solved_by_oracle)
    assert counts == Confusion(right_yes=2, wrong_yes=1, right_no=1, wrong_no=1)
    assert (counts.yes, counts.solvable) == (3, 3)


class Writer:
    """Writes one sound and one impossible program; thinks the contrary of both."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def complete(self, requests, max_tokens, done=None):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        from trainer.protocols import Answer

        system = request.messages[0]["content"]
        if "You check games" in system:
            self.asked.append(request.messages[1]["content"])
            sound = programs.SOUND in self.asked[-1]
            return Answer(f'{{"solvable": {str(not sound).lower()}, "reason": "so it seems"}}')
        if "You write hints" in system:
            return Answer("Follow the arrows.")
        source = (programs.SOUND, programs.IMPOSSIBLE, programs.NO_PARSE)[request.slot]
        return Answer(f"```python\n{source}```")


async def test_an_opinion_changes_no_verdict(client) -> None:
    with Archive(":memory:") as archive:
        designer = Designer(
            client,
            archive,
            method="free_code",
            max_turns=10,
            twin_similarity=2.0,
            writing=WritingSettings(opinions=True),
        )
        writer = Writer()
        outcome = await designer.write(writer, 3, 0)
        reasons = [report.reason for report in outcome.reports]
        assert reasons == [Reason.OK, Reason.ORACLE, Reason.PARSE]
        # Of a program that does not load there is nothing to think.
        assert len(writer.asked) == 2
        found = {e.reason: (e.opinion, e.opinion_reason) for e in archive.entries(EntryFilter())}
        assert found["OK"] == (False, "so it seems")
        assert found["ORACLE"] == (True, "so it seems")
        assert found["PARSE"] == (None, "")
        counts = confusion(archive.entries(EntryFilter()), solved_by_oracle)
        assert counts == Confusion(right_yes=0, wrong_yes=1, right_no=0, wrong_no=1)
