"""Training on a frozen pool, and by a designer that stays as it was."""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from sandbox_api.types import Outcome, Program

from tests.trainer.conftest import SMALL
from tests.trainer.fakes import FakeDesigner, FakeSandboxClient, completions, grid_source
from trainer.chat import ChatFormat
from trainer.config import ConfigError
from trainer.config_reading import load_config
from trainer.frozen import first_weights
from trainer.generation import GenerationRequest
from trainer.generation_queue import GenerationQueue
from trainer.models import load_model
from trainer.pools import Pool, PoolCurriculum
from trainer.protocols import EvaluationItem, Level, PoolError, PoolItem
from trainer.rows import AGENT
from trainer.run import run
from trainer.runfolder import RunFolder
from trainer.selfplay import SelfPlay
from trainer.trajectories import Play, Trajectory
from trainer.transformers_engine import TransformersEngine
from trainer.writers import ModelWriter

SIZED = grid_source(4).replace(
    "def __init__(self, max_turns=8):",
    "def __init__(self, size=4, max_turns=8):\n        self.size = size",
)


def configuration(tmp_path, *overrides):
    config = load_config(
        "cpu-demo",
        [
            *(f"run.root={tmp_path}", "run.name=test", "run.steps=2"),
            *("design.environments=3", "design.replay_steps=1", "play.group_size=4"),
            *("play.max_turns=4", "evaluation.episodes=0", "play.rehearsed=0"),
            *("update.minibatches=2", "update.accumulation=1"),
            *overrides,
        ],
    )
    return replace(config, model=SMALL)


def fixed(tmp_path, *overrides):
    return configuration(tmp_path, "run.mode=fixed", "pool.sources=[folder:x]", *overrides)


def item(name: str, *levels: Level, share: float = 1.0) -> PoolItem:
    return PoolItem(name, "folder:x", levels, share=share, skill="spatial", family="grid")


GRIDS = [item(f"grid{n}", Level(grid_source(n))) for n in (3, 4, 5)]
LADDER = item("ladder", *(Level(SIZED, {"size": n}) for n in range(3, 12)))


async def played(config: Any, items: Any, **options: Any) -> tuple[Any, Any]:
    client = FakeSandboxClient()
    designer = FakeDesigner(client)
    await run(config, client, designer, [], items, **options)
    return client, designer


async def test_a_fixed_run_trains_the_agent_on_the_pool_and_designs_nothing(tmp_path, monkeypatch):
    roles = []
    collect = SelfPlay.collect

    async def noted(self, step):
        rows = await collect(self, step)
        roles.extend(row.role for row in rows)
        return rows

    monkeypatch.setattr(SelfPlay, "collect", noted)
    config = fixed(tmp_path)
    _, designer = await played(config, GRIDS)
    assert set(roles) == {AGENT}
    assert not designer.remembered
    assert not designer.measurements
    assert {given.origin for given in designer.given} == {"folder:x"}
    rows = RunFolder(config.folder).metrics()
    assert [row["agent/return_n"] for row in rows] == [12, 12]
    assert not any(
        key.startswith(("gates/", "designer/", "regret/")) for row in rows for key in row
    )
    assert all(row["update/grad_norm"] > 0 for row in rows)
    with gzip.open(config.folder / "trajectories" / "step_000001.jsonl.gz", "rt") as file:
        assert {json.loads(line)["arm"] for line in file} == {"plain"}
    stored = {(env_id, step) for env_id, step, _ in designer.plays}
    assert sum(len(plays) for _, _, plays in designer.plays) == 24
    assert len(stored) == len(designer.plays)


async def test_environments_are_drawn_by_their_shares(tmp_path):
    config = fixed(tmp_path, "design.environments=400")
    items = [replace(GRIDS[0], share=3.0), GRIDS[1]]
    pool = await Pool.register(FakeSandboxClient(), items)
    curriculum = PoolCurriculum(config, pool, FakeDesigner(FakeSandboxClient()))
    groups, _ = await curriculum.deal(0, 4)
    drawn = [group.environment.source == grid_source(3) for group in groups]
    assert 0.68 < sum(drawn) / len(drawn) < 0.82
    again, _ = await curriculum.deal(0, 4)
    later, _ = await curriculum.deal(1, 4)
    assert [g.key for g in again] == [g.key for g in groups] != [g.key for g in later]


