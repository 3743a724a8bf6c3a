"""Between episodes of one jail: none sees, touches or starves another."""

from __future__ import annotations

import asyncio
import re

import grpc
import pytest
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import LocalServer
from tests.security.attack import HELPERS
from tests.server.conftest import COUNTER, JAILS, stepping
from tests.wire import Wire


async def _says(wire: Wire, body: str, **limits: float) -> str:
    """What the first step of an episode observes."""
    (episode,) = await wire.start(HELPERS + stepping(body), **limits)
    (result,) = await wire.act((episode, 0, "{}"))
    await wire.close(episode)
    assert result.outcome == pb.OUTCOME_COMPLETED, result
    return result.observation


async def test_scratch_folders_are_private(wire: Wire) -> None:
    (writer,) = await wire.start(stepping("open('/tmp/secret', 'w').write('x')"))
    (wrote,) = await wire.act((writer, 0, "x"))
    assert wrote.observation == "survived"
    assert await _says(wire, "return said(os.listdir('/tmp'))") == "[]"
    await wire.close(writer)
    # Neither is what an ended episode left there for the next.
    assert await _says(wire, "return said(os.listdir('/tmp'))") == "[]"


async def test_every_episode_has_a_user_of_its_own(wire: Wire) -> None:
    bodies = "return said(os.getuid())"
    assert await _says(wire, bodies) != await _says(wire, bodies)


async def test_what_one_episode_does_to_its_interpreter_the_next_does_not_see(wire: Wire) -> None:
    changing = """
import builtins, json, random
json.dumps = random.random = len
builtins.print = None
sys.modules['heapq'] = None
sys.path.insert(0, '/tmp')
os.environ['LEFT'] = 'behind'
with open('/tmp/heapq.py', 'w') as f: f.write('x = 1')
return said('changed')
"""
    looking = """
import builtins, heapq, json, random
return said([json.dumps(1), random.random is len, print is None, hasattr(heapq, 'x'),
             '/tmp' in sys.path, 'LEFT' in os.environ])
"""
    assert await _says(wire, changing) == "changed"
    assert await _says(wire, looking) == "['1', False, False, False, False, False]"


async def test_an_episode_cannot_count_its_neighbours_by_their_pids(wire: Wire) -> None:
    """Calls that answer about any pid are refused, or answer as if there were none."""
    body = """
found = [pid for pid in range(1, 3_000) if pid not in (os.getpid(), os.getppid())
         and not attempt(os.kill, pid, 0).startswith('refused')]
return said(found)
"""
    others = await wire.start(COUNTER, 5)
    assert await _says(wire, body) == "[]"
    await wire.close(*others)


async def test_many_hostile_episodes_at_once_hurt_no_neighbour(wire: Wire) -> None:
    bodies = ["while True: pass", "os._exit(1)", "x = bytearray(1 << 34)", "os.closerange(0, 9)"]
    hostile = []
    for body in bodies:
        hostile += await wire.start(stepping(body), 4, step_timeout_s=1.5)
    honest = await wire.start(COUNTER, 16)
    results = await wire.act(*[(episode, 0, "+") for episode in hostile + honest])
    for result in results[:16]:
        assert result.outcome not in (pb.OUTCOME_COMPLETED, pb.OUTCOME_UNSPECIFIED)
        assert not result.HasField("reward")
    assert [result.observation for result in results[16:]] == ["at 1"] * 16
    await wire.close(*hostile, *honest)


FORKING = """
import os
class ForkingEnv:
    def reset(self, seed=None):
        return "ready", {}
    def step(self, action):
        made = 0
        for _ in range(127):
            try:
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
            except OSError:
                break
            made += 1
        return str(made), 0.0, False, False, {}
"""


@pytest.mark.parametrize("backend", JAILS)
async def test_a_jail_out_of_processes_ends_nobodys_episode(backend: str) -> None:
    """Bombs fill the jail's pids; its zygote must not die of a fork that fails."""
    with LocalServer(backend=backend, max_episodes=20) as server:
        async with grpc.aio.insecure_channel(server.address) as channel:
            wire = Wire(channel)
            counted = dict((await wire.info()).isolation)["cgroup"]
            (honest,) = await wire.start(COUNTER)
            bombs = await wire.start(FORKING, 2, max_processes=128)
            made = await wire.act(*[(bomb, 0, "x") for bomb in bombs])
            forked = sum(int(result.observation) for result in made)
            # Without a pids cgroup there is nothing to exhaust, and the server says so.
            assert (forked < 254) == ("pids" in counted)
            refused = []
            if "pids" in counted:
                item = pb.ResetItem(program_id=await _id_of(wire, COUNTER))
                refused = await wire.reset(item, item, item)
            assert all(result.error.retry_delay_s > 0 for result in refused)
            (result,) = await wire.act((honest, 0, "+"))
            assert result.observation == "at 1"
            # What the bombs left is swept up although there is no room for a sweeper.
            await wire.close(*bombs)
            assert await wire.live_episodes(1) == 1
            await asyncio.sleep(0.5)
            assert len(await wire.start(COUNTER, 3)) == 3


async def _id_of(wire: Wire, known: str) -> str:
    """The id of a program that is registered already, which takes no process."""
    return await wire.register(known)


async def test_an_episode_id_says_nothing_of_another(wire: Wire) -> None:
    ids = await wire.start(COUNTER, 30)
    # 128 bits of the system's own randomness each.
    assert all(re.fullmatch(r"[\w-]{22}", episode_id) for episode_id in ids)
    for at in range(22):
        assert len({episode_id[at] for episode_id in ids[:-1]}) > 1
    await wire.close(*ids)


async def test_guessed_ids_are_nobodys(wire: Wire) -> None:
    (mine,) = await wire.start(COUNTER)
    near = [mine[:-1], mine + "x", mine.swapcase(), mine[::-1], "", "..", "\x00", mine + "\x00"]
    results = await wire.act(*[(guess, 0, "+") for guess in near])
    reasons = {result.error.reason for result in results}
    assert reasons == {pb.ERROR_REASON_EPISODE_NOT_FOUND}
    await wire.close(*near)
    (result,) = await wire.act((mine, 0, "+"))
    assert result.observation == "at 1"
    await wire.close(mine)
