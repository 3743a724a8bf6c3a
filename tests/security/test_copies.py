"""Attacks by way of Fork: copies share a user id and a scratch folder."""

from __future__ import annotations

import asyncio
import os
import subprocess

import pytest

from sandbox_server.host_process import open_process
from sandbox_server.jail import Jail
from tests.server.conftest import COUNTER, JAILS, stepping
from tests.server.small import Small, serving
from tests.wire import Wire


async def test_closing_or_cancelling_while_copies_are_made_leaves_nothing(wire: Wire) -> None:
    for delay_s in (0.0, 0.002, 0.005, 0.01):
        for cancel in (False, True):
            (episode,) = await wire.start(COUNTER, max_processes=100)
            forking = asyncio.create_task(wire.fork(episode, 60))
            await asyncio.sleep(delay_s)
            if cancel:
                forking.cancel()
            await wire.close(episode)
            copies = await asyncio.gather(forking, return_exceptions=True)
            await wire.close(*[c for made in copies if isinstance(made, list) for c in made])
    # The neighbour.
    assert await wire.live_episodes(1) == 1


async def test_a_step_beside_a_copy_is_in_both_records_or_in_one_alone(wire: Wire) -> None:
    echo = stepping("return action, 0.0, False, False, {}")
    (episode,) = await wire.start(echo, max_processes=40)
    forking = asyncio.create_task(wire.fork(episode, 20))
    await asyncio.sleep(0.005)
    (first,) = await wire.act((episode, 0, "a"))
    assert first.observation == "a"
    for copy in await forking:
        # It is at its own next step, whichever that is, and its record replays.
        (behind,) = await wire.act((copy, 0, "a"))
        assert behind.observation == "a"
        assert (await wire.verify(copy)).reproduced
        await wire.close(copy)
    await wire.close(episode)


# An original that answers for its copy and dies, with the copy's hello already said.
LYING_FORK = """
import array, os, socket, struct
class LyingEnv:
    def reset(self, seed=None):
        return "ready", {}
    def step(self, action):
        os.write(3, b"\\x00" + struct.pack("<BIBBdQIII", 3, 3, 1, 0, 0.0, 0, 0, 0, 0))
        os.read(3, 60_001)
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=os.dup(3))
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if os.fork() == 0:
            os.write(descriptors[0], b"\\x00hello")
            time.sleep(60)
        time.sleep(0.01)
        os.write(3, b"\\x00" + struct.pack("<BIBBdQIII", 6, 4, 1, 0, 0.0, 0, 0, 0, 0))
        os._exit(0)
"""


def _jails(small: Small) -> list[Jail]:
    return list(small.engine.jails._jails.values())


def _free_users(small: Small) -> list[int]:
    """User ids that no episode has, of all jails."""
    return sorted(user for jail in _jails(small) for user in jail._free_users)


@pytest.mark.parametrize("backend", JAILS)
async def test_a_family_that_dies_while_it_is_copied_gives_its_user_back_once(
    backend: str,
) -> None:
    """Given back twice, an id would be two episodes', and the sweep of one kill the other."""
    async with serving(backend=backend) as small:
        users = sorted(user for jail in _jails(small) for user in jail._process.users)
        for _ in range(10):
            (episode,) = await small.start(LYING_FORK, max_processes=4)
            await small.act((episode, 0, "x"))
            await small.close(*await small.fork(episode, 1), episode)
        for _ in range(100):
            if len(_free_users(small)) >= len(users):
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.1)
        assert _free_users(small) == users
        assert (await small.load()).live_episodes == 0


ONE_FOR_TWO = LYING_FORK.replace("if os.fork() == 0:", "if True:").replace(
    "            time.sleep(60)\n", ""
)


async def test_an_original_cannot_be_its_own_copy(wire: Wire) -> None:
    source = ONE_FOR_TWO.replace("os._exit(0)", "time.sleep(9)")
    (episode,) = await wire.start(source, max_processes=4)
    await wire.act((episode, 0, "x"))
    assert await wire.fork(episode, 1) == []
    await wire.close(episode)


# One process that says hello for both of its copies.
TWO_FOR_ONE = LYING_FORK.replace("recv_fds(channel, 1, 1)", "recv_fds(channel, 1, 8)").replace(
    'os.write(descriptors[0], b"\\x00hello")', '[os.write(d, b"\\x00hello") for d in descriptors]'
)


async def test_one_process_cannot_be_two_copies(wire: Wire) -> None:
    (episode,) = await wire.start(TWO_FOR_ONE, max_processes=4)
    await wire.act((episode, 0, "x"))
    assert await wire.fork(episode, 2) == []
    await wire.close(episode)
    assert await wire.live_episodes(1) == 1


async def test_forks_of_one_episode_at_once_do_not_mix(wire: Wire) -> None:
    """Their sockets follow one another in the queue of one process."""
    (episode,) = await wire.start(COUNTER, max_processes=128)
    made = await asyncio.gather(*[wire.fork(episode, 9) for _ in range(10)])
    copies = [copy for some in made for copy in some]
    assert len(set(copies)) == 90
    results = await wire.act(*[(copy, 0, "+") for copy in copies])
    assert {result.observation for result in results} == {"at 1"}
    await wire.close(episode, *copies)


def test_a_pid_that_another_process_has_by_now_is_not_taken_for_the_copy() -> None:
    mine = os.getuid()
    pidfd = open_process(os.getpid(), mine)
    assert pidfd is not None
    os.close(pidfd)
    assert open_process(os.getpid(), mine + 1) is None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as ended:
        assert ended.stdin is not None
        ended.stdin.close()
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        # Not reaped yet: there is a process of that id and user, and it is no use.
        assert open_process(ended.pid, mine) is None
    assert open_process(ended.pid, mine) is None