async def test_programs_that_cannot_be_played_are_listed_before_a_model_is_loaded(tmp_path):
    client = FakeSandboxClient()
    register = client.register_program

    async def refusing(source: str, **options: Any) -> Program:
        if "broken" in source:
            return Program("", Outcome.PROGRAM_ERROR)
        return await register(source, **options)

    client.register_program = refusing
    broken = [item(f"bad{n}", Level(f"broken {n}")) for n in range(2)]
    kept = EvaluationItem("held", "grid", grid_source(6))
    config = fixed(tmp_path)
    config = replace(config, model=replace(config.model, name=str(tmp_path / "nowhere")))
    items = [*GRIDS, *broken, item("seen", Level(grid_source(6)))]
    with pytest.raises(PoolError, match=r"(?s)3 of 6 .*bad0: PROGRAM_ERROR.*bad1.*|seen: .*kept"):
        await run(config, client, FakeDesigner(client), [kept], items)
    assert not config.folder.exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["run.mode=fixed"], "set pool.sources"),
        (["run.mode=frozen"], "choose one of selfplay, fixed, frozen-designer"),
        (["pool.sources=[folder:x]"], "is for run.mode=fixed"),
        (["difficulty.knobs=[size=1..4]"], "is for run.mode=fixed"),
        (["run.mode=fixed", "pool.sources=[disk:x]"], "must begin with one of archive:"),
        (["run.mode=fixed", "pool.sources=['folder:x=much']"], "weight 'much' is no number"),
        (["run.mode=fixed", "pool.sources=['folder:x=0']"], "must be above 0"),
        (["run.mode=fixed", "pool.sources=['folder:=2']"], "names nothing"),
        (
            ["run.mode=fixed", "pool.sources=[folder:x]", "difficulty.knobs=[size=big]"],
            "NAME=LOW..HIGH",
        ),
        (["difficulty.promote_at=1.5"], "must be in"),
        (["difficulty.width=0"], "at least 1"),
        (["run.mode=frozen-designer", "endpoint.url=http://h/v1", "endpoint.model=m"], "endpoint"),
        (["pool.source=[folder:x]"], "did you mean pool.sources"),
    ],
)
def test_settings_of_modes_that_make_no_sense_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config("cpu-demo", overrides)


def test_a_source_of_a_pool_is_read_with_its_weight():
    config = load_config(
        "cpu-demo",
        [
            "run.mode=fixed",
            "pool.sources=['archive:runs/a=b/archive.sqlite=2','suite:families','folder:a/b=0.5']",
        ],
    )
    read = [(s.kind, s.name, s.weight) for s in config.pool.parsed]
    assert read == [
        ("archive", "runs/a=b/archive.sqlite", 2.0),
        ("suite", "families", 1.0),
        ("folder", "a/b", 0.5),
    ]


async def test_a_window_of_difficulty_follows_what_is_won_and_reaches_the_environment(tmp_path):
    config = fixed(tmp_path, "difficulty.width=2", "difficulty.tries=4", "design.environments=6")
    client = FakeSandboxClient()
    pool = await Pool.register(client, [LADDER])
    curriculum = PoolCurriculum(config, pool, FakeDesigner(client))
    sizes = set()
    tops = []
    for step in range(4):
        groups, _ = await curriculum.deal(step, 4)
        for group in groups:
            (play, *_) = group.plays(4, 4, random.Random(0), True)
            assert play.options == group.options
            sizes.add(play.options["size"])
            group.plain = [_won() for _ in range(4)]
        metrics = curriculum.take_in(step, groups)
        tops.append(metrics["difficulty/top"])
        assert metrics["difficulty/tops"] == {"ladder": tops[-1]}
    assert sizes >= {3, 4, 5}
    assert tops == sorted(tops)
    assert tops[-1] > 1


def _won() -> Trajectory:
    return Trajectory(Play("ladder", "p", 0), episode_return=1.0)


async def test_an_environment_that_does_not_take_its_difficulty_is_refused_at_start():
    client = FakeSandboxClient()
    reset = client.reset

    async def strict(items: Any) -> Any:
        (episode,) = await reset([replace(i, options={}) for i in items])
        return [replace(episode, outcome=Outcome.PROGRAM_ERROR)]

    client.reset = strict
    with pytest.raises(PoolError, match=r"ladder: with \{'size': 11\}"):
        await Pool.register(client, [*GRIDS, LADDER])


class Killed(BaseException):
    """Stands for SIGKILL."""


async def resumed(config: Any, start: Any, patch: Any) -> None:
    """Kill a run in its third step, and go on with it."""
    collect = SelfPlay.collect

    async def broken(self: Any, step: int) -> Any:
        rows = await collect(self, step)
        if step == 2:
            raise Killed
        return rows

    with patch.context() as context:
        context.setattr(SelfPlay, "collect", broken)
        with pytest.raises((Killed, asyncio.CancelledError)):
            await start(config)
    await start(config, resume=True)


def comparable(config: Any) -> list[dict[str, Any]]:
    rows = RunFolder(config.folder).metrics()
    return [
        {k: v for k, v in row.items() if not k.startswith("time") and not k.endswith("_per_s")}
        for row in rows
    ]


