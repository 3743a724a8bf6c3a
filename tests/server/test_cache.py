"""Folders that servers share are there while one needs them, and gone when none does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_server import cache

HOLDER = """
import sys
from pathlib import Path
from sandbox_server import cache
assert cache.hold(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
LONG_AGO_S = 30 * 24 * 3_600


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SPADEWORK_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_held", {})
    cache.worker_folder.cache_clear()
    yield tmp_path
    for descriptor in cache._held.values():
        os.close(descriptor)
    cache.worker_folder.cache_clear()


def aged(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "file").touch()
    then = time.time() - LONG_AGO_S
    os.utime(folder, (then, then))
    return folder


def test_old_worker_copies_and_runtimes_are_removed_and_fresh_ones_kept(folder: Path) -> None:
    stale = [
        aged(folder / "worker-0123"),
        aged(folder / ".worker-left-by-a-kill"),
        aged(folder / "runtimes" / "stdlib-3.11.7-0123"),
        aged(folder / "runtimes" / ".stdlib-3.11.7-0123.half-built"),
    ]
    kept = [aged(folder / "somebody-elses"), folder / "worker-4567", folder / "runtimes" / "new"]
    for fresh in kept[1:]:
        fresh.mkdir()
    cache.tidy()
    assert not [path for path in stale if path.exists()]
    assert all(path.exists() for path in kept)
    assert not list(folder.glob(".stale-*"))


def test_a_folder_is_kept_as_long_as_a_process_holds_it(folder: Path) -> None:
    used = aged(folder / "worker-0123")
    command = [sys.executable, "-c", HOLDER, str(used)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        cache.remove_stale(folder, "worker-*", kept_s=-1)
        assert used.exists()
        # However it ends.
        holder.kill()
    cache.remove_stale(folder, "worker-*", kept_s=-1)
    assert not used.exists()


def test_holding_says_that_a_folder_was_wanted(folder: Path) -> None:
    used = aged(folder / "worker-0123")
    assert cache.hold(used)
    assert time.time() - used.stat().st_mtime < 60
    assert not cache.hold(folder / "worker-4567")


def test_the_worker_is_copied_once_and_readable_by_any_user(folder: Path) -> None:
    copy = cache.worker_folder()
    assert copy.parent == folder
    assert (copy / "worker" / "zygote.py").stat().st_mode & 0o044 == 0o044
    assert (copy / "spadework_env.py").exists()
    assert copy.stat().st_mode & 0o777 == 0o755
    cache.worker_folder.cache_clear()
    assert cache.worker_folder() == copy
    assert [path.name for path in folder.iterdir()] == [copy.name]


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_the_cache_can_be_entered_by_all_and_written_by_its_owner_whatever_the_umask(
    tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        cache.make(tmp_path / "a" / "b")
        cache.make(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert {(tmp_path / p).stat().st_mode & 0o777 for p in ("a", "a/b")} == {0o755}
