"""A server's own folder is its user's alone, and goes with the server, however it ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from sandbox_server import LocalServer, state
from sandbox_server.config import AddressError, ServerConfig
from sandbox_server.server import Server


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As for an ordinary user, whose servers share a folder below a folder of the system's."""
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid)
    monkeypatch.setattr(state, "_parent", lambda: tmp_path / "spadework")
    return tmp_path / "spadework"


def test_only_its_user_can_enter_it(parent: Path) -> None:
    mine = state.folder()
    assert mine.parent == parent
    assert {path.stat().st_mode & 0o777 for path in (parent, mine)} == {0o700}
    assert state.folder() == mine
    state.remove()
    assert not mine.exists()


def test_a_folder_that_others_can_write_is_refused(parent: Path) -> None:
    parent.mkdir()
    parent.chmod(0o777)
    with pytest.raises(state.StateFolderError, match="only this user can write"):
        state.folder()
    left = parent / "1-1-1"
    left.mkdir()
    state.reap_dead()
    assert left.exists()


def test_a_link_to_somebody_elses_folder_is_refused(parent: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(state.StateFolderError):
        state.folder()


MAKER = """
import sys
from pathlib import Path
from sandbox_server import state
state._parent = lambda: Path(sys.argv[1])
print(state.folder(), flush=True)
sys.stdin.read()
"""


def test_only_folders_of_dead_servers_are_reaped(parent: Path) -> None:
    command = [sys.executable, "-c", MAKER, str(parent)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as maker:
        assert maker.stdout is not None
        folder = Path(maker.stdout.readline().strip())
        mine = state.folder()
        state.reap_dead()
        assert folder.exists()
        maker.kill()
    state.reap_dead()
    assert not folder.exists()
    assert mine.exists()


def test_a_local_server_that_was_killed_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    server = LocalServer(backend="process")
    socket = Path(server.address.removeprefix("unix:"))
    assert socket.exists()
    server.process.kill()
    server.close()
    assert not socket.parent.exists()


async def test_the_socket_of_a_live_server_is_not_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    with LocalServer(backend="process") as first:
        second = Server(ServerConfig(address=first.address, backend="process"), {})
        with pytest.raises(AddressError, match="another server"):
            await second.start()
        reader, writer = await asyncio.open_unix_connection(first.address.removeprefix("unix:"))
        writer.close()
        await writer.wait_closed()
        del reader
