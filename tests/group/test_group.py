"""What is promised of episodes that share a process."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from sandbox_api.errors import InvalidRequestError
from sandbox_api.types import Episode, Limits, Outcome, ResetItem, StepItem, StepResult

from tests.group.conftest import GROUP_SIZE, GroupSandbox
from tests.server.conftest import COUNTER

# Everything global that an episode gets to itself, in one observation.
DICE = """
import os, sys
class DiceEnv:
    def reset(self, seed=None):
        self.rolled = [random.randint(1, 6)]
        return f"rolled {self.rolled}", {}
    def step(self, action):
        if action == "hang":
            while True:
                pass
        if action == "crash":
            os.abort()
        if action == "exit":
            os._exit(3)
        if action == "raise":
            [][1]
        if action == "fill":
            bytearray(1 << 40)
        if action == "print":
            print("x" * 2000)
        if action == "garble":
            os.write(3, bytes(5))
        self.rolled.append(random.gauss(0, 1) if action == "gauss" else random.random())
        shown = f"rolled {self.rolled[-3:]}"
        return shown, self.rolled[-1], False, False, {"count": len(self.rolled)}
"""
ACTIONS = ["roll", "gauss", "gauss", "roll", "gauss", "roll"]
LIMITS = {"step_timeout_s": 1.5, "max_output_bytes": 5_000}


async def play(sandbox: GroupSandbox, episodes: list[Episode], index: int, **others: str):
    """One step of all; `others` has the actions of those that do not take the usual one."""
    items = [
        StepItem(e.episode_id, index, others.get(f"_{n}", ACTIONS[index]))
        for n, e in enumerate(episodes)
    ]
    return await sandbox.client.step(items)


def seen(result: StepResult) -> tuple[object, ...]:
    return result.outcome, result.observation, result.reward, result.info_json


async def start(sandbox: GroupSandbox, count: int, *, grouped: bool = True) -> list[Episode]:
    register = sandbox.register if grouped else sandbox.register_alone
    program = await register(DICE, **LIMITS)
    assert program.group_size == (GROUP_SIZE if grouped else 1)
    return await sandbox.reset([ResetItem(program.program_id, seed=n) for n in range(count)])


async def alone(sandbox: GroupSandbox, count: int) -> list[list[tuple[object, ...]]]:
    """What the same episodes show with a process each."""
    episodes = await start(sandbox, count, grouped=False)
    found = [await play(sandbox, episodes, index) for index in range(len(ACTIONS))]
    await sandbox.client.close_episodes([e.episode_id for e in episodes])
    return [list(map(seen, results)) for results in found]


async def processes(sandbox: GroupSandbox, count: int) -> list[int]:
    """Its processes, once they are so many: what was closed before takes a moment to be gone."""
    for _ in range(200):
        found = sandbox.episode_processes()
        if len(found) == count:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{len(found)} processes, not {count}")


async def test_episodes_of_a_program_share_processes_and_not_their_generators(
    sandbox: GroupSandbox,
) -> None:
    count = 2 * GROUP_SIZE + 3
    expected = await alone(sandbox, count)
    episodes = await start(sandbox, count)
    if sandbox.backend == "nsjail":
        await processes(sandbox, 3)
    for index, results in enumerate(expected):
        assert list(map(seen, await play(sandbox, episodes, index))) == results
    verdicts = await sandbox.client.verify([e.episode_id for e in episodes])
    assert all(verdict.reproduced for verdict in verdicts)
    for _ in range(100):
        # Processes of verifications take a moment to be gone.
        live = (await sandbox.client.server_info()).live_episodes
        if live == count:
            break
        await asyncio.sleep(0.05)
    assert live == count


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        ("hang", Outcome.TIME_LIMIT),
        ("crash", Outcome.SIGNALED),
        ("exit", Outcome.EXITED),
        ("garble", Outcome.PROTOCOL_VIOLATION),
        ("raise", Outcome.PROGRAM_ERROR),
        ("fill", Outcome.MEMORY_LIMIT),
    ],
)
async def test_what_ends_one_episode_costs_the_others_nothing(
    sandbox: GroupSandbox, action: str, outcome: Outcome
) -> None:
    expected = await alone(sandbox, GROUP_SIZE)
    episodes = await start(sandbox, GROUP_SIZE)
    for index in range(len(ACTIONS)):
        results = await play(sandbox, episodes, index, **({"_5": action} if index == 2 else {}))
        for n, result in enumerate(results):
            if n != 5 or index < 2:
                assert seen(result) == expected[index][n], (index, n, result)
        if index == 2:
            assert results[5].outcome is outcome
            assert results[5].reward is None
    # The client has not rebuilt any of them: the server has.
    verdicts = await sandbox.client.verify([e.episode_id for e in episodes[:5]])
    assert all(verdict.reproduced for verdict in verdicts)
    await sandbox.still_works()


async def test_several_culprits_in_one_call_each_get_their_own_outcome(
    sandbox: GroupSandbox,
) -> None:
    expected = await alone(sandbox, GROUP_SIZE)
    episodes = await start(sandbox, GROUP_SIZE)
    results = await play(sandbox, episodes, 0, _3="crash", _9="exit", _10="raise")
    assert [results[n].outcome for n in (3, 9, 10)] == [
        Outcome.SIGNALED,
        Outcome.EXITED,
        Outcome.PROGRAM_ERROR,
    ]
    left = [n for n in range(GROUP_SIZE) if n not in (3, 9, 10)]
    assert [seen(results[n]) for n in left] == [expected[0][n] for n in left]


async def test_output_is_counted_by_episode(sandbox: GroupSandbox) -> None:
    episodes = await start(sandbox, 4)
    for index in range(2):
        results = await play(sandbox, episodes, index, _0="print", _1="print")
        assert all(result.ok for result in results)
    results = await play(sandbox, episodes, 2, _0="print")
    assert results[0].outcome is Outcome.OUTPUT_LIMIT
    assert results[0].diagnostic is not None
    assert results[0].diagnostic.limit == "max_output_bytes"
    assert all(result.ok for result in results[1:])


async def test_a_process_killed_from_outside_is_replaced_unnoticed(sandbox: GroupSandbox) -> None:
    if sandbox.backend != "nsjail":
        pytest.skip("only there its processes are told by their user")
    expected = await alone(sandbox, 5)
    episodes = await start(sandbox, 5)
    assert list(map(seen, await play(sandbox, episodes, 0))) == expected[0]
    (pid,) = await processes(sandbox, 1)
    os.kill(pid, signal.SIGKILL)
    assert list(map(seen, await play(sandbox, episodes, 1))) == expected[1]


async def test_an_episode_that_cannot_be_rebuilt_is_lost_alone(sandbox: GroupSandbox) -> None:
    source = DICE.replace("class DiceEnv", "import time\nclass DiceEnv").replace(
        'if action == "hang"',
        'if action == "clock":\n            self.rolled = [time.time()]\n'
        '        if action == "hang"',
    )
    program = await sandbox.register(source, **LIMITS)
    episodes = await sandbox.reset([ResetItem(program.program_id, seed=n) for n in range(4)])
    await play(sandbox, episodes, 0, _1="clock")
    results = await play(sandbox, episodes, 1, _0="crash")
    assert results[0].outcome is Outcome.SIGNALED
    # The client has tried, too, and has seen another observation.
    assert results[1].error is not None
    assert results[2].ok
    assert results[3].ok


async def test_closing_an_episode_that_hangs_leaves_the_others(sandbox: GroupSandbox) -> None:
    episodes = await start(sandbox, 4)
    hung = asyncio.create_task(play(sandbox, episodes[:1], 0, _0="hang"))
    await asyncio.sleep(0.3)
    await sandbox.client.close_episodes([episodes[0].episode_id])
    assert (await hung)[0].error is not None
    items = [StepItem(e.episode_id, 0, "roll") for e in episodes[1:]]
    assert all(result.ok for result in await sandbox.client.step(items))


async def test_programs_do_not_share_a_process(sandbox: GroupSandbox) -> None:
    first = await start(sandbox, 2)
    other = await sandbox.register(DICE + "# another", **LIMITS)
    second = await sandbox.reset([ResetItem(other.program_id, seed=n) for n in range(2)])
    results = await play(sandbox, [*first, *second], 0, _0="crash")
    assert results[0].outcome is Outcome.SIGNALED
    assert all(result.ok for result in results[1:])
    if sandbox.backend == "nsjail":
        await processes(sandbox, 2)


async def test_a_grouped_episode_is_not_copied(sandbox: GroupSandbox) -> None:
    episodes = await start(sandbox, 1)
    with pytest.raises(InvalidRequestError, match="group_mode"):
        await sandbox.client.fork(episodes[0].episode_id, 1)
    with pytest.raises(InvalidRequestError, match="group_mode"):
        await sandbox.client.register_program(
            COUNTER, limits=Limits(max_processes=2), group_mode=True
        )


async def test_group_mode_is_part_of_the_programs_id(sandbox: GroupSandbox) -> None:
    grouped = await sandbox.register(COUNTER)
    separate = await sandbox.register_alone(COUNTER)
    assert grouped.program_id != separate.program_id
    assert (grouped.group_size, separate.group_size) == (GROUP_SIZE, 1)
    assert (await sandbox.client.server_info()).group_size == GROUP_SIZE
