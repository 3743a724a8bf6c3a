"""What was fuzzed is told at the end."""

from __future__ import annotations

import pytest

from tests.fuzz.budget import tried


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if tried:
        total = sum(tried.values())
        terminalreporter.write_sep("-", f"fuzzed {total:,} inputs")
        for name, count in sorted(tried.items()):
            terminalreporter.write_line(f"{count:>12,}  {name}")
