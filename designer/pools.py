"""Pools of environments as files that can be shared: JSON lines, or Parquet; one a row.

A pool is somebody's word. What it says of verdicts and returns is kept for people to read and
never believed: whatever is imported has been judged by nobody until the gates have seen it.
"""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from designer.drafts import DesignRequest, Draft
from designer.entries import Entry
from designer.inspection import environment_classes
from designer.twins import program_key

SUFFIXES = (".jsonl", ".parquet")
# Longest program that is taken, in characters; models write a hundredth of it.
MAX_SOURCE_CHARACTERS = 1_000_000
MAX_HINT_CHARACTERS = 10_000
MAX_NAME_CHARACTERS = 200

# Every column, in order: its type, and what it holds.
COLUMNS: dict[str, tuple[type, str]] = {
    "program_key": (str, "hash of the program without layout, remarks and choice of names"),
    "source": (str, "the program; the one column that must be there"),
    "hint": (str, "its hint; empty for none"),
    "kind": (str, "GAME, TOOL_USE or GYMNASIUM; empty where nobody loaded it"),
    "method": (str, "structured or free_code"),
    "skill": (str, "what it asks of a player"),
    "family": (str, "of a structured one; else empty"),
    "difficulty": (str, "what was asked for; empty for none"),
    "spec_json": (str, "specification of a structured one, as JSON; else empty"),
    "document": (str, "id of the document that its setting is from; empty for none"),
    "operator": (str, "new, easier, harder, theme or crossover"),
    "parents_json": (str, "env_ids in the archive it comes from, a JSON list"),
    "env_id": (str, "its id there"),
    "step": (int, "training step that designed it there"),
    "verdict": (str, "of the gates there: OK, or the reason it was refused"),
    "detail": (str, "what the gates said of it"),
    "return_plain": (float, "mean return without the hint, at the last measurement"),
    "return_hinted": (float, "mean return with it"),
    "regret": (float, "hinted minus plain, signed"),
    "regret_se": (float, "its paired standard error"),
    "pairs": (int, "pairs of plays behind it"),
    "regime": (str, "where it stood for the agent that played it"),
}


class PoolError(ValueError):
    """A file is no pool; the message says what to do."""


@dataclass(frozen=True)
class PoolRow:
    """One row of a pool that can be used.

    Attributes:
        number: Of its line or row, from 1.
    """

    number: int
    key: str
    source: str
    hint: str
    skill: str
    family: str
    difficulty: str
    document: str

    def draft(self, slot: int, max_turns: int) -> Draft:
        """A draft for the gates; free code, since nobody vouches for its specification."""
        request = DesignRequest(
            slot=slot,
            skill=self.skill,
            method="free_code",
            messages=[],
            json_schema=None,
            max_turns=max_turns,
            seed=0,
            difficulty=self.difficulty,
            document=self.document,
        )
        return Draft(
            request, completion="", source=self.source, hint=self.hint or None, family=self.family
        )


@dataclass
class PoolRows:
    """What a pool holds.

    Attributes:
        kept: Rows that can be used, each program once.
        twins: Rows whose program is in the pool or the archive already.
        refused: Number of the row, and what is wrong with it.
    """

    kept: list[PoolRow] = field(default_factory=list)
    twins: list[int] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)


def pool_row(entry: Entry) -> dict[str, Any]:
    """An entry of an archive as a row.

    Raises:
        SyntaxError: If its source is no program.
    """
    return {
        "program_key": program_key(entry.source),
        "source": entry.source,
        "hint": entry.hint,
        "kind": entry.kind,
        "method": entry.method,
        "skill": entry.skill,
        "family": entry.family,
        "difficulty": entry.difficulty,
        "spec_json": entry.spec_json,
        "document": entry.document,
        "operator": entry.operator,
        "parents_json": json.dumps(entry.parents),
        "env_id": entry.env_id,
        "step": entry.step,
        "verdict": entry.reason,
        "detail": entry.detail,
        "return_plain": entry.return_plain,
        "return_hinted": entry.return_hinted,
        "regret": entry.regret,
        "regret_se": entry.regret_se,
        "pairs": entry.pairs,
        "regime": entry.regime,
    }


def write_pool(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a pool, in place of a file that is there; whole or not at all.

    Raises:
        PoolError: If the name has another ending, or cannot be written.
    """
    _check_suffix(path)
    scratch = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            _write_parquet(scratch, rows)
        else:
            lines = (json.dumps(row, ensure_ascii=True) + "\n" for row in rows)
            scratch.write_text("".join(lines), encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        raise PoolError(f"cannot write {path}: {error.strerror or error}") from error


def read_pool(path: Path, known: Iterable[str] = ()) -> PoolRows:
    """Read a pool; rows that cannot be used are told and the rest is kept.

    Args:
        path: The file.
        known: Keys of programs that are there already.

    Raises:
        PoolError: If it cannot be read, or is no pool at all.
    """
    _check_suffix(path)
    result = PoolRows()
    seen = set(known)
    for number, values in _rows(path):
        try:
            row = _checked(number, values)
        except PoolError as error:
            result.refused.append((number, str(error)))
            continue
        if row.key in seen:
            result.twins.append(number)
        else:
            seen.add(row.key)
            result.kept.append(row)
    return result


def _check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise PoolError(f"{path}: a pool's name ends in {' or '.join(SUFFIXES)}")


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise PoolError(f"cannot read {path}: {error.strerror}") from error


def _checked(number: int, values: Any) -> PoolRow:
    if isinstance(values, bytes):
        try:
            values = json.loads(values)
        except (ValueError, RecursionError) as error:
            raise PoolError(f"no JSON: {error}") from None
    if not isinstance(values, Mapping):
        raise PoolError("no object with named columns")
    source = _text(values, "source", MAX_SOURCE_CHARACTERS)
    if not source.strip():
        raise PoolError("no source")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            key = program_key(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PoolError(f"the source is no program: {error}") from None
    if not tree.body or not any(environment_classes(tree)):
        raise PoolError("the source has no class whose name ends in Env")
    return PoolRow(
        number=number,
        key=key,
        source=source,
        hint=_text(values, "hint", MAX_HINT_CHARACTERS),
        skill=_text(values, "skill", MAX_NAME_CHARACTERS),
        family=_text(values, "family", MAX_NAME_CHARACTERS),
        difficulty=_text(values, "difficulty", MAX_NAME_CHARACTERS),
        document=_text(values, "document", MAX_NAME_CHARACTERS),
    )


def _text(values: Mapping[str, Any], name: str, longest: int) -> str:
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PoolError(f"{name} is {type(value).__name__}, not text")
    if len(value) > longest:
        raise PoolError(f"{name} has {len(value):,} characters, of at most {longest:,}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise PoolError(f"{name} holds half a character (a lone surrogate)")
    return value


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema(
        [
            pyarrow.field(name, types[kind], metadata={"description": what})
            for name, (kind, what) in COLUMNS.items()
        ]
    )
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema=schema), path)


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            wanted = [name for name in file.schema_arrow.names if name in COLUMNS]
            number = 0
            for batch in file.iter_batches(batch_size=256, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (OSError, pyarrow.ArrowException) as error:
        raise PoolError(f"cannot read {path}: {error}") from error
