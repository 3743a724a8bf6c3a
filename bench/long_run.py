"""A run of hours, killed and resumed on its way: is memory flat, is nothing lost?

    python bench/long_run.py [OVERRIDE ...] [--minutes 180] [--kills 2] [--preset cpu-demo]

Starts `spadework train`, looks every ten seconds at the memory of the trainer and of all below it
(the sandbox server and its jails), kills the trainer with SIGKILL at even distances, resumes it,
and ends it after the time is up. Then: every step is there once, nothing of the server is left,
and lines fitted to memory after the warm-up of each part say what it grows by in an hour. Writes
docs/long-run.json and docs/long-run.svg.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from spadework.benchmark.meter import pss_kib
from trainer.student import t_quantile

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "long-run.json"
EVERY_S = 10.0
# Of a part between two starts: until evaluation is over and caches are full.
WARM_UP = 0.25
# Memory swings with what a step does at the time; its peaks are what must not grow.
WINDOW_S = 120.0
MORE_STEPS_THAN_FIT = 1_000_000


@dataclass(frozen=True)
class Sample:
    """One look at the run.

    Attributes:
        part: Number of the start, from 0.
        at_s: Seconds since the first start.
        step: Training steps that are in metrics.jsonl.
        trainer_mib: Proportional set size of the trainer.
        below_mib: Of all processes below it.
        processes: How many these are.
        folder_mib: What the run's folder holds.
    """

    part: int
    at_s: float
    step: int
    trainer_mib: float
    below_mib: float
    processes: int
    folder_mib: float


@dataclass(frozen=True)
class Growth:
    """Slope of a line over the peaks of one part, MiB an hour, and its 95% interval."""

    mib_per_hour: float
    low: float
    high: float


def look(part: int, started: float, pid: int, folder: Path) -> Sample | None:
    """One sample; None where the trainer has ended meanwhile."""
    try:
        below = [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return None
    metrics = folder / "metrics.jsonl"
    return Sample(
        part,
        time.monotonic() - started,
        len(metrics.read_text().splitlines()) if metrics.exists() else 0,
        pss_kib(pid) / 1024,
        sum(pss_kib(child) for child in below) / 1024,
        len(below),
        _size(folder) / (1 << 20),
    )


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # checkpoints come and go
            total += path.stat().st_size
    return total


def growth(samples: Sequence[Sample], name: str) -> Growth:
    """Least squares on time of a quantity's peaks, over what lies behind the warm-up."""
    first, last = samples[0].at_s, samples[-1].at_s
    steady = [s for s in samples if s.at_s >= first + WARM_UP * (last - first)]
    peaks: dict[int, float] = {}
    for sample in steady:
        window = int(sample.at_s // WINDOW_S)
        peaks[window] = max(peaks.get(window, 0.0), getattr(sample, name))
    hours = np.array(list(peaks)) * WINDOW_S / 3600
    values = np.array(list(peaks.values()))
    (slope, _), covariance = np.polyfit(hours, values, 1, cov="unscaled")
    left = values - np.poly1d(np.polyfit(hours, values, 1))(hours)
    degrees = len(values) - 2
    error = float(np.sqrt(covariance[0, 0] * (left @ left) / degrees)) * t_quantile(degrees)
    return Growth(float(slope), float(slope) - error, float(slope) + error)


def play(minutes: float, kills: int, folder: Path, command: Sequence[str]) -> list[Sample]:
    """Run, kill and resume; returns all samples."""
    samples: list[Sample] = []
    started = time.monotonic()
    for part in range(kills + 1):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        below: list[psutil.Process] = []
        ends_at = started + minutes * 60 * (part + 1) / (kills + 1)
        while time.monotonic() < ends_at:
            time.sleep(EVERY_S)
            if process.poll() is not None:
                raise SystemExit(f"the run ended by itself, with {process.returncode}")
            sample = look(part, started, process.pid, folder)
            if sample is not None:
                samples.append(sample)
                print(json.dumps(asdict(sample)), flush=True)
        with contextlib.suppress(psutil.NoSuchProcess):
            below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(below, timeout=30)
        if alive:
            raise SystemExit(f"left behind by the kill: {alive}")
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=180.0)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--preset", default="cpu-demo")
    parser.add_argument("--run-dir", type=Path, default=ROOT / "runs" / "long-run")
    parser.add_argument("overrides", nargs="*")
    given = parser.parse_args()
    command = [sys.executable, "-m", "spadework", "train", given.preset, *given.overrides]
    command += [f"run.steps={MORE_STEPS_THAN_FIT}", "--run-dir", str(given.run_dir), "--resume"]
    samples = play(given.minutes, given.kills, given.run_dir, command)
    rows = [
        json.loads(line) for line in (given.run_dir / "metrics.jsonl").read_text().splitlines()
    ]
    steps = [row["step"] for row in rows]
    if steps != list(range(1, len(steps) + 1)):
        raise SystemExit("metrics.jsonl misses steps, or has some twice")
    parts = [[s for s in samples if s.part == part] for part in range(given.kills + 1)]
    figures = {
        "command": " ".join(["python bench/long_run.py", *sys.argv[1:]]),
        "minutes": given.minutes,
        "kills": given.kills,
        "steps": len(steps),
        "lost_plays": sum(row["sandbox/lost_plays"] for row in rows),
        "growth": {
            name: [asdict(growth(part, name)) for part in parts]
            for name in ("trainer_mib", "below_mib")
        },
        "samples": [asdict(s) for s in samples],
    }
    FIGURES.write_text(json.dumps(figures) + "\n")
    FIGURES.with_suffix(".svg").write_text(picture(samples))
    print(json.dumps({k: v for k, v in figures.items() if k != "samples"}, indent=1))


