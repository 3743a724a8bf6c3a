"""What an archive says of its environments: one entry each, filtered and in order."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from designer.drafts import Exchange, Finding, Reason

PASSED = "OK"


@dataclass(frozen=True)
class Entry:
    """An environment, or a refused draft, with its last measurement.

    Attributes:
        env_id: Program id; of what did not pass, a name within the archive.
        reason: Verdict of the gates, "OK" where it passed.
        parents: env_ids that it is made of.
        step: Training step that designed it last; -1 of an imported one.
        return_plain: Mean plain return at the last measurement; None if never measured.
        regret: Hinted minus plain there, signed, over `pairs`; `regret_se` is its paired
            standard error.
        plays: Plays recorded over all steps, both arms.
        opinion: Whether a model thinks that it can be solved; None where none was asked.
        finding: What the gates have against it; None where nothing, or nothing was kept.
    """

    env_id: str
    reason: str
    detail: str
    kind: str
    method: str
    skill: str
    family: str
    difficulty: str
    spec_json: str
    source: str
    hint: str
    document: str
    operator: str
    parents: tuple[str, ...]
    repair_of: str
    round: int
    step: int
    return_plain: float | None
    return_hinted: float | None
    regret: float | None
    regret_se: float | None
    pairs: int
    regime: str
    designer_reward: float | None
    plays: int
    opinion: bool | None
    opinion_reason: str
    finding: Finding | None

    @property
    def passed(self) -> bool:
        return self.reason == PASSED


@dataclass(frozen=True)
class EntryFilter:
    """Which entries; what is empty or None does not count.

    Attributes:
        env_id: The beginning of it.
        reason: A verdict.
        step: Training step that designed it.
    """

    env_id: str = ""
    kind: str = ""
    skill: str = ""
    regime: str = ""
    reason: str = ""
    step: int | None = None


def select(connection: sqlite3.Connection, wanted: EntryFilter) -> Iterator[Entry]:
    """The entries that a filter lets through, by step and then by env_id."""
    rows = connection.execute(
        "SELECT e.*, m.return_plain, m.return_hinted, m.regret, m.regret_se, m.n_pairs,"
        " m.regime, (SELECT COUNT(*) FROM plays WHERE env_id = e.env_id) AS plays"
        " FROM environments e LEFT JOIN measurements m ON m.env_id = e.env_id AND m.step ="
        " (SELECT MAX(step) FROM measurements WHERE env_id = e.env_id)"
        " WHERE substr(e.env_id, 1, length(:env_id)) = :env_id"
        " AND (:kind = '' OR e.kind = :kind) AND (:skill = '' OR e.skill = :skill)"
        " AND (:reason = '' OR e.gate_reason = :reason)"
        " AND (:regime = '' OR m.regime = :regime)"
        " AND (:step IS NULL OR e.designed_step = :step)"
        " ORDER BY e.designed_step, e.env_id",
        {
            "env_id": wanted.env_id,
            "kind": wanted.kind,
            "skill": wanted.skill,
            "reason": wanted.reason,
            "regime": wanted.regime,
            "step": wanted.step,
        },
    )
    return map(_entry, rows)


def _entry(row: sqlite3.Row) -> Entry:
    return Entry(
        env_id=row["env_id"],
        reason=row["gate_reason"],
        detail=row["gate_detail"],
        kind=row["kind"],
        method=row["method"],
        skill=row["skill"],
        family=row["family"],
        difficulty=row["difficulty"],
        spec_json=row["spec_json"] or "",
        source=row["source"] or "",
        hint=row["hint"] or "",
        document=row["document"],
        operator=row["operator"],
        parents=tuple(json.loads(row["parents_json"])),
        repair_of=row["repair_of"],
        round=row["round"],
        step=row["designed_step"],
        return_plain=row["return_plain"],
        return_hinted=row["return_hinted"],
        regret=row["regret"],
        regret_se=row["regret_se"],
        pairs=row["n_pairs"] or 0,
        regime=row["regime"] or "",
        designer_reward=row["designer_reward"],
        plays=row["plays"],
        opinion=None if row["opinion"] is None else bool(row["opinion"]),
        opinion_reason=row["opinion_reason"],
        finding=_finding(row["finding_json"]),
    )


def _finding(text: str | None) -> Finding | None:
    if text is None:
        return None
    values = json.loads(text)
    steps = tuple(Exchange(**step) for step in values.pop("transcript"))
    return Finding(**{**values, "reason": Reason(values["reason"]), "transcript": steps})
