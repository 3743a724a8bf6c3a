"""The engine in the caller's process does what a server does, and refuses the same."""

from __future__ import annotations

import inspect
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandbox_api import (
    EpisodeEndedError,
    EpisodeNotFoundError,
    Limits,
    Outcome,
    ResetItem,
    SandboxClient,
    StepItem,
    StepOrderError,
)

from sandbox_server import DirectSandbox, probe
from sandbox_server.backends import BackendError
from sandbox_server.channel import Channel
from sandbox_server.config import ServerConfig
from sandbox_server.runtime import RuntimeBuildError
from tests.server.conftest import COUNTER, stepping

# Far more than any of it takes, on a machine that is busy with other tests.
_SOON_S = 30.0


@pytest.fixture(scope="module")
def direct() -> Iterator[DirectSandbox]:
    with DirectSandbox(backend="process") as sandbox:
        yield sandbox


def _start(direct: DirectSandbox, source: str, count: int = 1, **limits: float) -> list[str]:
    program = direct.register_program(source, limits=Limits(**limits))  # type: ignore[arg-type]
    assert program.outcome is Outcome.COMPLETED, program.diagnostic
    episodes = direct.reset([ResetItem(program.program_id, seed=i) for i in range(count)])
    assert all(episode.ok for episode in episodes), episodes
    return [episode.episode_id for episode in episodes]


def _works(direct: DirectSandbox) -> None:
    """The next episode works."""
    (episode,) = _start(direct, COUNTER)
    (result,) = direct.step([StepItem(episode, 0, "-")])
    assert result.observation == "at 0"
    direct.close_episodes([episode])


def test_episodes_are_played_verified_and_closed(direct: DirectSandbox) -> None:
    ids = _start(direct, COUNTER, 20)
    for turn in range(2):
        results = direct.step([StepItem(i, turn, "+") for i in ids])
        assert [r.episode_id for r in results] == ids
        assert all(r.ok and r.observation == f"at {turn + 1}" for r in results)
    assert {r.terminated for r in results} == {True, False}
    assert all(verdict.reproduced for verdict in direct.verify(ids))
    assert direct.server_info().steps_total >= 40
    assert direct.close_episodes(ids) == 20
    (gone,) = direct.step([StepItem(ids[0], 2, "+")])
    assert isinstance(gone.error, EpisodeNotFoundError)
    assert direct.server_info().pending_items == 0


def test_a_turn_cap_truncates_and_an_ended_episode_takes_no_step(direct: DirectSandbox) -> None:
    (episode,) = _start(direct, COUNTER, max_steps=2)
    assert not direct.step([StepItem(episode, 0, "-")])[0].truncated
    assert direct.step([StepItem(episode, 1, "-")])[0].truncated
    (after,) = direct.step([StepItem(episode, 2, "-")])
    assert isinstance(after.error, EpisodeEndedError)


def test_a_repeat_is_answered_from_the_record_and_another_order_is_refused(
    direct: DirectSandbox,
) -> None:
    (episode,) = _start(direct, COUNTER)
    first = direct.step([StepItem(episode, 0, "+")])
    steps = direct.server_info().steps_total
    assert direct.step([StepItem(episode, 0, "+")]) == first
    assert direct.server_info().steps_total == steps
    for wrong in (StepItem(episode, 0, "-"), StepItem(episode, 5, "+")):
        (refused,) = direct.step([wrong])
        assert isinstance(refused.error, StepOrderError)
    both = direct.step([StepItem(episode, 1, "-"), StepItem(episode, 1, "-")])
    assert [r.observation for r in both] == ["at 1", "at 1"]
    assert direct.step([StepItem(episode, 2, "-")])[0].ok


def test_a_pipeline_answers_a_repeat_of_a_step_taken_by_hand(direct: DirectSandbox) -> None:
    (episode,) = _start(direct, COUNTER)
    (first,) = direct.step([StepItem(episode, 0, "+")])
    with direct.pipeline() as pipeline:
        pipeline.submit([StepItem(episode, 0, "+")])
        assert pipeline.results() == [first]
        pipeline.submit([StepItem(episode, 0, "-")])
        (refused,) = pipeline.results()
        assert isinstance(refused.error, StepOrderError)
        pipeline.submit([StepItem(episode, 1, "-")])
        (second,) = pipeline.results()
    # And the other way round.
    assert direct.step([StepItem(episode, 1, "-")]) == [second]
    assert direct.step([StepItem(episode, 2, "-")])[0].ok


