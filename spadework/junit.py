"""Verdicts as JUnit XML, which continuous integration shows as tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from designer import Reason
from spadework.untrusted_text import visible


class Case(NamedTuple):
    """One file.

    Attributes:
        file: Its path.
        reason: A value of `Reason`.
        detail: In a sentence.
        explanation: In full; empty where it passed.
        seconds: What the gates took.
    """

    file: str
    reason: str
    detail: str
    explanation: str
    seconds: float


def junit_xml(cases: Sequence[Case]) -> str:
    """One test case a file: a failure where a gate refuses it, an error without a verdict."""
    errors = sum(case.reason == Reason.UNJUDGED for case in cases)
    failures = sum(case.reason not in (Reason.OK, Reason.UNJUDGED) for case in cases)
    suite = ElementTree.Element(
        "testsuite",
        name="spadework validate",
        tests=str(len(cases)),
        failures=str(failures),
        errors=str(errors),
        time=f"{sum(case.seconds for case in cases):.3f}",
    )
    for case in cases:
        element = ElementTree.SubElement(
            suite,
            "testcase",
            classname="spadework.validate",
            name=visible(case.file),
            file=visible(case.file),
            time=f"{case.seconds:.3f}",
        )
        if case.reason != Reason.OK:
            what = "error" if case.reason == Reason.UNJUDGED else "failure"
            found = ElementTree.SubElement(
                element, what, type=case.reason, message=visible(case.detail)
            )
            # XML has no way at all to hold most control characters.
            found.text = visible(case.explanation)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
