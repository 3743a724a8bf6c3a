"""A folder of this server's own, for what has to be a file while it runs: a private socket.

    /run/spadework/<owner>/       for root; else below $XDG_RUNTIME_DIR or the temporary folder

It goes with the server at its end; that of a killed one goes at the start of the next.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from sandbox_server import owner


class StateFolderError(Exception):
    """There is no folder that only this user can write; the message says what to do."""


def folder() -> Path:
    """This process's folder, made if it is not there. Only its user can enter it.

    Raises:
        StateFolderError: If it cannot be made, or somebody else could change it.
    """
    mine = common() / owner.name()
    try:
        mine.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _cannot_make(mine, error) from None
    return mine


def common() -> Path:
    """The folder that all servers of this user share, made if it is not there.

    Raises:
        StateFolderError: As for `folder`.
    """
    parent = _parent()
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(parent, error) from None
    if not _is_ours(parent):
        raise StateFolderError(
            f"{parent} is not a folder that only this user can write; remove it, or set TMPDIR"
        )
    return parent


def _cannot_make(path: Path, error: OSError) -> StateFolderError:
    return StateFolderError(f"cannot make {path}: {error.strerror}; free it, or set TMPDIR")


def remove() -> None:
    """Remove this process's folder, where it has one."""
    parent = _parent()
    if _is_ours(parent):
        shutil.rmtree(parent / owner.name(), ignore_errors=True)


def reap_dead() -> None:
    """Remove the folders of processes that are gone."""
    parent = _parent()
    if _is_ours(parent):
        for left in parent.glob("*-*-*"):
            if owner.is_dead(left.name):
                shutil.rmtree(left, ignore_errors=True)


def _parent() -> Path:
    if os.geteuid() == 0:
        return Path("/run/spadework")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "spadework"
    return Path(tempfile.gettempdir()) / f"spadework-{os.geteuid()}"


def _is_ours(parent: Path) -> bool:
    """Whether it is a folder that nobody else can change: in /tmp, anybody may have made it."""
    try:
        found = parent.lstat()
    except OSError:
        return False
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return mine and not found.st_mode & 0o022
