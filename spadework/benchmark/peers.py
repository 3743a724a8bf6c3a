"""A Python environment of their own for competitors, so that ours has none of their packages."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from sandbox_server import cache
from spadework.console import CommandError

_PINNED = Path(__file__).resolve().parents[2] / "bench" / "peers.txt"
_READY = ".ready"


def ensure() -> Path:
    """The interpreter of that environment, which is built first if it is not there.

    It lies in the cache folder, under a hash of what is pinned; building it downloads about
    250 MB, once.

    Raises:
        CommandError: If it cannot be built.
    """
    if not _PINNED.exists():
        raise CommandError(f"{_PINNED} is missing: run the benchmark from a source checkout")
    key = hashlib.sha256(_PINNED.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache.cache_folder() / "benchmark" / f"peers-{key}"
    python = folder / "bin" / "python"
    try:
        cache.make(folder.parent)
        with (folder.parent / f".{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / _READY).exists():
                _build(folder, python)
    except OSError as error:
        raise CommandError(
            f"cannot make {folder}: {error.strerror}; name another folder in SPADEWORK_CACHE"
        ) from error
    return python


def environment() -> dict[str, str]:
    """Variables that let its interpreter import the benchmark, and little else of this one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(_PINNED.parents[1])}


def _build(folder: Path, python: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    done = subprocess.run(
        [
            *(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "-r", _PINNED),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CommandError(
            "pip could not install the competitors; its last words:\n"
            f"{done.stderr.strip()[-1000:]}\n(--subjects names others to compare with)"
        )
    (folder / _READY).touch()
