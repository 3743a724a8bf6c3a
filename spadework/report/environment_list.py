"""The browsable list of environments: a small index, and details in compressed blocks.

Source, prompts and transcripts of a long run are tens of megabytes as text. They go into
the page as gzip in base64, some environments a block, and the page inflates a block when
one of its environments is opened. Whatever the environments wrote is thereby inert in the
page's HTML.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from spadework.report.curriculum import ID_CHARS, mean_returns, regime_key
from spadework.report.run_folder import RunRecord, number
from spadework.untrusted_text import short, visible

BLOCK_ENVIRONMENTS = 16
# Keeps the page under 5 MB; what does not fit is left out by name.
MAX_BLOCK_BYTES = 4_000_000
MAX_INDEX_ROWS = 6_000
MAX_SOURCE_CHARS = 40_000
MAX_PROMPT_CHARS = 12_000
MAX_TURN_CHARS = 3_000
MAX_TURNS = 60

COLUMNS = (
    "id",
    "step",
    "kind",
    "method",
    "skill",
    "family",
    "reason",
    "regime",
    "win",
    "regret",
    "se",
    "reward",
    "block",
    "at",
)


@dataclass
class EnvironmentList:
    """What the page embeds.

    Attributes:
        rows: Index, a list of values in the order of `COLUMNS` each.
        blocks: Base64 of gzipped JSON arrays of details.
        without_details: Environments whose details did not fit.
        without_row: Environments that are not even in the index.
    """

    rows: list[list[Any]] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    without_details: int = 0
    without_row: int = 0


def build(run: RunRecord) -> EnvironmentList:
    """Index all environments and embed the details of as many as fit, played ones first."""
    listing = EnvironmentList()
    history: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for measured in run.measurements:
        history[str(measured.get("env_id"))].append(measured)
    wins = mean_returns(run)
    newest_first = run.environments[::-1]
    ordered = sorted(newest_first, key=lambda r: r.get("gate_reason") != "OK")
    listing.without_row = max(0, len(ordered) - MAX_INDEX_ROWS)
    ordered = ordered[:MAX_INDEX_ROWS]
    used = 0
    for start in range(0, len(ordered), BLOCK_ENVIRONMENTS):
        part = ordered[start : start + BLOCK_ENVIRONMENTS]
        details = [_details(run, row, history[str(row.get("env_id"))]) for row in part]
        packed = gzip.compress(json.dumps(details).encode("ascii"), mtime=0)
        block = base64.b64encode(packed).decode("ascii")
        fits = used + len(block) <= MAX_BLOCK_BYTES
        if fits:
            used += len(block)
            listing.blocks.append(block)
        else:
            listing.without_details += len(part)
        for at, row in enumerate(part):
            place = (len(listing.blocks) - 1, at) if fits else (-1, -1)
            listing.rows.append(_index_row(row, history, wins, place))
    return listing


def _index_row(
    row: dict[str, Any],
    history: dict[str, list[dict[str, Any]]],
    wins: dict[str, float],
    place: tuple[int, int],
) -> list[Any]:
    env = str(row.get("env_id"))
    last = history[env][-1] if history[env] else {}
    return [
        short(env, ID_CHARS),
        number(row.get("created_step")),
        *(short(row.get(key), 60) for key in ("kind", "method", "skill", "family")),
        short(row.get("gate_reason"), 60),
        regime_key(last["regime"]) if last.get("regime") else "",
        _rounded(wins.get(env)),
        _rounded(number(last.get("regret"))),
        _rounded(number(last.get("regret_se"))),
        _rounded(number(row.get("designer_reward"))),
        *place,
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _details(
    run: RunRecord, row: dict[str, Any], measured: list[dict[str, Any]]
) -> dict[str, Any]:
    env = str(row.get("env_id"))
    return {
        "source": visible(row.get("source"), MAX_SOURCE_CHARS),
        "spec": _pretty(row.get("spec_json")),
        "hint": visible(row.get("hint"), MAX_PROMPT_CHARS),
        "prompt": _messages(row.get("prompt")),
        "completion": visible(row.get("completion"), MAX_PROMPT_CHARS),
        "gateDetail": visible(row.get("gate_detail"), MAX_PROMPT_CHARS),
        "gateCost": _pretty(row.get("gate_cost_json")),
        "history": [
            [
                number(m.get("step")),
                *(
                    _rounded(number(m.get(key)))
                    for key in ("return_plain", "return_hinted", "regret", "regret_se")
                ),
                regime_key(m.get("regime")),
                number(m.get("n_pairs")),
            ]
            for m in measured
        ],
        "pairs": [
            {
                "step": step,
                "seed": seed,
                "plain": _episode(arms.get("plain")),
                "hinted": _episode(arms.get("hinted")),
            }
            for (step, seed), arms in sorted(run.trajectories.get(env, {}).items())
        ],
    }


def _pretty(text: Any) -> str:
    """JSON text indented; any other text as it is."""
    if text in (None, "", "null"):
        return ""
    try:
        return visible(
            json.dumps(json.loads(text), indent=2, ensure_ascii=False), MAX_PROMPT_CHARS
        )
    except (TypeError, ValueError, RecursionError):
        return visible(text, MAX_PROMPT_CHARS)


def _messages(prompt: Any) -> list[list[str]]:
    """A prompt as (role, content) pairs, whether it was stored as chat messages or as text."""
    if not prompt:
        return []
    try:
        parsed = json.loads(prompt)
    except (TypeError, ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, list) and all(isinstance(m, dict) for m in parsed):
        return [
            [short(m.get("role"), 40), visible(m.get("content"), MAX_PROMPT_CHARS)] for m in parsed
        ]
    return [["prompt", visible(prompt, MAX_PROMPT_CHARS)]]


def _episode(record: dict[str, Any] | None) -> dict[str, Any] | None:
    if record is None:
        return None
    turns = record.get("turns")
    turns = [t for t in turns if isinstance(t, dict)] if isinstance(turns, list) else []
    return {
        "return": number(record.get("episode_return")),
        "terminated": bool(record.get("terminated")),
        "truncated": bool(record.get("truncated")),
        "lost": bool(record.get("lost")),
        "fault": short(record.get("fault"), 60),
        "leftOut": max(0, len(turns) - MAX_TURNS),
        "turns": [
            [
                visible(turn.get("observation"), MAX_TURN_CHARS),
                visible(turn.get("action"), MAX_TURN_CHARS),
                number(turn.get("reward")),
            ]
            for turn in turns[:MAX_TURNS]
        ],
    }