async def test_a_fixed_run_resumes_with_its_windows(tmp_path, monkeypatch):
    # A win by chance is enough for the window to move on.
    often = replace(LADDER, share=9.0)
    low = ("difficulty.width=1", "difficulty.tries=4", "difficulty.promote_at=0.01")
    config = fixed(tmp_path, "run.steps=4", *low)
    whole = replace(config, run=replace(config.run, name="whole"))

    async def start(config: Any, **options: Any) -> Any:
        return await played(config, [often, *GRIDS], **options)

    await start(whole)
    await resumed(config, start, monkeypatch)
    assert comparable(config) == comparable(whole)
    assert comparable(config)[-1]["difficulty/top"] > 0


async def test_a_pool_that_changed_under_a_run_is_refused_when_it_resumes(tmp_path):
    config = fixed(tmp_path, "run.steps=1")
    await played(config, GRIDS)
    longer = replace(config, run=replace(config.run, steps=2))
    changed = [replace(GRIDS[0], levels=(Level(grid_source(7)),)), *GRIDS[1:]]
    with pytest.raises(PoolError, match="changed since the checkpoint: grid3;"):
        await played(longer, changed, resume=True)


@pytest.mark.parametrize("rank", [0, 2])
async def test_a_frozen_designer_writes_with_the_first_weights_and_is_not_trained(
    tmp_path, monkeypatch, rank
):
    """What the designer samples at each step is what the first weights sample with that seed."""
    config = configuration(tmp_path, "run.mode=frozen-designer", "update.learning_rate=0.05")
    config = replace(config, model=replace(SMALL, lora_rank=rank))
    first, tokenizer = load_model(SMALL, context_tokens=640, seed=0)
    written, expected, agent = [], [], []
    complete = ModelWriter.complete
    begin = GenerationQueue.begin
    seeds = []

    def noted(self: Any, seed: int) -> None:
        seeds.append(seed)
        begin(self, seed)

    async def both(self: Any, requests: Any, max_tokens: int, done: Any = None) -> Any:
        answers = await complete(self, requests, max_tokens, done)
        written.append([answer.sample.logprobs for answer in answers])
        apart = GenerationQueue(TransformersEngine(copy.deepcopy(first), tokenizer))
        begin(apart, seeds[-1])
        same = ModelWriter(
            apart, ChatFormat(tokenizer), temperature=1.0, context_tokens=640, explore=0.4
        )
        answers = await complete(same, requests, max_tokens)
        expected.append([answer.sample.logprobs for answer in answers])
        return answers

    collect = SelfPlay.collect

    async def rows_of(self: Any, step: int) -> Any:
        rows = await collect(self, step)
        agent.extend(row.role for row in rows)
        return rows

    monkeypatch.setattr(GenerationQueue, "begin", noted)
    monkeypatch.setattr(ModelWriter, "complete", both)
    monkeypatch.setattr(SelfPlay, "collect", rows_of)
    client = FakeSandboxClient()
    await run(config, client, FakeDesigner(client), [])
    assert written == expected
    assert len({seed for seed in seeds}) >= 2
    assert set(agent) == {AGENT}
    rows = RunFolder(config.folder).metrics()
    assert all("designer/mean_reward" in row for row in rows)
    trained, _ = load_model(
        replace(SMALL, name=str(RunFolder(config.folder).newest_checkpoint())),
        context_tokens=640,
        seed=0,
    )
    pairs = zip(trained.parameters(), first.parameters(), strict=True)
    moved = [not torch.equal(a, b) for a, b in pairs]
    assert any(moved)


async def test_a_run_with_a_frozen_designer_resumes_with_the_first_weights(tmp_path, monkeypatch):
    config = configuration(
        tmp_path, "run.mode=frozen-designer", "run.steps=4", "update.learning_rate=0.05"
    )
    whole = replace(config, run=replace(config.run, name="whole"))

    async def start(config: Any, **options: Any) -> None:
        client = FakeSandboxClient()
        await run(config, client, FakeDesigner(client), [], **options)

    await start(whole)
    await resumed(config, start, monkeypatch)
    assert comparable(config) == comparable(whole)


def test_with_adapters_the_first_weights_are_the_same_model_without_them(small_model):
    base, tokenizer = copy.deepcopy(small_model[0]), small_model[1]
    adapted = get_peft_model(
        copy.deepcopy(base), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    )
    request = [GenerationRequest(tokenizer("look")["input_ids"], 12)]

    def sampled(model: Any) -> list[float]:
        generator = GenerationQueue(TransformersEngine(model, tokenizer))
        generator.begin(3)
        return completions(generator, request)[0].logprobs

    assert sampled(first_weights(adapted.get_base_model(), adapters=True)) == sampled(base)
    assert sampled(adapted) != sampled(base)
    assert sampled(first_weights(base, adapters=False)) == sampled(base)
