"""Host ids: no two jails of a machine have any in common."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_server.backends import BackendError, ids

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to map ids")

CLAIMER = """
import os, sys
from sandbox_server.backends import ids
ids._ledger = lambda: int(sys.argv[1])
print(ids.HostIds().user, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """One of this test's own: of the machine's, other servers take ids, and give them back."""
    file = os.open(tmp_path / "user-ids.lock", os.O_RDWR | os.O_CREAT, 0o600)
    monkeypatch.setattr(ids, "_ledger", lambda: file)
    monkeypatch.setattr(ids, "_claimed", set())
    yield file
    os.close(file)


@pytest.fixture
def claimed(ledger: int) -> Iterator[ids.HostIds]:
    mine = ids.HostIds()
    yield mine
    mine.release()


def test_jails_of_one_server_share_no_ids(claimed: ids.HostIds) -> None:
    other = ids.HostIds()
    assert abs(other.user - claimed.user) >= claimed.count
    assert max(claimed.users) < claimed.count
    other.release()
    other.release()


def test_jails_of_two_servers_share_no_ids_until_one_is_killed(
    ledger: int, claimed: ids.HostIds
) -> None:
    command = [sys.executable, "-c", CLAIMER, str(ledger)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, pass_fds=[ledger]
    ) as claimer:
        assert claimer.stdout is not None
        user = int(claimer.stdout.readline())
        mine = ids.HostIds()
        assert len({user, claimed.user, mine.user}) == 3
        claimer.kill()
        claimer.wait()
    again = ids.HostIds()
    assert again.user == user
    for jail in (again, mine):
        jail.release()


def test_when_all_are_taken_a_jail_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_RANGES", 0)
    with pytest.raises(BackendError, match="in use"):
        ids.HostIds()


def test_users_are_told_apart() -> None:
    base = ids.HOST_ID_BASE
    assert [ids.is_zygote(user) for user in (0, base, base + 1, base + ids.ID_COUNT)] == [
        False,
        True,
        False,
        True,
    ]
    assert ids.is_episode(base + 3 * ids.ID_COUNT + 1_000)
    assert not ids.is_episode(base + ids.ID_COUNT)
    assert not ids.is_episode(1_000)