def picture(samples: Sequence[Sample]) -> str:
    """Memory by time, the starts marked."""
    width, height, left, bottom = 760, 260, 60, 40
    span = samples[-1].at_s
    top = 1.1 * max(max(s.trainer_mib, s.below_mib) for s in samples)

    def place(seconds: float, mib: float) -> str:
        x = left + seconds / span * (width - left - 130)
        return f"{x:.1f},{height - bottom - mib / top * (height - bottom - 20):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="font: 12px system-ui, sans-serif">'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
    ]
    for tick in np.linspace(0, top, 5):
        x, y = place(0, tick).split(",")
        parts.append(
            f'<text x="{float(x) - 6}" y="{y}" text-anchor="end">{tick:.0f}</text>'
            f'<path d="M{place(0, tick)} L{place(span, tick)}" stroke="#e2e2e2"/>'
        )
    for minutes in range(0, int(span / 60) + 1, max(1, int(span / 60 / 6))):
        x, _ = place(minutes * 60, 0).split(",")
        parts.append(
            f'<text x="{x}" y="{height - bottom + 16}" text-anchor="middle">{minutes}</text>'
        )
    for name, label, color in (
        ("trainer_mib", "trainer", "#1f6feb"),
        ("below_mib", "server and jails", "#d1242f"),
    ):
        for part in sorted({s.part for s in samples}):
            points = [place(s.at_s, getattr(s, name)) for s in samples if s.part == part]
            parts.append(f'<path d="M{" L".join(points)}" fill="none" stroke="{color}"/>')
        x, y = place(span, getattr(samples[-1], name)).split(",")
        parts.append(f'<text x="{float(x) + 6}" y="{y}" fill="{color}">{label}</text>')
    parts.append(
        f'<text x="{left}" y="14">MiB (proportional set size)</text>'
        f'<text x="{width - 130}" y="{height - 6}" text-anchor="end">minutes; the line breaks '
        "where the run was killed and resumed</text></svg>"
    )
    return "".join(parts)


if __name__ == "__main__":
    main()
