"""The examples that a newcomer tries do what their first lines promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_api.client import SandboxClient
from sandbox_api.types import Outcome, ProgramKind, ResetItem

from sandbox_server import LocalServer

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

pytestmark = [pytest.mark.nsjail, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("name", "runtime", "kind"),
    [
        ("lights_out.py", "stdlib", ProgramKind.GAME),
        ("warehouse_tools.py", "stdlib", ProgramKind.TOOL_USE),
        ("frozen_lake.py", "library", ProgramKind.GAME),
    ],
)
def test_an_example_is_won_by_its_oracle_on_every_seed(
    name: str, runtime: str, kind: ProgramKind
) -> None:
    source = (EXAMPLES / name).read_text("utf-8")
    with LocalServer(runtimes=[runtime]) as server, SandboxClient(server.address) as client:
        program = client.register_program(source, runtime=runtime)
        assert program.outcome is Outcome.COMPLETED, program.diagnostic
        assert program.kind is kind
        items = [ResetItem(program.program_id, seed=seed) for seed in range(12)]
        episodes = client.reset(items)
        assert len({episode.observation for episode in episodes}) > 6
        for verdict in client.verify([e.episode_id for e in episodes], run_oracle=True):
            assert verdict.oracle is not None
            assert verdict.oracle.final_reward == 1.0, verdict.oracle.diagnostic
            assert verdict.oracle.terminated
            assert len(verdict.oracle.actions) >= 3


def _run(script: Path, *arguments: str) -> str:
    paths = [str(ROOT), str(ROOT / "proto"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout


def test_the_batch_client_plays_64_episodes() -> None:
    script = EXAMPLES / "play_batch.py"
    assert len(script.read_text().splitlines()) < 60
    said = _run(script)
    assert said.startswith("64 episodes, ")
    assert "lost" not in said


@pytest.mark.parametrize("words", [["four"], ["-1"], ["0"], ["4", "5"]])
def test_the_tree_search_says_what_it_takes(words: list[str]) -> None:
    command = [sys.executable, str(EXAMPLES / "tree_search.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"SEEDS is a whole number from 1 on, not {' '.join(words)!r}\n"


def test_the_tree_search_solves_by_forking_what_it_solves_by_replay() -> None:
    script = EXAMPLES / "tree_search.py"
    assert len(script.read_text().splitlines()) < 120
    said = _run(script, "4")
    found = re.findall(r"^(.*): solved (\d+) of 4, (\d+) nodes, \d+ nodes/s$", said, re.MULTILINE)
    solved = {way: (int(won), int(nodes)) for way, won, nodes in found}
    # The same tree, node by node, and more than who does not search solves.
    assert solved["fork"] == solved["replay"]
    assert solved["fork"][0] == 4 > solved["one move ahead"][0]
    assert solved["fork"][1] > 4 * 16
