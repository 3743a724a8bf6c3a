"""The image, built once, and a server in a container of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_server.backends import docker
from tests.image.building import ROOT, build

IMAGE = "spadework/test-server"
_HEALTHY_WITHIN_S = 90.0


@pytest.fixture(scope="session")
def client() -> Iterator[Any]:
    with contextlib.closing(docker.connect()) as client:
        yield client


@pytest.fixture(scope="session")
def image(client: Any) -> str:
    build(client, IMAGE)
    return IMAGE


@pytest.fixture(scope="session")
def container(client: Any, image: str) -> Iterator[tuple[Any, str]]:
    """A healthy server in a container, and its address out here."""
    with server(client, image) as found:
        yield found


@contextlib.contextmanager
def server(client: Any, image: str) -> Iterator[tuple[Any, str]]:
    """A server in a container, run as README.md says, until it is healthy."""
    # Not under pytest's own folder, whose path is longer than a socket's may be.
    folder = Path(tempfile.mkdtemp(prefix="spadework-image-"))
    user = {} if os.geteuid() == 0 else {"user": f"{os.geteuid()}:{os.getegid()}"}
    folder.chmod(0o777)
    running = client.containers.run(
        image,
        ["--max-episodes", "500"],
        detach=True,
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": ""},
        cap_drop=["ALL"],
        security_opt=[
            "no-new-privileges",
            f"seccomp={(ROOT / 'deploy' / 'seccomp.json').read_text()}",
            "apparmor=unconfined",
        ],
        pids_limit=2048,
        mem_limit="3g",
        volumes={str(folder): {"bind": "/run/spadework", "mode": "rw"}},
        **user,
    )
    try:
        deadline = time.monotonic() + _HEALTHY_WITHIN_S
        while health(running) != "healthy":
            said = running.logs().decode()
            assert running.status == "running", said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)
        yield running, f"unix:{folder}/socket"
    finally:
        running.remove(force=True)
        shutil.rmtree(folder)


def health(container: Any) -> str:
    container.reload()
    return str(container.attrs["State"]["Health"]["Status"])
