"""The audit log is its owner's alone, and what keeps it from being written ends nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox_server.audit import AuditError, AuditLog
from sandbox_server.rate import Rate


def events(path: Path) -> list[str]:
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "audit.jsonl"


def test_a_file_that_is_moved_away_is_made_anew_for_its_owner_alone(path: Path) -> None:
    log = AuditLog(str(path))
    log.record("reset", "alice")
    path.rename(path.with_suffix(".1"))
    log.record("end", "alice")
    log.close()
    assert events(path.with_suffix(".1")) == ["reset"]
    assert events(path) == ["end"]
    assert path.stat().st_mode & 0o777 == path.with_suffix(".1").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_written_is_counted_and_raises_nothing(path: Path) -> None:
    log = AuditLog(str(path))
    path.unlink()
    path.parent.rmdir()
    log.record("reset", "alice")
    log.record("end", "alice")
    assert log.lost_total == 2
    path.parent.mkdir()
    log.record("verify", "alice")
    log.close()
    assert log.lost_total == 2
    assert events(path) == ["verify"]


def test_a_full_disk_is_counted_and_raises_nothing() -> None:
    log = AuditLog("/dev/full")
    log.record("reset", "alice")
    assert log.lost_total == 1
    log.close()


def test_a_log_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="cannot write the audit log"):
        AuditLog(str(tmp_path / "nowhere" / "audit.jsonl"))


def test_a_flood_of_strangers_is_counted_and_fills_no_disk(path: Path) -> None:
    now = 100.0
    log = AuditLog(str(path))
    log._refusals = Rate(10, lambda: now)
    for _ in range(1_000):
        log.refused(peer="ipv4:192.0.2.1:1")
    assert log.events_total["refused", ""] == 1_000
    assert events(path) == ["refused"] * 10
    now += 1
    log.refused()
    log.close()
    assert json.loads(path.read_text().splitlines()[-1])["not_written_before"] == 990
