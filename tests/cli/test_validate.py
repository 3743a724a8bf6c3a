"""`spadework validate` and `design` over the process backend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_server import LocalServer
from spadework.cli import main
from tests.cli.programs import BROKEN, DOOR, RAISES


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with LocalServer(backend="process") as server:
        yield server.address


@pytest.fixture(scope="module")
def designed(address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("designed")
    assert main(["design", "-n", "4", "--server", address, "--out", str(folder)]) == 0
    return folder


def test_design_writes_environments_that_validate_again(address, designed, capsys):
    files = [str(path) for path in sorted(designed.glob("*.py"))]
    assert files
    capsys.readouterr()
    assert main(["validate", *files, "--server", address, "--max-turns", "12", "--json"]) == 0
    reports = json.loads(capsys.readouterr().out)
    assert [r["file"] for r in reports] == files
    assert all(r["passed"] and r["reason"] == "OK" for r in reports)
    assert all(r["cost_s"] > 0 for r in reports)


def test_design_keeps_every_draft_with_its_verdict(designed):
    lines = [json.loads(s) for s in (designed / "environments.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2, 3]
    for line in lines:
        assert line["completion"]
        assert line["passed"] == bool(line["file"])
    assert (designed / "archive.sqlite").exists()


def test_design_with_the_same_seed_writes_the_same(address, designed, tmp_path, capsys):
    assert main(["design", "-n", "4", "--server", address, "--out", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {Path(r["file"]).name for r in rows} - {""} == {p.name for p in designed.glob("*.py")}


def test_one_action_that_wins_every_other_seed_is_refused(address, tmp_path, capsys):
    (tmp_path / "door.py").write_text(DOOR)
    assert main(["validate", str(tmp_path / "door.py"), "--server", address, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["reason"] == "BLIND_WIN"


def test_a_tool_use_program_passes(address, capsys):
    file = Path(__file__).parents[2] / "examples" / "warehouse_tools.py"
    assert main(["validate", str(file), "--server", address, "--max-turns", "12", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["passed"]


def test_refused_files_exit_with_1_and_say_why(address, tmp_path, capsys):
    for name, source in (("raises", RAISES), ("broken", BROKEN)):
        (tmp_path / f"{name}.py").write_text(source)
    files = [str(tmp_path / "raises.py"), str(tmp_path / "broken.py")]
    assert main(["validate", *files, "--server", address, "--json"]) == 1
    reports = json.loads(capsys.readouterr().out)
    assert [r["reason"] for r in reports] == ["FUZZ", "PARSE"]
    assert "no such thing" in reports[0]["detail"]


def test_the_table_shows_reason_and_detail(address, tmp_path, capsys):
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    assert main(["validate", str(path), "--server", address]) == 1
    shown = capsys.readouterr().out
    assert "PARSE" in shown
    assert "line 2" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", "x.py", "--max-turns", "0"],
        ["design", "--skill", "cooking"],
        ["design", "--method", "free_code"],
        ["design", "--endpoint", "http://127.0.0.1:1/v1"],
        ["design", "-n", "0"],
    ],
)
def test_nonsense_is_a_usage_error(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("spadework: ")


def test_an_endpoint_that_is_not_there_is_one_sentence(address, tmp_path, capsys):
    arguments = ["--endpoint", "http://127.0.0.1:1/v1", "--endpoint-model", "any"]
    command = ["design", "-n", "1", "--server", address, "--out", str(tmp_path), *arguments]
    assert main(command) == 3
    assert "endpoint" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sandbox_api._dispatch.BACKOFF_FIRST_S", 0.01)
    (tmp_path / "raises.py").write_text(RAISES)
    file = str(tmp_path / "raises.py")
    assert main(["play", file, "--server", "127.0.0.1:1", "--actions", "a"]) == 3
    assert "Traceback" not in capsys.readouterr().err


def test_without_a_verdict_the_exit_code_is_3(monkeypatch, address, tmp_path, capsys):
    from dataclasses import replace

    from designer import Designer, Reason

    judge = Designer.validate

    async def fail(self, drafts, on_report):
        reports = await judge(self, drafts, on_report)
        return [replace(report, reason=Reason.UNJUDGED) for report in reports]

    monkeypatch.setattr(Designer, "validate", fail)
    (tmp_path / "door.py").write_text(DOOR)
    assert main(["validate", str(tmp_path / "door.py"), "--server", address, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)[0]["reason"] == "UNJUDGED"
