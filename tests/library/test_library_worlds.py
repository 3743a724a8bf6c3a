"""Environments of other libraries play through the server unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from sandbox_api.client import SandboxClient
from sandbox_api.types import (
    Episode,
    Outcome,
    Program,
    ProgramKind,
    ResetItem,
    StepItem,
    StepResult,
    Verdict,
)

from sandbox_server import LocalServer
from tests.library.programs import (
    CATALOGUE,
    MINIGRID_ACTIONS,
    REASONING_GYM_EXCLUDED,
    REASONING_GYM_HASH_DEPENDENT,
    REASONING_GYM_REPRODUCIBLE,
    REASONING_GYM_WITHOUT_ANSWER,
    TOY_TEXT_ACTIONS,
    TOY_TEXT_WINS,
    gymnasium_program,
    minigrid_program,
    reasoning_gym_program,
)

# The first test may have to download and build the runtime.
pytestmark = [pytest.mark.nsjail, pytest.mark.timeout(900)]

# The first import of a library in a cold jail, and sokoban's search for a level, take
# longer than a step may by default.
TIMEOUT_S = 30.0
RUNTIME = "library"


@pytest.fixture(scope="module")
def client() -> Iterator[SandboxClient]:
    with LocalServer(runtimes=[RUNTIME]) as server, SandboxClient(server.address) as client:
        yield client


@dataclass
class Play:
    """One finished play of one program."""

    program: Program
    episode: Episode
    results: list[StepResult]
    verdict: Verdict | None = None


def register(client: SandboxClient, name: str, source: str) -> Program:
    program = client.register_program(source, runtime=RUNTIME)
    assert program.outcome is Outcome.COMPLETED, f"{name}: {program.diagnostic}"
    return program


def play(
    client: SandboxClient,
    programs: Sequence[Program],
    scripts: Sequence[Sequence[str]],
    *,
    seed: int,
    run_oracle: bool = False,
) -> list[Play]:
    """Play one script on each program, all in the same batches, then verify and close."""
    items = [ResetItem(p.program_id, seed=seed, timeout_s=TIMEOUT_S) for p in programs]
    plays = [Play(p, e, []) for p, e in zip(programs, client.reset(items), strict=True)]
    for p in plays:
        assert p.episode.ok, f"{p.program.entry}: {p.episode.error or p.episode.diagnostic}"
    for turn in range(max(len(script) for script in scripts)):
        running = [
            (p, script)
            for p, script in zip(plays, scripts, strict=True)
            if turn < len(script) and not (p.results and p.results[-1].done)
        ]
        steps = [
            StepItem(p.episode.episode_id, turn, script[turn], timeout_s=TIMEOUT_S)
            for p, script in running
        ]
        for (p, _), result in zip(running, client.step(steps), strict=True):
            assert result.ok, f"{p.program.entry}: {result.error or result.diagnostic}"
            p.results.append(result)
    ids = [p.episode.episode_id for p in plays]
    verdicts = client.verify(ids, run_oracle=run_oracle, timeout_s=TIMEOUT_S)
    for p, verdict in zip(plays, verdicts, strict=True):
        p.verdict = verdict
    client.close_episodes(ids)
    return plays


def assert_reproduces(p: Play) -> None:
    assert p.verdict is not None
    assert p.verdict.error is None, f"{p.program.entry}: {p.verdict.error}"
    assert p.verdict.reproduced, f"{p.program.entry}: {p.verdict.divergence}"


def test_no_environment_of_the_libraries_is_forgotten(client: SandboxClient) -> None:
    program = register(client, "catalogue", CATALOGUE)
    (episode,) = client.reset([ResetItem(program.program_id, timeout_s=TIMEOUT_S)])
    assert sorted(episode.info["toy_text"]) == sorted(TOY_TEXT_ACTIONS)
    assert sorted(episode.info["reasoning_gym"]) == sorted(
        [
            *REASONING_GYM_REPRODUCIBLE,
            *REASONING_GYM_HASH_DEPENDENT,
            *REASONING_GYM_WITHOUT_ANSWER,
            *REASONING_GYM_EXCLUDED,
        ]
    )
    client.close_episodes([episode.episode_id])


def test_every_toy_text_environment_plays_and_reproduces(client: SandboxClient) -> None:
    programs = [register(client, name, gymnasium_program(name)) for name in TOY_TEXT_ACTIONS]
    plays = play(client, programs, list(TOY_TEXT_ACTIONS.values()), seed=3)
    for p in plays:
        assert p.program.kind is ProgramKind.GYMNASIUM
        assert p.episode.observation
        assert len(p.results) >= 2
        assert_reproduces(p)


def test_a_world_without_chance_is_won_by_its_known_way(client: SandboxClient) -> None:
    programs = [register(client, name, gymnasium_program(name)) for name in TOY_TEXT_WINS]
    for p in play(client, programs, list(TOY_TEXT_WINS.values()), seed=3):
        assert p.results[-1].terminated
        assert p.results[-1].reward == -1.0


def test_the_same_seed_starts_the_same_taxi_and_another_seed_another(
    client: SandboxClient,
) -> None:
    taxi = register(client, "Taxi-v4", gymnasium_program("Taxi-v4"))
    items = [ResetItem(taxi.program_id, seed=s, timeout_s=TIMEOUT_S) for s in (5, 5, *range(6))]
    episodes = client.reset(items)
    assert episodes[0].observation == episodes[1].observation
    assert len({e.observation for e in episodes}) > 1
    client.close_episodes([e.episode_id for e in episodes])


def test_minigrid_and_babyai_levels_play_and_reproduce(client: SandboxClient) -> None:
    programs = [register(client, name, minigrid_program(name)) for name in MINIGRID_ACTIONS]
    plays = play(client, programs, list(MINIGRID_ACTIONS.values()), seed=3)
    for p in plays:
        assert "mission" in p.episode.observation
        assert_reproduces(p)
    assert plays[0].results[-1].reward == pytest.approx(0.955)


@pytest.mark.slow
def test_reasoning_gym_sets_play_reproduce_and_are_won_by_their_oracle(
    client: SandboxClient,
) -> None:
    names = REASONING_GYM_REPRODUCIBLE
    assert len(names) >= 30
    programs = [register(client, name, reasoning_gym_program(name)) for name in names]
    # "no idea" is wrong everywhere, and a wrong answer may be tried again.
    scripts = [["no idea", "still no idea"]] * len(programs)
    for p in play(client, programs, scripts, seed=11, run_oracle=True):
        name = p.program.entry
        assert len(p.episode.observation) > 10, name
        assert [r.terminated for r in p.results] == [False, False], name
        assert all(r.reward is not None and 0 <= r.reward < 1 for r in p.results), name
        assert_reproduces(p)
        oracle = p.verdict.oracle if p.verdict else None
        assert oracle is not None, name
        assert oracle.outcome is Outcome.COMPLETED, f"{name}: {oracle.diagnostic}"
        assert (oracle.final_reward, oracle.terminated) == (1.0, True), name


def test_sets_without_an_answer_of_their_own_still_play(client: SandboxClient) -> None:
    names = REASONING_GYM_WITHOUT_ANSWER
    programs = [
        register(client, name, reasoning_gym_program(name, oracle=False)) for name in names
    ]
    for p in play(client, programs, [["no idea"]] * len(programs), seed=11, run_oracle=True):
        assert_reproduces(p)
        assert p.verdict is not None
        assert p.verdict.oracle is None


def test_verify_finds_the_sets_whose_questions_depend_on_the_hash_seed(
    client: SandboxClient,
) -> None:
    programs = [
        register(client, name, reasoning_gym_program(name))
        for name in REASONING_GYM_HASH_DEPENDENT
    ]
    diverged = []
    # One question can be the same under two hash seeds by chance; twenty cannot.
    for seed in range(11, 15):
        for p in play(client, programs, [["no idea"]] * len(programs), seed=seed):
            assert p.verdict is not None
            if not p.verdict.reproduced:
                diverged.append(p.verdict.divergence)
    assert diverged
    assert any(d is not None and d.step_index == -1 for d in diverged)
