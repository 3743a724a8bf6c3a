"""The folders that servers build and share: found, held while in use, removed when stale."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# A build takes up to minutes and a download, and another checkout may want it again.
_RUNTIME_KEPT_S = 7 * 24 * 3_600
# A copy takes milliseconds; the hour is for servers of versions that hold no lock.
_WORKER_KEPT_S = 3_600

# Descriptors whose locks last as long as this process, by the folder held.
_held: dict[Path, int] = {}


def cache_folder() -> Path:
    """Where runtimes are built: $SPADEWORK_CACHE, else the system's or the user's cache."""
    if named := os.environ.get("SPADEWORK_CACHE"):
        return Path(named)
    if os.geteuid() == 0:
        # Not under a home: those are often closed to the user ids that jails run as.
        return Path("/var/cache/spadework")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "spadework"


def make(folder: Path) -> None:
    """Make a folder, and those above it, that all may enter and only this user may write.

    Whatever the umask: what lies in it runs in every jail, and jails have ids of their own.
    """
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                path.chmod(0o755)


def publish(staging: Path, folder: Path) -> None:
    """Give a finished folder its name, readable by any user id and writable by none but ours."""
    subprocess.run(["chmod", "-R", "a+rX,go-w", str(staging)], check=True)
    staging.rename(folder)


def hold(folder: Path) -> bool:
    """Keep a folder from being removed by others for as long as this process lives.

    Returns:
        Whether it is there.
    """
    if folder in _held:
        return folder.exists()
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    # It may have been removed between the two calls.
    if not folder.exists() or not os.path.samestat(os.fstat(descriptor), folder.stat()):
        os.close(descriptor)
        return False
    _held[folder] = descriptor
    with contextlib.suppress(OSError):
        # When it was last wanted; the folder may be another user's.
        os.utime(folder)
    return True


def remove_stale(folders: Path, pattern: str, kept_s: float) -> None:
    """Remove what nobody holds and nobody has wanted for a while; leave what is not ours.

    Args:
        folders: Where to look.
        pattern: Names to look at.
        kept_s: Seconds that a folder is kept after it was last wanted.
    """
    for folder in folders.glob(pattern):
        with contextlib.suppress(OSError):
            if folder.is_dir() and time.time() - folder.stat().st_mtime > kept_s:
                _remove_unless_held(folder)


def _remove_unless_held(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Out of the way first: nobody shall ever find half of it.
        doomed = Path(tempfile.mkdtemp(prefix=".stale-", dir=folder.parent))
        folder.rename(doomed / folder.name)
        shutil.rmtree(doomed, ignore_errors=True)
    finally:
        os.close(descriptor)


def tidy() -> None:
    """Remove worker copies and runtimes of versions that are no longer in use."""
    folder = cache_folder()
    for pattern in ("worker-*", ".worker-*", ".stale-*"):
        remove_stale(folder, pattern, _WORKER_KEPT_S)
    for pattern in ("[a-z]*", ".[a-z]*"):
        remove_stale(folder / "runtimes", pattern, _RUNTIME_KEPT_S)


@functools.cache
def worker_folder() -> Path:
    """A folder that any user id can read and that holds the package `worker`, a copy.

    The package itself may lie under a home that jails' user ids cannot enter. One copy for
    as long as the server lives: a jail that is restarted after an upgrade of the package
    must get the worker that its server can talk to.
    """
    source = Path(__file__).resolve().parent / "worker"
    files = sorted(source.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    folder = cache_folder() / f"worker-{digest}"
    while not hold(folder):
        make(folder.parent)
        staging = Path(tempfile.mkdtemp(prefix=".worker-", dir=folder.parent))
        shutil.copytree(source, staging / "worker", ignore=shutil.ignore_patterns("__pycache__"))
        # Published at the top level too: what programs import to build tool-use worlds.
        (staging / "spadework_env.py").write_text("from worker.tool_env import *\n")
        try:
            publish(staging, folder)
        except OSError:
            # Another server was faster; its copy is the same.
            shutil.rmtree(staging)
            if not folder.exists():
                raise
    return folder
