"""A run folder becomes a report, whatever state the folder is in and whatever it holds."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from spadework.report import write_report
from spadework.untrusted_text import short, visible
from tests.report.synthetic_run import write_synthetic_run

ATTACK = (
    "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=2>"
    "<svg onload=window.pwned=3>{{ 7*7 }}{% raw %}${7*7}<!--<script>]]>\"'>"
    "\x1b[31mred\x1b]0;title\x07\u202egnp.exe\u200b\x00"
)


def details(html: str) -> list[dict[str, Any]]:
    """Unpack the details of all environments, as the page's script does."""
    blocks = re.findall(r'<script type="application/json" class="block">"([^"]*)"</script>', html)
    return [d for block in blocks for d in json.loads(gzip.decompress(base64.b64decode(block)))]


def index(html: str) -> list[dict[str, Any]]:
    match = re.search(r'<script type="application/json" id="index">(.*?)</script>', html, re.S)
    assert match
    table = json.loads(match.group(1))
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def report(run: Path) -> str:
    path = write_report(run)
    assert path == run / "report.html"
    assert path.stat().st_size < 5_000_000
    return path.read_text("utf-8")


def test_a_finished_run_shows_its_result_and_every_environment(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "demo", steps=24)
    html = report(run)
    after = json.loads((run / "eval.json").read_text())["policies"]["after"]
    assert f'<span class="after">{after["mean_return"]:.2f}</span>' in html
    assert "The agent learned: the 95% intervals do not overlap." in html
    assert "This run has not finished" not in html
    rows = index(html)
    with sqlite3.connect(run / "archive.sqlite") as archive:
        ids = {row[0] for row in archive.execute("SELECT env_id FROM environments")}
    archive.close()
    assert {row["id"] for row in rows} == ids
    assert len(details(html)) == len(rows)
    assert any(row["reason"] != "OK" for row in rows)


def test_passwords_and_misleading_hints_are_regimes_of_their_own(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "demo", steps=8)
    with sqlite3.connect(run / "archive.sqlite") as archive:
        ids = [row[0] for row in archive.execute("SELECT DISTINCT env_id FROM measurements")][:2]
        for env_id, regime in zip(ids, ("password_only", "misleading_hint"), strict=True):
            archive.execute(
                "UPDATE measurements SET regime = ? WHERE env_id = ?", (regime, env_id)
            )
    archive.close()
    html = report(run)
    regimes = {row["id"]: row["regime"] for row in index(html)}
    assert [regimes[env_id] for env_id in ids] == ["password", "misleading"]
    assert "<dt>password only</dt>" in html
    for key in ("password", "misleading"):
        assert f".c-{key} {{ --c: var(--{key}); }}" in html


def test_the_page_asks_for_nothing_from_elsewhere(tmp_path: Path) -> None:
    html = report(write_synthetic_run(tmp_path / "demo", steps=8))
    assert "default-src 'none'" in html
    assert not re.search(r"""\b(src|href)\s*=\s*(["'][^#]|[^"'])""", html)
    assert "url(" not in html
    assert "@import" not in html


def test_a_killed_run_gets_a_report_that_says_so(tmp_path: Path) -> None:
    html = report(write_synthetic_run(tmp_path / "killed", steps=30, killed=True))
    assert "This run has not finished: there is no summary.json." in html
    assert "The last finished step is 18 (the config asks for 30 steps)." in html
    assert "metrics.jsonl: 1 unreadable line left out." in html
    assert "ends in the middle" in html
    assert "There is no eval.json" in html
    assert len(index(html)) > 0


def test_an_empty_folder_gets_a_report_and_a_missing_one_an_error(tmp_path: Path) -> None:
    html = report(tmp_path)
    assert "No training step was finished." in html
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        write_report(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "name", ["config.json", "eval.json", "summary.json", "metrics.jsonl", "archive.sqlite"]
)
@pytest.mark.parametrize("content", [b"", b"\xff\x00garbage", b"[1, 2]", b"{" * 5000])
def test_no_single_spoiled_file_prevents_the_report(
    tmp_path: Path, name: str, content: bytes
) -> None:
    run = write_synthetic_run(tmp_path / "demo", steps=5)
    (run / name).write_bytes(content)
    assert "</html>" in report(run)
    (run / name).unlink()
    assert "</html>" in report(run)


