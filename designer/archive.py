"""The environment archive of a run: what was designed, how it was judged and played.

One SQLite file in WAL mode, so that a report can read while a run writes. Everything is
keyed by the training step; writing a step again after a resume replaces its rows.
"""

from __future__ import annotations

import ast
import json
import math
import random
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from designer.archive_schema import migrate
from designer.drafts import GateReport, Reason
from designer.entries import Entry, EntryFilter, select
from designer.forgetting import forget_steps, keep_former

REFUSED_PREFIX = "refused:"
IMPORTED_PREFIX = "imported:"
# Before all training steps, so that no run forgets what it was given.
GIVEN_STEP = 0
# Standard errors that a regret must stand above zero for its environment to rank high.
CONFIDENCE_Z = 1.0
# The regime whose environments lead a prompt; the trainer's word, as `trainer.rewards` has it.
FRONTIER = "frontier"
# Verdicts that say something about a world, and not only about its text or the service.
TELLING = tuple(
    map(
        str,
        (
            Reason.FUZZ,
            Reason.NONDETERMINISTIC,
            Reason.SAME_START,
            Reason.ORACLE,
            Reason.CRITERION,
            Reason.UNREVEALED,
            Reason.BLIND_WIN,
            Reason.PERTURBED_WIN,
            Reason.VERIFY,
            Reason.LEAK,
        ),
    )
)
# Refused drafts among which one is drawn.
LATEST_REFUSED = 20


@dataclass(frozen=True)
class Remembered:
    """An environment of the memory, as a prompt shows it.

    Attributes:
        summary: Class name and first docstring line, or the specification.
        return_plain: Mean plain return at the last measurement; NaN if never measured.
        score: Lower confidence bound of the regret; what the memory ranks by.
    """

    env_id: str
    skill: str
    spec_json: str
    summary: str
    source: str
    hint: str
    return_plain: float
    return_hinted: float
    regime: str
    score: float


@dataclass(frozen=True)
class Refused:
    """A draft that the gates refused, as a prompt shows it.

    Attributes:
        why: The gate's reason, and what it found.
    """

    summary: str
    why: str


