"""Puts the report together: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from spadework.report import charts, curriculum, environment_list, figures, heldout
from spadework.report.curriculum import REGIMES
from spadework.report.run_folder import RunRecord, number, read_run
from spadework.untrusted_text import short, visible


def write_report(run_dir: Path | str) -> Path:
    """Write `report.html` into a run folder, whatever state the run is in.

    Args:
        run_dir: A run folder; files that are missing or torn are named in the report.

    Returns:
        The path of the report. It is replaced in one move, so a reader never sees half.

    Raises:
        FileNotFoundError: If there is no such folder.
        OSError: If the folder cannot be written.
    """
    run = read_run(Path(run_dir))
    target = run.path / "report.html"
    partial = run.path / "report.html.partial"
    partial.write_text(render(run), encoding="utf-8")
    os.replace(partial, target)
    return target


def render(run: RunRecord) -> str:
    """The report of a run as HTML."""
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["short"] = short
    environment.filters["figure"] = _figure
    script = _resource("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    listing = environment_list.build(run)
    rows = heldout.policies(run.evaluation)
    tone, sentence = heldout.verdict(rows)
    return environment.from_string(_resource("report.html.j2")).render(
        title=short(run.path.resolve().name, 120),
        style=Markup(_resource("report.css")),
        script=Markup(script),
        script_hash=digest,
        status=_status(run),
        facts=_facts(run),
        faults=[short(fault, 300) for fault in run.faults],
        policies=rows,
        protocol=_flat(run.evaluation.get("protocol")),
        verdict_tone=tone,
        verdict=sentence,
        headline=_headline(rows),
        heldout_chart=_heldout_chart(rows),
        families=sorted({family for row in rows for family in row.by_family}),
        learning=figures.learning(run),
        curriculum=curriculum.curriculum(run),
        comparisons=curriculum.comparisons(run),
        staged=bool(figures.marks(run)),
        sandbox=figures.sandbox(run),
        regimes=REGIMES,
        listing=listing,
        index=_embedded({"columns": environment_list.COLUMNS, "rows": listing.rows}),
        config=_flat(run.config),
        summary=_flat(run.summary),
    )


def _figure(value: float, form: str = "{:.2f}") -> str:
    return form.format(value).replace("-", "\u2212")


def _resource(name: str) -> str:
    return resources.files("spadework.report").joinpath(name).read_text("utf-8")


def _embedded(value: Any) -> Markup:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings as (dotted name, text) rows."""
    if isinstance(value, dict):
        return [
            row
            for key, inner in value.items()
            for row in _flat(inner, f"{prefix}.{key}" if prefix else str(key))
        ]
    if not prefix:
        return []
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return [(short(prefix, 200), visible(text, 600))]


def _find(config: dict[str, Any], *names: str) -> Any:
    """The first of these settings that the config holds, at any depth."""
    for name in names:
        for dotted, text in _flat(config):
            if dotted == name or dotted.endswith("." + name):
                return text
    return None


def _status(run: RunRecord) -> dict[str, str]:
    if run.finished:
        return {"tone": "good", "word": "finished", "text": ""}
    planned = _find(run.config, "run.steps", "steps")
    if run.last_step is None:
        text = "No training step was finished."
    else:
        text = f"The last finished step is {run.last_step}"
        text += f" (the config asks for {planned} steps)." if planned else "."
    return {
        "tone": "bad",
        "word": "unfinished",
        "text": "This run has not finished: there is no summary.json. "
        f"{text} What follows is what it had written by then.",
    }


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def _facts(run: RunRecord) -> list[tuple[str, str]]:
    gates = curriculum.gate_counts(run)
    played = gates["OK"] or curriculum.given(run)
    clock = sum(figures.totals(run, "time/").values())
    facts: list[tuple[str, Any]] = [
        ("preset", _find(run.config, "preset")),
        ("model", _find(run.config, "model.name", "model")),
        ("run seed", _find(run.config, "run.seed", "seed")),
        ("training steps", f"{len(run.metrics):,}" if run.metrics else None),
        ("training time", _duration(clock) if clock else None),
        ("environments", f"{played:,}" if played else None),
        ("drafts refused", f"{sum(gates.values()) - gates['OK']:,}" if gates else None),
        ("plays", f"{run.play_count:,}" if run.play_count else None),
        ("written by", ", ".join(_methods(run)) or None),
    ]
    return [(name, short(value, 60)) for name, value in facts if value]


def _methods(run: RunRecord) -> list[str]:
    found = {str(row["method"]).replace("_", " ") for row in run.environments if row.get("method")}
    return sorted(found)


def _headline(rows: list[heldout.PolicyRow]) -> dict[str, heldout.PolicyRow] | None:
    by_key = {row.key: row for row in rows}
    if "before" not in by_key or "after" not in by_key:
        return None
    return {"before": by_key["before"], "after": by_key["after"]}


def _heldout_chart(rows: list[heldout.PolicyRow]) -> Markup:
    bounds = [
        bound
        for row in rows
        for bound in (row.mean_return.value, row.mean_return.low, row.mean_return.high)
        if number(bound) is not None and bound is not None
    ]
    low, high = min([0.0, *bounds]), max([1.0, *bounds])
    return charts.interval_rows(
        [(row.name, row.color, row.mean_return) for row in rows],
        label="Held-out mean return of each policy with 95% intervals",
        x_range=(math.floor(low * 5) / 5, high),
    )
