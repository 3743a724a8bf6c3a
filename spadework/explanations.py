"""A finding as a compiler would tell it: where, what, the play that shows it, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from designer import Finding, GateReport
from designer.drafts import Exchange

# Of a transcript's texts, and of its steps: the last ones show it.
_SHOWN_CHARACTERS = 300
_SHOWN_LINES = 6
_SHOWN_STEPS = 8
_WIDTH = 78


def explain(file: str, report: GateReport) -> str:
    """The verdict on a refused program, in lines of plain text.

    Args:
        file: What the program is called.
        report: The gates' verdict on it.
    """
    if report.finding is None:
        return f"{file}: {report.reason}: {report.detail}"
    return explain_finding(file, report.draft.source or "", report.finding)


def explain_finding(file: str, source: str, finding: Finding) -> str:
    """A finding, in lines of plain text."""
    where = f"{file}:{finding.line}" if finding.line else file
    lines = [f"{where}: {finding.reason}: {finding.message}"]
    lines += _source_line(source, finding.line)
    lines += _play(finding)
    if finding.advice:
        lines += _labelled("do", finding.advice)
    return "\n".join(lines)


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding as JSON values."""
    return {**asdict(finding), "reason": str(finding.reason)}


def _source_line(source: str, number: int) -> Iterator[str]:
    lines = source.splitlines()
    if 0 < number <= len(lines):
        yield f"  {number:5} | {lines[number - 1]}"


def _play(finding: Finding) -> Iterator[str]:
    if finding.seed is None:
        return
    steps = finding.transcript
    phase = f", in {finding.phase}()" if finding.phase in _CALLS else ""
    yield f"  with seed {finding.seed}{phase}:"
    if finding.opening:
        yield from _labelled("shown", _cut(finding.opening))
    hidden = max(0, len(steps) - _SHOWN_STEPS)
    if hidden:
        yield f"    ... {hidden} step{'s' * (hidden > 1)} before ..."
    for number, step in enumerate(steps[hidden:], hidden + 1):
        yield from _labelled(f"act {number}", _cut(repr(step.action)))
        if said := _cut(step.observation):
            yield from _labelled("shown", said)
        if outcome := _outcome(step):
            yield from _labelled("got", outcome)


_CALLS = ("reset", "step", "verify", "solution")


def _outcome(step: Exchange) -> str:
    words = [] if step.reward is None else [f"reward {step.reward:g}"]
    words += ["terminated"] * step.terminated + ["truncated"] * step.truncated
    return ", ".join(words)


def _cut(text: str) -> str:
    whole = text.rstrip("\n")
    shown = "\n".join(whole.splitlines()[:_SHOWN_LINES])[:_SHOWN_CHARACTERS]
    return shown if len(shown) == len(whole) else f"{shown} ..."


def _labelled(label: str, text: str) -> Iterator[str]:
    """The text behind its label, wrapped; its own line breaks stay."""
    indent = " " * 11
    first = f"  {label:>7}: "
    for line in text.splitlines() or [""]:
        wrapped = textwrap.wrap(
            line,
            _WIDTH,
            initial_indent=first,
            subsequent_indent=indent,
            replace_whitespace=False,
            tabsize=4,
        )
        yield from wrapped or [first.rstrip()]
        first = indent
