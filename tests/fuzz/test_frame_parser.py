"""The frame parser under a fuzzer that is led by what code it reaches."""

from __future__ import annotations

import importlib.util
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_server.worker import frames
from tests.fuzz import budget

_CI_SECONDS = 6
_NAME = "test_the_parser_bears_what_reaches_new_code"
budget.takes_a_share(_NAME)

_SEEDS = [
    frames.pack_reply(3, 1, 1, b"seen", 0.5, info=b'{"x": 1}', extra=b"[]"),
    frames.pack_reply(3, 1, 2, extra=b'{"phase": 5, "line": 3, "message": "x", "limit": ""}'),
    frames.pack_reply(2, 1, 1, b"\xc3\xa4", flags=3, cut_bytes=9, info=b'{"a": "\\u00e4"}'),
]


@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason=f"there is no wheel of atheris for {sys.platform} on {platform.machine()}",
)
def test_the_parser_bears_what_reaches_new_code(tmp_path: Path) -> None:
    seconds = int(budget.seconds_each()) or _CI_SECONDS
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(_SEEDS):
        (corpus / str(number)).write_bytes(seed)
    command = [sys.executable, "-m", "tests.fuzz.frame_parser", str(corpus)]
    command += [f"-max_total_time={seconds}", "-max_len=4096", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=seconds + 90
    )
    found = re.search(r"Done (\d+) runs", done.stderr)
    assert done.returncode == 0, done.stderr[-4_000:]
    assert found is not None, done.stderr[-4_000:]
    budget.tried[_NAME] += int(found[1])