def test_it_has_the_methods_of_a_client() -> None:
    public = {name for name, _ in inspect.getmembers(SandboxClient) if not name.startswith("_")}
    assert public - {"address"} <= set(dir(DirectSandbox))


def test_another_thread_is_refused(direct: DirectSandbox) -> None:
    (episode,) = _start(direct, COUNTER)
    with ThreadPoolExecutor(1) as thread:
        for call in (
            lambda: direct.step([StepItem(episode, 0, "+")]),
            lambda: list(direct.step_stream([StepItem(episode, 0, "+")])),
            direct.server_info,
            direct.close,
        ):
            with pytest.raises(RuntimeError, match="for the thread that made it"):
                thread.submit(call).result()
    assert direct.step([StepItem(episode, 0, "+")])[0].observation == "at 1"


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("raise ValueError(action)", Outcome.PROGRAM_ERROR),
        ("os._exit(3)", Outcome.EXITED),
        ("os.abort()", Outcome.SIGNALED),
        ("return 'x', float('inf'), False, False, {}", Outcome.PROGRAM_ERROR),
        ("import time; time.sleep(600)", Outcome.TIME_LIMIT),
    ],
)
def test_what_befalls_a_program_is_its_own(
    direct: DirectSandbox, body: str, outcome: Outcome
) -> None:
    (bad,) = _start(direct, stepping(body), step_timeout_s=1.0)
    (good,) = _start(direct, COUNTER)
    results = direct.step([StepItem(bad, 0, "x"), StepItem(good, 0, "-")])
    assert [r.outcome for r in results] == [outcome, Outcome.COMPLETED]
    assert results[0].reward is None
    (after,) = direct.step([StepItem(bad, 1, "x")])
    assert isinstance(after.error, EpisodeEndedError)
    _works(direct)


def test_a_forged_answer_ends_its_episode_and_no_other(direct: DirectSandbox) -> None:
    """What a process sends is checked as a server checks it."""
    forge = """
import gc, os, socket, stat
for fd in range(3, 64):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.write(fd, b"\\x00garbage")
    except OSError:
        pass
"""
    (bad,) = _start(direct, stepping(forge))
    (good,) = _start(direct, COUNTER)
    results = direct.step([StepItem(bad, 0, "x"), StepItem(good, 0, "-")])
    assert [r.outcome for r in results] == [Outcome.PROTOCOL_VIOLATION, Outcome.COMPLETED]
    _works(direct)


def test_a_slow_item_delays_no_other(direct: DirectSandbox) -> None:
    slow, quick = _start(direct, stepping("import time; time.sleep(float(action))"), 2)
    stream = direct.step_stream([StepItem(slow, 0, "1"), StepItem(quick, 0, "0")])
    assert next(stream).episode_id == quick
    # What is not read now goes on, and is there later.
    stream.close()
    assert direct.step([StepItem(slow, 0, "1")])[0].ok


def test_a_lost_episode_is_rebuilt_without_a_word(direct: DirectSandbox) -> None:
    ids = _start(direct, COUNTER, 3)
    assert all(r.ok for r in direct.step([StepItem(i, 0, "-") for i in ids]))
    for episode in direct._engine.episodes.by_id.values():
        channel = episode.channel
        if isinstance(channel, Channel) and episode.episode_id in ids:
            assert channel.host is not None
            os.kill(channel.host[0], signal.SIGKILL)
    results = direct.step([StepItem(i, 1, "+") for i in ids])
    assert [r.observation for r in results] == ["at 1"] * 3, results
    assert all(r.ok for r in direct.step([StepItem(i, 2, "-") for i in ids]))
    _works(direct)


