"""`spadework archive`: what a run remembers, looked at and exchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sandbox_api.types import Limits, Outcome, Program, ProgramKind

from designer import (
    Archive,
    DesignRequest,
    Draft,
    Exchange,
    Finding,
    GateReport,
    Reason,
)
from designer.pools import COLUMNS, PoolError, read_pool, write_pool
from designer.twins import program_key
from sandbox_server import LocalServer
from spadework.cli import main
from tests.cli.programs import BROKEN, DOOR, RAISES
from tests.designer.programs import SOUND


def report(source: str, reason: Reason = Reason.OK, *, skill: str = "logic") -> GateReport:
    request = DesignRequest(0, skill, "free_code", [], None, 8, 0, parents=("a" * 64,))
    draft = Draft(request, source, source=source, hint="Look at the arrows.")
    program = Program("f" * 64, Outcome.COMPLETED, kind=ProgramKind.GAME, limits=Limits())
    passed = reason is Reason.OK
    detail = "" if passed else "\x1b[31mno"
    steps = (Exchange("go", "Gone.", 0.5), Exchange("again", "", None))
    found = Finding(reason, "it raised", "Check it.", "step", 7, 3, "Ready.", steps)
    return GateReport(
        draft,
        str(reason),
        detail,
        program=program,
        env_id="f" * 64 if passed else "",
        finding=None if passed else found,
    )


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run's folder: one environment that passed and was measured, two refused drafts."""
    folder = tmp_path / "run"
    with Archive(folder / "archive.sqlite") as archive:
        env_id = archive.record_design(report(SOUND), 3, 0)
        archive.record_design(report(RAISES, Reason.FUZZ, skill="math"), 3, 1)
        archive.record_design(report(BROKEN, Reason.PARSE), 4, 2)
        plays = [
            {
                "arm": arm,
                "seed": seed,
                "episode_return": float(arm == "hinted"),
                "terminated": True,
                "truncated": False,
                "turns": 6,
            }
            for arm in ("plain", "hinted")
            for seed in range(2)
        ]
        archive.record_plays(env_id, 3, plays)
        archive.record_measurement(
            env_id,
            3,
            return_plain=0.25,
            return_hinted=0.75,
            regret=0.5,
            regret_se=0.125,
            regime="frontier",
            designer_reward=0.7,
        )
    return folder


def shown(capsys) -> str:
    return capsys.readouterr().out


def test_list_shows_what_passed_unless_all_is_asked_for(run_folder: Path, capsys) -> None:
    assert main(["archive", "list", str(run_folder)]) == 0
    out = shown(capsys)
    assert "frontier" in out
    assert "+0.50 ±0.12" in out
    assert "FUZZ" not in out
    assert main(["archive", "list", str(run_folder / "archive.sqlite"), "--all", "--json"]) == 0
    rows = json.loads(shown(capsys))
    assert [row["reason"] for row in rows] == ["OK", "FUZZ", "PARSE"]
    assert rows[0]["plays"] == 4
    assert rows[0]["pairs"] == 2
    assert "source" not in rows[0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--reason", "fuzz"], ["FUZZ"]),
        (["--all", "--skill", "logic"], ["OK", "PARSE"]),
        (["--all", "--step", "4"], ["PARSE"]),
        (["--regime", "frontier"], ["OK"]),
        (["--kind", "tool_use"], []),
    ],
)
def test_filters_let_through_what_they_name(
    run_folder: Path, capsys, options: list[str], expected: list[str]
) -> None:
    assert main(["archive", "list", str(run_folder), "--json", *options]) == 0
    assert [row["reason"] for row in json.loads(shown(capsys))] == expected


def test_show_gives_one_whole_by_the_beginning_of_its_id(run_folder: Path, capsys) -> None:
    assert main(["archive", "show", str(run_folder), "ffff"]) == 0
    out = shown(capsys)
    assert "class LadderEnv" in out
    assert "Look at the arrows." in out
    assert main(["archive", "show", str(run_folder), "refused:3:1"]) == 0
    out = shown(capsys)
    # What a draft says reaches no terminal as a control character.
    assert "\u241b[31mno" in out
    # The finding is kept whole, with the play that shows it.
    assert "refused:3:1:7: FUZZ: it raised" in out
    assert "act 2: 'again'" in out
    assert main(["archive", "show", str(run_folder), "refused:3:1", "--json"]) == 0
    assert json.loads(shown(capsys))["finding"]["transcript"][0]["reward"] == 0.5
    assert main(["archive", "show", str(run_folder), "refused"]) == 3
    assert "2 environments begin with" in capsys.readouterr().err
    assert main(["archive", "show", str(run_folder), "zzz"]) == 3


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_what_is_exported_is_imported_and_believed_of_nobody(
    run_folder: Path, tmp_path: Path, capsys, suffix: str
) -> None:
    pool, other = tmp_path / f"pool{suffix}", tmp_path / "other.sqlite"
    assert main(["archive", "export", str(run_folder), str(pool), "--all"]) == 0
    # The draft that does not parse is no program.
    assert "2 environments written" in shown(capsys)
    assert main(["archive", "import", str(other), str(pool)]) == 0
    assert "2 imported, judged by nobody yet" in shown(capsys)
    assert main(["archive", "list", str(other), "--all", "--json"]) == 0
    rows = json.loads(shown(capsys))
    assert {row["reason"] for row in rows} == {"UNJUDGED"}
    assert {row["step"] for row in rows} == {-1}
    assert rows[0]["env_id"].startswith("imported:")
    assert all(row["regret"] is None for row in rows)
    # Again, everything is there already.
    assert main(["archive", "import", str(other), str(pool), "--json"]) == 0
    assert json.loads(shown(capsys)) == {"imported": 0, "passed": 0, "twins": 2, "refused": []}
    with Archive(other) as archive:
        assert archive.next_step() == 0
        archive.discard_from(0)
        assert len(archive.reason_counts()) == 1