def test_numbers_that_are_none_do_not_reach_the_charts(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "demo", steps=5)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows[1]["agent/mean_return"] = float("nan")
    rows[2]["regret/mean"] = float("inf")
    rows[3]["agent/return_std"] = "a word"
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert not re.search(r"\b(nan|inf)\b", report(run).split("<main>")[1], re.I)


def test_a_resumed_step_counts_once(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "demo", steps=6)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 3, "agent/mean_return": 0.5}) + "\n")
    assert re.search(r"<dt>training steps</dt><dd>6</dd>", report(run))


def test_a_run_still_being_written_is_read_without_disturbing_it(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "demo", steps=5)
    writer = sqlite3.connect(run / "archive.sqlite")
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("UPDATE environments SET family = 'from the log'")
    writer.commit()
    writer.execute("UPDATE environments SET family = 'not committed'")
    html = report(run)
    writer.close()
    assert {row["family"] for row in index(html)} == {"from the log"}


def test_what_environments_wrote_stays_text(tmp_path: Path) -> None:
    html = report(write_synthetic_run(tmp_path / "demo", steps=8, extra_text=ATTACK))
    # Scripts of ours only: the index, the blocks and one program.
    kinds = re.findall(r"<script([^>]*)>", html)
    assert kinds.count("") == 1
    assert all(k == "" or k.startswith(' type="application/json"') for k in kinds)
    assert "<img" not in html
    assert "onload=" not in re.sub(r"&lt;svg onload=", "", html)
    for hidden in "\x00\x07\x1b\u202e\u200b":
        assert hidden not in html
    shown = next(d for d in details(html) if d["source"])
    assert ATTACK[:40] in shown["source"]
    assert "\u241b[31mred" in shown["source"]
    assert "\u27e8U+202E\u27e9gnp.exe" in shown["source"]
    assert shown["pairs"] == [] or ATTACK[:40] in shown["pairs"][0]["plain"]["turns"][0][0]


def test_a_hostile_run_name_and_hostile_settings_stay_text(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "<img src=x onerror=alert(1)>", steps=4)
    (run / "config.json").write_text(json.dumps({"<script>": {"preset": ATTACK}}))
    html = report(run)
    assert "<img" not in html
    assert html.count("<script>") == 1


def test_bytes_that_are_no_text_are_shown_as_replacements(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "demo", steps=4)
    with sqlite3.connect(run / "archive.sqlite") as archive:
        archive.execute("UPDATE environments SET family = CAST(x'ff41' AS TEXT), source = x'ff00'")
    archive.close()
    assert "\ufffdA" in {row["family"] for row in index(report(run))}


def test_a_long_run_stays_small_and_says_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_synthetic_run(tmp_path / "demo", steps=24)
    monkeypatch.setattr("spadework.report.environment_list.MAX_BLOCK_BYTES", 12_000)
    html = report(run)
    rows = index(html)
    missing = [row for row in rows if row["block"] < 0]
    assert 0 < len(missing) < len(rows)
    assert f"The details of {len(missing)} do not fit into this file" in html


def test_the_report_is_replaced_whole(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "demo", steps=4)
    (run / "report.html").write_text("old")
    report(run)
    shutil.rmtree(run / "trajectories")
    assert "</html>" in report(run)
    assert not list(run.glob("*.partial"))


def test_visible_text_cuts_and_says_by_how_much() -> None:
    assert visible("a" * 12, 10) == "a" * 10 + "\n[2 more characters are in the run folder]"
    assert visible("tab\tline\nend\r\n") == "tab\tline\nend\n"
    assert visible("\ud800") == "\u27e8U+D800\u27e9"
    assert short("two\nlines and more", 10) == "two lines\u2026"
