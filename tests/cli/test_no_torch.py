"""What needs no training must run on a machine without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.programs import DOOR

# As on such a machine: the import fails.
CODE = """
import sys
for name in ("torch", "transformers", "trl"):
    sys.modules[name] = None
from spadework.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["play", "FILE", "--policy", "oracle", "--backend", "process"],
        ["validate", "FILE", "--backend", "process", "--json"],
        ["doctor", "--json"],
        ["design", "-n", "1", "--backend", "process", "--out", "OUT"],
        ["train", "--help"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_it_runs_without_torch(arguments: list[str], tmp_path: Path):
    file = tmp_path / "door.py"
    file.write_text(DOOR)
    places = {"FILE": str(file), "OUT": str(tmp_path / "out")}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *(places.get(a, a) for a in arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    assert "torch" not in done.stderr


def test_training_without_torch_says_what_to_install():
    done = subprocess.run(
        [sys.executable, "-c", CODE, "train", "--backend", "process"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 3
    assert "pip install 'spadework[train]'" in done.stderr
