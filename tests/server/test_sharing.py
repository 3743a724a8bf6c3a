"""What a zygote shares with its children stays shared where the interpreter can do it."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import collections, gc, json, random, sys
from sandbox_server.worker import sharing

class Mine:
    count = {}

made = sharing.make_all_immortal()
gc.freeze()
before = [sys.getrefcount(thing) for thing in (Mine, Mine.count, json.dumps, random.random)]
kept = [Mine, Mine.count, json.dumps, random.random] * 100
after = [sys.getrefcount(thing) for thing in (Mine, Mine.count, json.dumps, random.random)]
for _ in range(3):
    # What came before and what comes after live together, and the collector runs.
    Mine.count[len(Mine.count)] = collections.OrderedDict(a=[Mine() for _ in range(1000)])
    gc.collect()
del Mine, json
gc.collect()
print(made, before == after)
"""


def test_use_does_not_write_to_what_children_share_from_python_3_12_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )

    immortal = sys.implementation.name == "cpython" and (3, 12) <= sys.version_info[:2] <= (3, 13)
    assert done.stdout.split() == [str(immortal), str(immortal)]
    assert done.stderr == ""
