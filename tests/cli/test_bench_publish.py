"""`bench/publish.py`: pages say what figures say, and nobody types one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import publish
from spadework.benchmark.report import Report, in_all, in_rounds
from spadework.scale import forecast, page
from spadework.scale.growth import Growth

DOCS = publish.ROOT / "docs"


def _report() -> Report:
    return Report.from_json(json.loads((publish.ROOT / publish.FIGURES).read_text()))


def test_pages_show_the_figures_that_lie_beside_them():
    for name, parts in publish.pages(_report()).items():
        text = (publish.ROOT / name).read_text()
        assert publish.fill(text, parts) == text, f"{name}: run bench/publish.py"


def test_the_page_about_scale_shows_the_figures_that_lie_beside_it():
    growth = Growth.from_json(json.loads((DOCS / "scale" / "growth.json").read_text()))
    answers = json.loads((DOCS / "scale" / "forecast.json").read_text())
    rendered = page.render(growth, forecast.Forecast.from_json(answers))
    assert (DOCS / "scale.md").read_text() == rendered, "run spadework scale page"


def test_a_report_survives_its_file():
    report = _report()
    assert Report.from_json(json.loads(json.dumps(report.to_json()))).to_json() == report.to_json()
    assert "goal" in report.to_markdown()


def test_a_page_without_the_place_is_refused(tmp_path: Path):
    with pytest.raises(publish.MarkError, match="goals"):
        publish.fill("# A page\n", {"goals": "new"})


def test_only_what_lies_between_the_marks_is_replaced():
    text = "a\n<!-- goals: written by bench/publish.py -->\nold\n<!-- end of goals -->\nb\n"
    filled = publish.fill(text, {"goals": r"new \1"})
    assert filled.startswith("a\n")
    assert filled.endswith("\nb\n")
    assert "old" not in filled
    assert r"new \1" in filled


def test_one_round_and_a_few_seconds_are_told_as_such():
    assert [in_rounds(1), in_rounds(3)] == ["1 round", "3 rounds in turn"]
    assert [in_all(12.3), in_all(218.0)] == ["12 s in all", "4 minutes in all"]
