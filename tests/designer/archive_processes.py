"""Processes around one archive: a writer, a reader, and writers that are killed at work.

`python -m tests.designer.archive_processes write|read|kill ARCHIVE`; fresh processes, since one
that has threads must not fork.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable

from designer import Archive

PAIRS = 32
ENV_ID = "program"
KILLS = 20
# Different states of the file that a reader must see before it is content.
STATES = 10


def write(path: str, tell: Callable[[int], None]) -> None:
    """Write step after step without an end; tell of each that was committed."""
    plays = [
        {
            "arm": arm,
            "seed": seed,
            "episode_return": 0.5,
            "terminated": True,
            "truncated": False,
            "turns": 3,
        }
        for seed in range(PAIRS)
        for arm in ("plain", "hinted")
    ]
    with Archive(path) as archive:
        for step in itertools.count(archive.next_step()):
            archive.record_plays(ENV_ID, step, plays)
            archive.record_measurement(
                ENV_ID,
                step,
                return_plain=0.5,
                return_hinted=0.5,
                regret=0.0,
                regret_se=0.0,
                regime="frontier",
                designer_reward=None,
            )
            tell(step)


def read(path: str) -> None:
    """Read beside the writer until the file has changed often; a torn step is an error."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
    seen: set[int] = set()
    while len(seen) < STATES:
        counts = connection.execute("SELECT COUNT(*) FROM plays GROUP BY step").fetchall()
        assert set(counts) <= {(2 * PAIRS,)}, counts
        seen.add(len(counts))
    connection.close()


def kill(path: str) -> None:
    """Kill writers at random moments; print what each had told, and the state of the file."""
    rng = random.Random(0)
    for _ in range(KILLS):
        told, telling = os.pipe()
        child = os.fork()
        if child == 0:
            write(path, functools.partial(_tell, telling))
            os._exit(1)  # A writer does not end by itself.
        os.close(telling)
        with os.fdopen(told) as lines:
            steps = [int(lines.readline())]
            time.sleep(rng.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
            steps += [int(line) for line in lines]
        os.waitpid(child, 0)
        connection = sqlite3.connect(path)
        (integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
        connection.close()
        print(json.dumps({"steps": steps, "integrity": integrity}), flush=True)


def _tell(pipe: int, step: int) -> None:
    os.write(pipe, b"%d\n" % step)


if __name__ == "__main__":
    role, file = sys.argv[1:]
    if role == "write":
        write(file, lambda step: print(step, flush=True))
    else:
        {"read": read, "kill": kill}[role](file)
