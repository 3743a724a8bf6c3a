"""Reads what a frozen pool is made of: archives, folders, exported pools, suites."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spadework.console import CommandError, UsageError
from spadework.suites import SUITES
from trainer.pool_config import DifficultyConfig, Knob, PoolConfig, PoolSource
from trainer.protocols import Level, PoolItem


def pool_items(pool: PoolConfig, difficulty: DifficultyConfig) -> list[PoolItem]:
    """The environments of all sources, with their shares of the draws.

    Raises:
        UsageError: If there is no such suite, or a knob is no program's.
        CommandError: If a source cannot be read, or holds no environment.
    """
    items: list[PoolItem] = []
    names: set[str] = set()
    for source in pool.parsed:
        found = _READERS[source.kind](source)
        for item in found:
            name = item.name if item.name not in names else f"{source.label}/{item.name}"
            if name in names:
                raise UsageError(f"pool.sources names {source.label} twice")
            names.add(name)
            items.append(replace(item, name=name, share=source.weight / len(found)))
    return _with_difficulties(items, difficulty.parsed)


def runtimes_of(items: Sequence[PoolItem]) -> list[str]:
    """Runtimes that a server must offer for them."""
    return sorted({item.runtime for item in items if item.runtime})


def _archived(source: PoolSource) -> list[PoolItem]:
    from designer import Archive, ArchiveError
    from designer.entries import EntryFilter

    path = Path(source.name)
    if not path.is_file():
        raise CommandError(f"pool.sources: there is no archive {path}")
    try:
        with Archive(path) as archive:
            entries = archive.entries(EntryFilter(reason="OK"))
    except (ArchiveError, OSError) as error:
        raise CommandError(f"pool.sources: {error}") from error
    if not entries:
        raise CommandError(f"{path} holds no environment that passed the gates")
    return [
        PoolItem(
            name=f"{path.parent.name or path.stem}/{entry.env_id[:12]}",
            origin=source.label,
            levels=(Level(entry.source),),
            skill=entry.skill,
            family=entry.family,
        )
        for entry in entries
    ]


def _folder(source: PoolSource) -> list[PoolItem]:
    from spadework.commands.play import read_source
    from spadework.commands.validate import programs_in

    path = Path(source.name)
    if not path.exists():
        raise CommandError(f"pool.sources: there is no folder {path}")
    files = programs_in([path])
    root = path if path.is_dir() else path.parent
    return [
        PoolItem(
            name=str(file.relative_to(root)),
            origin=source.label,
            levels=(Level(read_source(file)),),
            family=file.stem,
        )
        for file in files
    ]


def _exported(source: PoolSource) -> list[PoolItem]:
    from designer.pools import PoolError, read_pool

    path = Path(source.name)
    try:
        rows = read_pool(path)
    except PoolError as error:
        raise CommandError(f"pool.sources: {error}") from error
    if rows.refused:
        listed = "\n  ".join(f"row {number}: {what}" for number, what in rows.refused[:20])
        raise CommandError(f"{path} has {len(rows.refused)} rows that are no use:\n  {listed}")
    if not rows.kept:
        raise CommandError(f"{path} holds no environment")
    return [
        PoolItem(
            name=f"{path.stem}/{row.number}",
            origin=source.label,
            levels=(Level(row.source),),
            skill=row.skill,
            family=row.family,
        )
        for row in rows.kept
    ]


def _suite(source: PoolSource) -> list[PoolItem]:
    if source.name not in SUITES:
        raise UsageError(
            f"pool.sources: no suite {source.name!r}; there are {', '.join(sorted(SUITES))}"
        )
    return SUITES[source.name]()


_READERS = {"archive": _archived, "folder": _folder, "file": _exported, "suite": _suite}


def _with_difficulties(items: Sequence[PoolItem], knobs: Sequence[Knob]) -> list[PoolItem]:
    """Give levels to the programs that take an argument which is a knob."""
    turned: list[PoolItem] = []
    used: set[str] = set()
    for item in items:
        takes = _arguments(item.levels[0].source) if len(item.levels) == 1 else set()
        fitting = [knob for knob in knobs if knob.name in takes]
        if len(fitting) > 1:
            names = ", ".join(knob.name for knob in fitting)
            raise UsageError(f"difficulty.knobs: {item.name} takes {names}; leave all but one out")
        for knob in fitting:
            used.add(knob.name)
            source = item.levels[0].source
            levels = tuple(Level(source, {knob.name: value}) for value in knob.values)
            item = replace(item, levels=levels)
        turned.append(item)
    if unused := [knob.name for knob in knobs if knob.name not in used]:
        raise UsageError(
            f"difficulty.knobs: no program of the pool has a constructor that takes {unused[0]!r}"
        )
    return turned


def _arguments(source: str) -> set[str]:
    """Arguments that the constructors of a program's classes, or its make_env, name."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()  # the sandbox says so, with its line
    makers = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in ("__init__", "make_env")
    ]
    return {a.arg for maker in makers for a in (*maker.args.args, *maker.args.kwonlyargs)}
