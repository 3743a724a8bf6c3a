"""Write what a run of the benchmark gave into README.md and docs/.

    python bench/publish.py FOLDER

bench.json -> docs/benchmark.json, docs/benchmark.svg, and the marked parts of README.md (the
goals) and docs/results.md (all tables), so that no figure is typed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from spadework.benchmark import plot
from spadework.benchmark.report import Report

ROOT = Path(__file__).resolve().parents[1]
FIGURES, PICTURE = "docs/benchmark.json", "docs/benchmark.svg"


class MarkError(Exception):
    """A page has no place for a part."""


def pages(report: Report) -> dict[str, dict[str, str]]:
    """The marked parts by the page they are in, and what belongs there."""
    return {
        "README.md": {"goals": f"{report.goals()}\n\n{report.where()}"},
        "docs/results.md": {"benchmark": report.to_markdown()},
    }


def fill(page: str, parts: dict[str, str]) -> str:
    """A page with its marked parts replaced.

    Raises:
        MarkError: If it lacks one.
    """
    for name, text in parts.items():
        begin, end = f"<!-- {name}: written by bench/publish.py -->", f"<!-- end of {name} -->"
        place = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        if not place.search(page):
            raise MarkError(f"there is no {begin} with its {end}")
        page = place.sub(lambda _, new=f"{begin}\n{text}\n{end}": new, page)
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what `spadework bench --out` wrote")
    folder = parser.parse_args().folder
    try:
        report = Report.from_json(json.loads((folder / "bench.json").read_text()))
        written = {
            name: fill((ROOT / name).read_text(), parts) for name, parts in pages(report).items()
        }
    except (OSError, MarkError, KeyError, ValueError) as error:
        print(f"publish: {error}", file=sys.stderr)
        return 1
    written[FIGURES] = json.dumps(report.to_json()) + "\n"
    written[PICTURE] = plot.draw(report)
    for name, text in written.items():
        (ROOT / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
