"""A server's cgroups hold their limits, and go with the server, however it ends."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_server import cgroups, host_process, owner

MOUNT = Path("/sys/fs/cgroup")

needs_cgroups = pytest.mark.skipif(
    not cgroups.usable_controllers(), reason="needs root and controllers of cgroup version 1"
)


@pytest.fixture
def tree() -> Iterator[cgroups.CgroupTree]:
    tree = cgroups.CgroupTree()
    yield tree
    tree.close()


def folders(tree: cgroups.CgroupTree, path: str) -> list[Path]:
    return [MOUNT / controller / path for controller in tree.controllers]


@needs_cgroups
def test_limits_of_a_group_are_the_kernels(tree: cgroups.CgroupTree) -> None:
    path = tree.group("tenant", memory_bytes=1 << 26, pids=7, cpu_weight=200)
    limits = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.shares"}
    found = {c: (MOUNT / c / path / limits[c]).read_text().strip() for c in tree.controllers}
    expected = {"memory": str(1 << 26), "pids": "7", "cpu": "2048"}
    assert found == {c: expected[c] for c in tree.controllers}


@needs_cgroups
def test_a_group_of_a_group_is_below_it(tree: cgroups.CgroupTree) -> None:
    outer = tree.group("tenant", pids=7, cpu_weight=100)
    inner = tree.group("tenant/jail-1", cpu_weight=100)
    assert inner == f"{outer}/jail-1"
    tree.remove("tenant")
    assert not any(folder.exists() for folder in folders(tree, outer))


@needs_cgroups
def test_a_group_is_removed_with_what_runs_in_it(tree: cgroups.CgroupTree) -> None:
    path = tree.group("jail-1", cpu_weight=100)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        for folder in folders(tree, path):
            (folder / "cgroup.procs").write_text(str(sleeper.pid))
        tree.remove("jail-1")
    assert sleeper.returncode == -signal.SIGKILL
    assert not any(folder.exists() for folder in folders(tree, path))


@needs_cgroups
def test_trees_of_one_process_do_not_end_one_another(tree: cgroups.CgroupTree) -> None:
    other = cgroups.CgroupTree()
    path = tree.group("jail-1", cpu_weight=100)
    assert other.group("jail-1", cpu_weight=100) != path
    other.close()
    assert all(folder.exists() for folder in folders(tree, path))


MAKER = """
import subprocess, sys
from sandbox_server import cgroups
path = cgroups.CgroupTree().group("jail-1", cpu_weight=100)
print(path, flush=True)
sys.stdin.read()
"""


@needs_cgroups
def test_only_groups_of_dead_servers_are_reaped() -> None:
    command = [sys.executable, "-c", MAKER]
    controllers = cgroups.CgroupTree().controllers
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as maker,
        subprocess.Popen(["sleep", "60"]) as sleeper,
    ):
        assert maker.stdout is not None
        path = maker.stdout.readline().strip()
        groups = [MOUNT / controller / path for controller in controllers]
        (groups[0] / "cgroup.procs").write_text(str(sleeper.pid))
        cgroups.reap_dead()
        assert all(group.exists() for group in groups)
        maker.kill()
        maker.wait()
        cgroups.reap_dead()
        assert not any(group.parent.parent.exists() for group in groups)
        assert sleeper.wait() == -signal.SIGKILL


def test_without_controllers_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "usable_controllers", lambda: ())
    tree = cgroups.CgroupTree()
    assert not list(MOUNT.glob(f"*/{tree.group('jail-1', memory_bytes=1)}"))
    tree.close()


def test_an_owner_is_dead_only_when_it_is_surely_gone() -> None:
    mine = owner.name()
    pid, start, namespace, boot = mine.split("-")
    assert not owner.is_dead(mine)
    # The pid is there again, as another process.
    assert owner.is_dead(f"{pid}-{int(start) + 1}-{namespace}-{boot}")
    assert not owner.is_dead(f"{pid}-{int(start) + 1}-{int(namespace) + 1}-{boot}")
    # Of another machine, which has its first namespace by the same number.
    assert not owner.is_dead(f"{pid}-{int(start) + 1}-{namespace}-{boot[::-1]}")
    assert not owner.is_dead("NSJAIL.4711")
    with subprocess.Popen(["sleep", "60"]) as child:
        stat = Path(f"/proc/{child.pid}/stat")
        started = stat.read_text().rpartition(")")[2].split()[19]
        name = f"{child.pid}-{started}-{namespace}-{boot}"
        assert not owner.is_dead(name)
        child.kill()
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        # A zombie does nothing more, whether or not somebody waits for it.
        assert owner.is_dead(name)
    assert owner.is_dead(name)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOENT])
def test_what_cannot_be_seen_is_not_dead(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptor left to look with, or a /proc that hides the processes of others."""
    name = owner.name()

    def refuse(path: Path) -> str:
        raise OSError(number, "refused", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    assert not owner.is_dead(name)


@needs_cgroups
def test_tenants_trees_divide_the_cpu_by_their_weights(tree: cgroups.CgroupTree) -> None:
    """What is compared is what lies side by side: the trees, and in each its jails."""
    other = cgroups.CgroupTree()
    shares = {}
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        for one, weight in ((tree, 150), (other, 50)):
            one.share_cpu("jail-1", sleeper.pid, os.geteuid(), weight)
            jail = MOUNT / "cpu" / one.group("jail-1")
            shares[weight] = [int((f / "cpu.shares").read_text()) for f in (jail.parent, jail)]
        assert sleeper.pid in map(int, (jail / "cgroup.procs").read_text().split())
        other.close()
    assert shares == {150: [1536, 1024], 50: [512, 1024]}


@needs_cgroups
def test_whoever_has_the_pid_of_a_process_that_ended_is_let_go(
    tree: cgroups.CgroupTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be killed with the group."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        # As if the process had ended between the look at it and the move.
        monkeypatch.setattr(
            host_process, "open_process", lambda pid, user: os.open("/dev/null", 0)
        )
        monkeypatch.setattr(host_process, "is_running", lambda pidfd: False)
        assert tree.meter("episode-1", stranger.pid, os.geteuid()) is None
        tree.share_cpu("jail-1", stranger.pid, os.geteuid(), 100)
        tree.close()
        assert stranger.poll() is None
        stranger.kill()


@needs_cgroups
def test_a_meter_that_would_take_a_process_from_its_part_of_the_cpu_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where cpu and cpuacct are mounted together."""
    monkeypatch.setattr(cgroups.os.path, "samefile", lambda one, other: True)
    assert "cpu" in cgroups.usable_controllers()
    assert not cgroups.CgroupTree().measures_cpu