def test_bad_rows_are_told_and_the_rest_is_kept(tmp_path: Path, capsys) -> None:
    pool, archive = tmp_path / "pool.jsonl", tmp_path / "a.sqlite"
    rows = [
        {"source": SOUND, "hint": "Up.", "unknown": 1, "verdict": "OK"},
        {"hint": "no source"},
        {"source": BROKEN},
        {"source": SOUND.replace("rung", "level")},
        {"source": 7},
        {"source": "x = 1"},
        {"source": DOOR, "skill": "s" * 500},
    ]
    lines = [json.dumps(row) for row in rows]
    pool.write_text("\n".join([*lines, "{", "[1]", "", json.dumps({"source": DOOR})]))
    assert main(["archive", "import", str(archive), str(pool), "--json"]) == 1
    told = json.loads(shown(capsys))
    assert (told["imported"], told["twins"]) == (2, 1)
    assert [(row["row"], row["why"].split(":")[0]) for row in told["refused"]] == [
        (2, "no source"),
        (3, "the source is no program"),
        (5, "source is int, not text"),
        (6, "the source has no class whose name ends in Env"),
        (7, "skill has 500 characters, of at most 200"),
        (8, "no JSON"),
        (9, "no object with named columns"),
    ]


@pytest.mark.nsjail
def test_what_is_validated_at_once_has_a_verdict_of_ours(tmp_path: Path, capsys) -> None:
    pool, archive = tmp_path / "pool.jsonl", tmp_path / "a.sqlite"
    write_pool(pool, [{"source": SOUND}, {"source": RAISES}])
    with LocalServer() as server:
        options = ["--validate", "--server", server.address]
        assert main(["archive", "import", str(archive), str(pool), *options]) == 0
    assert "2 imported, 1 of them passed the gates" in shown(capsys)
    assert main(["archive", "list", str(archive), "--all", "--json"]) == 0
    assert {row["reason"] for row in json.loads(shown(capsys))} == {"OK", "FUZZ"}


def test_opinions_are_told_against_the_oracle_and_the_players(run_folder: Path, capsys) -> None:
    with Archive(run_folder / "archive.sqlite") as archive:
        archive.record_opinion("f" * 64, True, "easy")
    assert main(["archive", "opinions", str(run_folder), "--json"]) == 0
    found = json.loads(shown(capsys))
    assert found["oracle"] == {"right_yes": 1, "wrong_yes": 0, "right_no": 0, "wrong_no": 0}
    assert found["players"] == found["oracle"]
    assert main(["archive", "opinions", str(run_folder)]) == 0
    assert "1 opinions" in shown(capsys)


def test_columns_of_a_pool_are_what_is_documented(run_folder: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    main(["archive", "export", str(run_folder), str(tmp_path / "pool.parquet")])
    main(["archive", "export", str(run_folder), str(tmp_path / "pool.jsonl")])
    schema = pyarrow.parquet.read_schema(tmp_path / "pool.parquet")
    assert schema.names == list(COLUMNS)
    assert schema.field("source").metadata[b"description"]
    (line,) = (tmp_path / "pool.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert list(row) == list(COLUMNS)
    assert row["program_key"] == program_key(SOUND)
    (kept,) = read_pool(tmp_path / "pool.parquet").kept
    assert (kept.source, kept.hint) == (SOUND, "Look at the arrows.")


@pytest.mark.parametrize(
    "arguments",
    [
        ["archive", "list", "nowhere.sqlite"],
        ["archive", "import", "a.sqlite", "nowhere.jsonl"],
        ["archive", "import", "a.sqlite", "pool.csv"],
    ],
)
def test_a_file_that_is_not_there_is_one_sentence(
    arguments: list[str], tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 3
    assert capsys.readouterr().err.startswith("spadework: ")


def test_a_file_that_is_no_parquet_is_no_pool(tmp_path: Path) -> None:
    (tmp_path / "pool.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(PoolError, match="cannot read"):
        read_pool(tmp_path / "pool.parquet")
