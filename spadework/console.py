"""How commands talk: exit codes, errors in one sentence, tables, progress.

What a program reads goes to standard output, and with `--json` nothing else does;
progress and errors go to standard error. Whatever is said may hold words of models and
environments: a terminal gets no control character of theirs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from spadework.untrusted_text import INVISIBLE, visible

OK = 0
NEGATIVE = 1
USAGE = 2
FAILED = 3
INTERRUPTED = 130

EXIT_CODES = f"""exit codes:
  {OK}    done, and the answer is good
  {NEGATIVE}    done, and the answer is no: a check failed, an environment was refused
  {USAGE}    the command line is wrong
  {FAILED}    it could not be done: no server, no such file, a fault
  {INTERRUPTED}  interrupted
"""


class CommandError(Exception):
    """A command cannot go on; the message is one sentence for its user.

    Attributes:
        exit_code: What the program exits with.
    """

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CommandError):
    """The command line asks for something that makes no sense."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USAGE)


def print_json(value: Any) -> None:
    """Write one JSON value to standard output."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    print(INVISIBLE.sub(_escaped, text), flush=True)


def _escaped(found: re.Match[str]) -> str:
    """An escape of JSON, which leaves the value as it is; such characters occur in texts alone."""
    return json.dumps(found[0])[1:-1]


def say(text: str = "") -> None:
    """Write a text for people to standard output."""
    print(visible(text))


def announce(message: str) -> None:
    """Tell people what is about to happen, beside the output."""
    print(visible(message), file=sys.stderr, flush=True)


def print_error(message: str) -> None:
    print(f"spadework: {visible(message)}", file=sys.stderr)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table to standard output; cells are plain text, not markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console().print(table)


class Bar(Protocol):
    """A progress bar."""

    def begin(self, description: str, total: float) -> None: ...

    def advance(self, steps: float = 1) -> None: ...

    def describe(self, text: str) -> None: ...


@contextmanager
def progress(description: str, total: float | None) -> Iterator[Bar]:
    """Show a progress bar on standard error while the block runs.

    Args:
        description: What is being done.
        total: Steps until the end; None when that is not known.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(description, total=total)

        class _Bar:
            def begin(self, description: str, total: float) -> None:
                shown.reset(task, description=description, total=total)

            def advance(self, steps: float = 1) -> None:
                shown.advance(task, steps)

            def describe(self, text: str) -> None:
                shown.update(task, description=text)

        yield _Bar()
