"""A Ray cluster of several nodes on this machine, in a process of its own.

Ray starts threads and warns, which the tests' own process should not see. Prints a line of
JSON when it runs, then takes a line of standard input for each thing to do, and answers each
with a line of JSON. The end of standard input ends the cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

_NODES = 2
# Enough for Ray; nothing here makes use of it.
_STORE_BYTES = 80 * 2**20
# Seconds until Ray misses a node: as it is, over ten.
_SYSTEM = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}


class RayNodes:
    """The cluster; each method is something to do.

    Attributes:
        address: What `RAY_ADDRESS` is to be.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the Ray cluster did not start; its reason is above"
        return json.loads(line)

    def _do(self, *words: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def kill_node(self, with_pid: int) -> None:
        """Kill all processes of the node that a process is on."""
        assert self._do("kill", str(with_pid)), f"process {with_pid} is on no node"

    def directory(self, address: str) -> dict[str, str]:
        """What a program of the cluster sees in the directory of a book."""
        return self._do("directory", address)


@contextlib.contextmanager
def ray_nodes() -> Iterator[RayNodes]:
    """Run a cluster for the time of the block."""
    with (
        # Not pytest's: Ray's sockets are in it, and their paths must be short.
        tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.scale.ray_nodes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": folder},
        ) as process,
    ):
        try:
            yield RayNodes(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=60)


def _main() -> None:
    output, sys.stdout = sys.stdout, sys.stderr
    import ray
    from ray.cluster_utils import Cluster

    from sandbox_server.shards.cluster import NAMESPACE, directory_name
    from tests.server.conftest import descendants

    # The head is for the books alone: it has no CPU to put a shard on.
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
            "_system_config": _SYSTEM,
        },
    )
    nodes = [
        cluster.add_node(num_cpus=_NODES, object_store_memory=_STORE_BYTES) for _ in range(_NODES)
    ]
    print(json.dumps(cluster.address), flush=True, file=output)
    for line in sys.stdin:
        what, argument = json.loads(line)
        answer: Any = None
        if what == "kill":
            for node in nodes:
                raylet = node.all_processes["raylet"][0].process.pid
                below = descendants(raylet)
                if int(argument) in below:
                    for pid in (raylet, *below):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    cluster.remove_node(node, allow_graceful=False)
                    nodes.remove(node)
                    answer = True
                    break
        else:
            ray.init(address=cluster.address, namespace=NAMESPACE, ignore_reinit_error=True)
            directory = ray.get_actor(directory_name(argument))
            answer = ray.get(directory.addresses.remote())
        print(json.dumps(answer), flush=True, file=output)
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    _main()