class Archive:
    """The archive's file, opened for reading and writing.

    Args:
        path: The file; made, with its folder, if it is not there. ":memory:" for none.

    Raises:
        ArchiveError: If the file is newer than this version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        if self.path != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Calls may come from the loop's worker threads; sqlite3 serialises them itself.
        self._connection = sqlite3.connect(self.path, timeout=30.0, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("PRAGMA journal_mode=WAL")
        # A run that is killed loses nothing; only a machine that loses power could.
        self._connection.execute("PRAGMA synchronous=NORMAL")
        try:
            migrate(self._connection, self.path)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        self._connection.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next_step(self) -> int:
        """The first step that has no rows: 0 for an empty archive."""
        row = self._connection.execute(
            "SELECT MAX(s) FROM (SELECT MAX(designed_step) s FROM environments"
            " UNION ALL SELECT MAX(step) FROM plays UNION ALL SELECT MAX(step) FROM measurements)"
        ).fetchone()
        return 0 if row[0] is None else row[0] + 1

    def discard_from(self, step: int) -> None:
        """Forget everything of this step and later ones: for a run that resumes at `step`.

        An environment that was designed before, and again since, is what it was before.
        """
        self._discard(step, 2**62)

    def discard_step(self, step: int) -> None:
        """Forget everything of one step, before it is written again."""
        self._discard(step, step)

    def _discard(self, first: int, last: int) -> None:
        with self._connection as db:
            forget_steps(db, first, last)

    def record_design(self, report: GateReport, step: int, number: int) -> str:
        """Store a draft and its verdict, refused ones too.

        A passed environment that was designed before keeps its first step.

        Args:
            report: The verdict.
            step: Training step.
            number: Position among the step's drafts; names a refused one.

        Returns:
            The row's env_id.
        """
        return self._record(report, f"{REFUSED_PREFIX}{step}:{number}", step)

    def record_import(self, report: GateReport, key: str, step: int) -> str:
        """Store an environment of somebody else's, and what the gates here said of it.

        Args:
            report: The verdict; UNJUDGED where they were not asked.
            key: Identity of the program; names one that did not pass.
            step: Before all training steps, so that no run forgets it.

        Returns:
            The row's env_id.
        """
        return self._record(report, f"{IMPORTED_PREFIX}{key[:16]}", step)

    def record_given(self, report: GateReport, program_id: str) -> str:
        """Store an environment that a run was given, and no gate has seen.

        Args:
            report: UNJUDGED.
            program_id: Names it.

        Returns:
            The row's env_id.
        """
        return self._record(report, program_id, GIVEN_STEP)

    def _record(self, report: GateReport, unless_passed: str, step: int) -> str:
        draft = report.draft
        request = draft.request
        env_id = report.env_id if report.passed else unless_passed
        kind = report.program.kind.name if report.program and report.program.kind else ""
        row = {
            "env_id": env_id,
            "created_step": step,
            "designed_step": step,
            "slot": request.slot,
            "kind": kind,
            "method": request.method,
            "skill": request.skill,
            "family": draft.family,
            "spec_json": _compact(draft.spec) if draft.spec is not None else None,
            "source": draft.source,
            "hint": draft.hint,
            "prompt": json.dumps(request.messages, ensure_ascii=False),
            "completion": draft.completion,
            "gate_reason": str(report.reason),
            "gate_detail": report.detail,
            "gate_cost_json": json.dumps({k: round(v, 6) for k, v in report.cost_s.items()}),
            "parents_json": json.dumps(request.parents),
            "operator": str(request.operator),
            "document": request.document,
            "repair_of": request.repair_of,
            "round": request.round,
            "difficulty": request.difficulty,
            "finding_json": json.dumps(asdict(report.finding)) if report.finding else None,
        }
        names = ", ".join(row)
        marks = ", ".join(f":{name}" for name in row)
        kept = ("env_id", "created_step")
        updates = ", ".join(f"{name} = excluded.{name}" for name in row if name not in kept)
        with self._connection as db:
            keep_former(db, env_id, step)
            db.execute(
                f"INSERT INTO environments ({names}) VALUES ({marks})"
                f" ON CONFLICT (env_id) DO UPDATE SET {updates}",
                row,
            )
        return env_id

    def record_opinion(self, env_id: str, solvable: bool | None, reason: str) -> None:
        """Store what a model thinks of an environment; None where it was not understood."""
        with self._connection as db:
            db.execute(
                "UPDATE environments SET opinion = ?, opinion_reason = ? WHERE env_id = ?",
                (None if solvable is None else int(solvable), reason, env_id),
            )

    def record_plays(self, env_id: str, step: int, plays: Sequence[Mapping[str, Any]]) -> None:
        """Store the plays of an environment in a step, in place of those stored before.

        Args:
            plays: Mappings with arm ("plain" or "hinted"), seed, episode_return (None if
                lost), terminated, truncated and turns.
        """
        rows = [
            (
                env_id,
                step,
                play["arm"],
                play["seed"],
                play["episode_return"],
                int(bool(play["terminated"])),
                int(bool(play["truncated"])),
                play["turns"],
            )
            for play in plays
        ]
        with self._connection as db:
            db.execute("DELETE FROM plays WHERE env_id = ? AND step = ?", (env_id, step))
            db.executemany("INSERT INTO plays VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def record_measurement(
        self,
        env_id: str,
        step: int,
        *,
        return_plain: float,
        return_hinted: float,
        regret: float,
        regret_se: float,
        regime: str,
        designer_reward: float | None,
    ) -> None:
        """Store what the plays of a step showed; the pairs are counted from the plays."""
        values = [_finite(v) for v in (return_plain, return_hinted, regret, regret_se)]
        with self._connection as db:
            (pairs,) = db.execute(
                "SELECT COUNT(*) FROM plays a JOIN plays b ON a.env_id = b.env_id"
                " AND a.step = b.step AND a.seed = b.seed"
                " WHERE a.env_id = ? AND a.step = ? AND a.arm = 'plain' AND b.arm = 'hinted'"
                " AND a.episode_return IS NOT NULL AND b.episode_return IS NOT NULL",
                (env_id, step),
            ).fetchone()
            db.execute(
                "INSERT OR REPLACE INTO measurements VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (env_id, step, *values, regime, pairs),
            )
            if designer_reward is not None:
                db.execute(
                    "UPDATE environments SET designer_reward = ? WHERE env_id = ?",
                    (_finite(designer_reward), env_id),
                )

    def programs(self) -> list[tuple[str, bool, str]]:
        """Of all environments that passed: env_id, whether structured, and source."""
        rows = self._connection.execute(
            "SELECT env_id, method, source FROM environments WHERE gate_reason = 'OK'"
        )
        return [(row["env_id"], row["method"] == "structured", row["source"]) for row in rows]

    def entries(self, wanted: EntryFilter) -> list[Entry]:
        """What it holds, refused drafts too, by step."""
        return list(select(self._connection, wanted))

    def reason_counts(self, step: int | None = None) -> dict[str, int]:
        """Drafts by reason code, of one step or of all."""
        rows = self._connection.execute(
            "SELECT gate_reason, COUNT(*) FROM environments"
            " WHERE ? IS NULL OR designed_step = ? GROUP BY gate_reason",
            (step, step),
        )
        return {reason: count for reason, count in rows}

    def document_counts(self, *, before_step: int) -> dict[str, int]:
        """How many first drafts each document was drawn for, in steps before this one."""
        rows = self._connection.execute(
            "SELECT document, COUNT(*) FROM environments"
            " WHERE document != '' AND round = 0 AND created_step < ? GROUP BY document",
            (before_step,),
        )
        return {document: count for document, count in rows}

    def sample_memory(
        self, skill: str, count: int, rng: random.Random, *, before_step: int | None = None
    ) -> list[Remembered]:
        """Draw remembered environments of a skill for a prompt.

        Half (rounded up) are those of the frontier with the largest lower confidence bound of the
        regret: with few plays a mean alone rewards noise, and what only its password opens has
        the largest regret of all. The rest are drawn evenly from the others.

        Args:
            skill: Key of `SKILLS`.
            count: How many at most.
            rng: Source of chance.
            before_step: Only environments created before this step; makes a resumed run
                see the same memory.
        """
        rows = self._connection.execute(
            "SELECT e.*, m.return_plain, m.return_hinted, m.regret, m.regret_se, m.regime"
            " FROM environments e LEFT JOIN measurements m ON m.env_id = e.env_id AND m.step ="
            " (SELECT MAX(step) FROM measurements WHERE env_id = e.env_id"
            "  AND regret IS NOT NULL AND (:step IS NULL OR step < :step))"
            " WHERE e.gate_reason = 'OK' AND e.skill = :skill"
            " AND (:step IS NULL OR e.created_step < :step) ORDER BY e.env_id",
            {"skill": skill, "step": before_step},
        )
        entries = sorted(map(_remembered, rows), key=lambda entry: -entry.score)
        frontier = [entry for entry in entries if entry.regime == FRONTIER]
        top = frontier[: math.ceil(count / 2)]
        others = [entry for entry in entries if entry not in top]
        return top + rng.sample(others, min(len(others), count - len(top)))

    def sample_refused(
        self, skill: str, rng: random.Random, *, before_step: int | None = None
    ) -> Refused | None:
        """Draw a draft of a skill that the gates refused: what not to write, and why.

        From the latest ones, which are most like what the model writes now; None if there is
        none. What the sandbox or the text alone refused teaches nothing about worlds.

        Args:
            skill: Key of `SKILLS`.
            rng: Source of chance.
            before_step: Only drafts of earlier steps.
        """
        marks = ", ".join("?" for _ in TELLING)
        rows = self._connection.execute(
            f"SELECT * FROM environments WHERE skill = ? AND gate_reason IN ({marks})"
            " AND (? IS NULL OR created_step < ?) ORDER BY created_step DESC, env_id LIMIT ?",
            (skill, *TELLING, before_step, before_step, LATEST_REFUSED),
        ).fetchall()
        if not rows:
            return None
        row = rng.choice(rows)
        summary = row["spec_json"] or _summary(row["source"] or "")
        return Refused(summary=summary, why=f"{row['gate_reason']}: {row['gate_detail']}")


def _compact(spec: Mapping[str, Any]) -> str:
    return json.dumps(spec, separators=(",", ":"))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _remembered(row: sqlite3.Row) -> Remembered:
    regret, error = row["regret"], row["regret_se"]
    score = -math.inf if regret is None else regret - CONFIDENCE_Z * (error or 0.0)
    return Remembered(
        env_id=row["env_id"],
        skill=row["skill"],
        spec_json=row["spec_json"] or "",
        summary=row["spec_json"] or _summary(row["source"] or ""),
        source=row["source"] or "",
        hint=row["hint"] or "",
        return_plain=math.nan if row["return_plain"] is None else row["return_plain"],
        return_hinted=math.nan if row["return_hinted"] is None else row["return_hinted"],
        regime=row["regime"] or "",
        score=score,
    )


def _summary(source: str) -> str:
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Env"):
            lines = (ast.get_docstring(node) or "").splitlines()
            return f"{node.name}: {lines[0]}" if lines else node.name
    return ""
