"""A check and the machine that it is made on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_RUN_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        detail: What was found.
        remedy: What to do where it failed, as a command where one does it; empty where it
            did not.
        required: Whether the backend cannot serve without it.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    required: bool = True

    @property
    def failed(self) -> bool:
        return self.required and not self.ok


class Ran(NamedTuple):
    """What a command said."""

    status: int
    output: str


def run(command: Sequence[str]) -> Ran:
    """Run a command; one that is not there has status 127."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_RUN_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        return Ran(127, str(error))
    except (OSError, subprocess.TimeoutExpired) as error:
        return Ran(126, str(error))
    return Ran(done.returncode, (done.stdout + done.stderr).strip())


@dataclass(frozen=True)
class Host:
    """A machine, as far as checks look at it; tests build ones that lack something.

    Attributes:
        root: Where /proc, /sys and /etc are.
        user: The effective user id of who asks.
        kernel: Its release.
        machine: Its kind.
        run: Runs a command.
    """

    root: Path = Path("/")
    user: int = field(default_factory=os.geteuid)
    kernel: str = field(default_factory=platform.release)
    machine: str = field(default_factory=platform.machine)
    run: Callable[[Sequence[str]], Ran] = run

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str:
        """What a file holds; empty where there is none to be read."""
        try:
            return self.path(name).read_text(errors="replace").strip()
        except OSError:
            return ""

    def number(self, name: str) -> int | None:
        """The number that a file holds; None where it holds none, or "max"."""
        text = self.text(name)
        return int(text) if text.isdigit() else None

    def exists(self, name: str) -> bool:
        """Whether there is such a file, for who asks."""
        return os.access(self.path(name), os.F_OK)

    @property
    def in_container(self) -> bool:
        return self.exists("/.dockerenv") or self.exists("/run/.containerenv")

    def python(self, script: str) -> Ran:
        """Run a script in a fresh interpreter that imports nothing but what it says."""
        return self.run([sys.executable, "-I", "-S", "-c", script])