def test_a_fork_goes_on_by_itself(direct: DirectSandbox) -> None:
    (episode,) = _start(direct, COUNTER, max_processes=4)
    direct.step([StepItem(episode, 0, "+")])
    copies = direct.fork(episode, 2)
    results = direct.step([StepItem(copies[0], 1, "+"), StepItem(copies[1], 1, "-")])
    assert [r.observation for r in results] == ["at 2", "at 1"]


def test_idle_episodes_end_while_others_are_stepped(direct: DirectSandbox) -> None:
    (idle,) = _start(direct, COUNTER, idle_timeout_s=0.5)
    (busy,) = _start(direct, COUNTER)
    deadline = time.monotonic() + _SOON_S
    turn = 0
    while direct._engine.episodes.by_id.get(idle) is not None:
        assert time.monotonic() < deadline
        assert direct.step([StepItem(busy, turn, "-")])[0].ok
        turn += 1
        time.sleep(0.05)


def test_groups_and_pipelines_work_here_too() -> None:
    with DirectSandbox(backend="process", settings=ServerConfig(group_size=4)) as direct:
        program = direct.register_program(COUNTER, group_mode=True)
        items = [ResetItem(program.program_id, seed=i) for i in range(8)]
        ids = [episode.episode_id for episode in direct.reset(items)]
        assert all(r.ok for r in direct.step([StepItem(i, 0, "-") for i in ids]))
        with direct.pipeline() as pipeline:
            pipeline.submit([StepItem(i, 1, "-") for i in ids[:4]])
            pipeline.submit([StepItem(i, 1, "-") for i in ids[4:]])
            assert len(pipeline.results(at_least=8)) == 8


def test_a_step_whose_wait_was_given_up_is_answered_to_whoever_sends_it_again(
    direct: DirectSandbox,
) -> None:
    source = stepping("__import__('time').sleep(float(action)); return '', 0.5, False, False, {}")
    ids = _start(direct, source, 2)
    items = [StepItem(ids[0], 0, "0"), StepItem(ids[1], 0, "1.5")]
    given_up = direct.step_stream(items)
    assert next(given_up).episode_id == ids[0]
    given_up.close()
    with direct.pipeline() as pipeline:
        pipeline.submit(items[1:])
        # Else a result that never comes would be waited for without end.
        late = direct._loop.call_later(_SOON_S, direct._loop.stop)
        assert [r.reward for r in pipeline.results(at_least=1)] == [0.5]
        late.cancel()
    assert all(r.ok for r in direct.step([StepItem(i, 1, "0") for i in ids]))
    assert all(verdict.reproduced for verdict in direct.verify(ids))
    assert direct.server_info().pending_items == 0
    direct.close_episodes(ids)


def test_what_is_closed_says_so_and_leaves_no_process_behind() -> None:
    direct = DirectSandbox(backend="process")
    (episode,) = _start(direct, COUNTER)
    direct.close()
    direct.close()
    with pytest.raises(RuntimeError, match="closed"):
        direct.step([StepItem(episode, 0, "-")])
    with pytest.raises(RuntimeError, match="closed"):
        direct.reset([])


@pytest.mark.nsjail
def test_it_does_not_start_where_a_protection_does_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def weaknesses(engine: object, runtime: str) -> dict[str, str]:
        return {"network": "a socket could be made"}

    monkeypatch.setattr(probe, "weaknesses", weaknesses)
    with pytest.raises(BackendError, match="does not hold"):
        DirectSandbox()


def test_it_does_not_start_without_a_runtime_that_is_asked_for() -> None:
    with pytest.raises(RuntimeBuildError):
        DirectSandbox(backend="process", runtimes=["no-such-runtime"])


@pytest.mark.nsjail
def test_jailed_episodes_are_stepped_by_hand() -> None:
    with DirectSandbox() as direct:
        assert direct.server_info().isolation
        ids = _start(direct, COUNTER, 8)
        for turn in range(2):
            results = direct.step([StepItem(i, turn, "+") for i in ids])
            assert all(r.observation == f"at {turn + 1}" for r in results)
        assert all(verdict.reproduced for verdict in direct.verify(ids))
