"""Help is instant, complete, and needs nothing heavy."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from spadework.cli import COMMANDS, main


def run(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments] if code else None
    return subprocess.run(
        command or [sys.executable, "-m", "spadework", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"COLUMNS": "100"},
    )


def test_help_names_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert f"\n    {command} " in shown
    assert "exit codes:" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"usage: spadework {command}" in shown
    assert "exit codes:" in shown


@pytest.mark.parametrize("command", ["doctor", "validate", "play", "design", "report", "bench"])
def test_commands_whose_output_a_program_reads_have_json(
    command: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "--json" in capsys.readouterr().out


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 0
    assert "usage: spadework" in capsys.readouterr().out


def test_version_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("spadework 0.")


@pytest.mark.parametrize("arguments", [["dig"], ["play"], ["bench", "--rounds", "many"]])
def test_a_wrong_command_line_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_help_is_instant():
    took_s = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # CPU time, and the best of five: the bound is on the work, not on a busy machine.
    assert min(took_s) < 0.2


@pytest.mark.parametrize("command", [[], *([c] for c in COMMANDS)], ids=lambda c: " ".join(c))
def test_help_imports_nothing_heavy(command: list[str]):
    code = (
        "import sys\n"
        "from spadework.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'grpc', 'rich', 'sandbox_server.engine'}\n"
        "heavy &= set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)\n"
    )
    done = run(*command, "--help", code=code)
    assert done.stderr.strip() == "[]"
