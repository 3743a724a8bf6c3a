"""The image: it builds, becomes healthy, plays, and holds, without a privilege."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

import pytest
from sandbox_api import ResetItem, SandboxClient, StepItem

from tests.image.building import ROOT
from tests.image.conftest import server
from tests.server.conftest import COUNTER

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]


def test_an_episode_plays_from_outside(container: tuple[Any, str]) -> None:
    with SandboxClient(container[1]) as client:
        program = client.register_program(COUNTER)
        (episode,) = client.reset([ResetItem(program.program_id, seed=1)])
        for index in range(3):
            (result,) = client.step([StepItem(episode.episode_id, index, "+")])
        assert result.reward == 1.0
        (verdict,) = client.verify([episode.episode_id])
        assert verdict.reproduced
        isolation = client.server_info().isolation
        client.close_episodes([episode.episode_id])
    assert isolation["namespaces"].endswith("(nsjail)")


def test_the_server_is_an_ordinary_user_without_any_capability(
    container: tuple[Any, str],
) -> None:
    running, _ = container
    said = running.exec_run(["cat", "/proc/1/status"]).output.decode()
    status = dict(line.split(":\t") for line in said.splitlines() if ":\t" in line)
    assert "0" not in status["Uid"].split()
    assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert running.exec_run(["touch", "/opt/spadework/x"]).exit_code != 0
    assert not running.attrs["HostConfig"]["Privileged"]


def test_it_withstands_the_attack_suite_from_outside(container: tuple[Any, str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "tests/security/test_attacks.py"],
        cwd=ROOT,
        env={**os.environ, "SPADEWORK_ATTACK_SERVER": container[1]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    print(done.stdout.splitlines()[-1])


def test_it_ends_when_the_engine_asks(client: Any, image: str) -> None:
    with server(client, image) as (running, _):
        running.stop(timeout=30)
        running.reload()
        assert running.attrs["State"]["ExitCode"] == 0


def test_compose_brings_up_a_server_and_a_client_that_plays(image: str) -> None:
    compose = [shutil.which("docker-compose") or "docker-compose", "-p", f"spadework{os.getpid()}"]
    environment = {**os.environ, "SPADEWORK_IMAGE": image}
    try:
        done = subprocess.run(
            [*compose, "up", "--no-build", "--no-color", "--exit-code-from", "client"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        subprocess.run([*compose, "down", "-v"], cwd=ROOT, env=environment, check=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "64 episodes, " in done.stdout
    assert "lost" not in done.stdout
