"""Runs a Python module as the user nobody, for real: `python as_nobody.py MODULE ARGUMENTS...`.

Started as root. The interpreter, its packages and this checkout may lie below folders that only
root can enter: those are replaced, in a mount namespace of this process's own, by empty ones
that hold nothing but what is needed. With AS_NOBODY_GROUP set to a group's id, it is in
that group.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

NOBODY = 65_534

_NEW_MOUNTS, _BIND, _RECURSIVE, _PRIVATE = 0x00020000, 0x1000, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _closed(path: Path) -> Path | None:
    """The topmost folder on the way to a path that nobody cannot enter."""
    above = [*reversed(path.parents), path]
    return next((f for f in above if f.is_dir() and not f.stat().st_mode & 0o001), None)


def _open_up(needed: list[Path]) -> None:
    held = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in needed}
    for folder in {closed for path in needed if (closed := _closed(path)) is not None}:
        _check(_libc.mount(b"opened", bytes(folder), b"tmpfs", 0, b"mode=0755"))
    for path, descriptor in held.items():
        if not path.exists():
            path.mkdir(parents=True)
            source = f"/proc/self/fd/{descriptor}".encode()
            _check(_libc.mount(source, bytes(path), None, _BIND | _RECURSIVE, None))
        os.close(descriptor)


def main() -> None:
    _check(_libc.unshare(_NEW_MOUNTS))
    _check(_libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None))
    needed = [Path(sys.prefix), Path(sys.base_prefix), *map(Path, sys.path)]
    _open_up([path.resolve() for path in needed if path.is_dir()])
    group = os.environ.pop("AS_NOBODY_GROUP", "")
    os.setgroups([int(group)] if group else [])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    os.umask(0o077)
    os.chdir("/")
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv[1:]])


if __name__ == "__main__":
    main()
