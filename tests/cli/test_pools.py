"""What `pool.sources` and `difficulty.knobs` make of archives, folders, files and suites."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Outcome, Program

from designer import Archive, Designer
from designer.families import held_out, ladders
from spadework.console import CommandError, UsageError
from spadework.pools import pool_items, runtimes_of
from tests.trainer.fakes import grid_source
from trainer.pool_config import DifficultyConfig, PoolConfig
from trainer.protocols import GivenEnvironment

SIZED = "class SizedEnv:\n    def __init__(self, size=3, max_turns=8):\n        self.size = size\n"


def items(*sources: str, knobs: tuple[str, ...] = ()):
    return pool_items(PoolConfig(tuple(sources)), DifficultyConfig(knobs))


def folder_of(tmp_path: Path, **programs: str) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, source in programs.items():
        (folder / f"{name}.py").write_text(source)
    return folder


def test_a_weight_is_shared_out_evenly_over_the_programs_of_its_source(tmp_path):
    folder = folder_of(tmp_path, a=grid_source(3), b=grid_source(4), other="x = 1")
    mixed = items(f"folder:{folder}=3", "suite:toy-text")
    shares = {item.name: item.share for item in mixed}
    assert shares["a.py"] == shares["b.py"] == 1.5
    assert sum(shares.values()) == pytest.approx(4.0)
    assert runtimes_of(mixed) == ["library"]


def test_an_exported_pool_and_an_archive_are_read(tmp_path):
    exported = tmp_path / "shared.jsonl"
    exported.write_text(json.dumps({"source": grid_source(3), "skill": "spatial"}) + "\n")
    (item,) = items(f"file:{exported}")
    assert (item.skill, item.levels[0].source) == ("spatial", grid_source(3))
    Archive(tmp_path / "archive.sqlite").close()
    with pytest.raises(CommandError, match="no environment that passed"):
        items(f"archive:{tmp_path / 'archive.sqlite'}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("archive:nowhere.sqlite", "no archive nowhere.sqlite"),
        ("folder:nowhere", "no folder nowhere"),
        ("file:nowhere.jsonl", "cannot read nowhere.jsonl"),
        ("suite:atari", "no suite 'atari'; there are families, toy-text"),
    ],
)
def test_a_source_that_is_not_there_is_named(source, message):
    with pytest.raises((CommandError, UsageError), match=message):
        items(source)


def test_a_knob_gives_levels_to_the_programs_that_take_it(tmp_path):
    folder = folder_of(tmp_path, sized=SIZED, grid=grid_source(3))
    by_name = {i.name: i for i in items(f"folder:{folder}", knobs=("size=3..6",))}
    assert [level.options for level in by_name["sized.py"].levels] == [
        {"size": n} for n in (3, 4, 5, 6)
    ]
    assert len(by_name["grid.py"].levels) == 1
    falling = {i.name: i for i in items(f"folder:{folder}", knobs=("size=6..3",))}
    assert falling["sized.py"].levels[0].options == {"size": 6}


def test_a_knob_that_no_program_takes_is_refused(tmp_path):
    folder = folder_of(tmp_path, sized=SIZED)
    with pytest.raises(UsageError, match="takes 'sise'"):
        items(f"folder:{folder}", knobs=("sise=3..6",))


def test_structured_worlds_get_harder_rung_by_rung_and_none_is_kept_for_evaluation():
    found = items("suite:families")
    assert len({item.family for item in found}) == 12
    for ladder in ladders(2):
        levels = [rung.level for rung in ladder.rungs]
        assert levels == sorted(set(levels))
        assert len(levels) >= 4
        assert not any(held_out(rung.spec) for rung in ladder.rungs)
    assert [item.levels for item in found] == [item.levels for item in items("suite:families")]


def test_what_a_run_was_given_is_in_the_archive_as_unjudged_and_no_resume_forgets_it():
    async def remember() -> tuple[str, Archive]:
        archive = Archive(":memory:")
        async with AsyncSandboxClient("localhost:1") as client:
            designer = Designer(client, archive)
            program = Program("p" * 64, Outcome.COMPLETED)
            given = GivenEnvironment("folder:x", grid_source(3), "spatial", "grid", program)
            env_id = designer.remember_given(given)
            designer.rewind(0)
        return env_id, archive

    env_id, archive = asyncio.run(remember())
    from designer.entries import EntryFilter

    (entry,) = archive.entries(EntryFilter())
    assert (entry.env_id, entry.reason, entry.method) == (env_id, "UNJUDGED", "given")
    assert entry.detail == "given, from folder:x"
    assert archive.programs() == []
    archive.close()
