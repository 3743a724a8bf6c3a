"""ScalingInter: the stage of a step is its own, however the run came to it.

The cap of a stage is looked for in all places that it must reach: the episodes that the server
is asked for, the length of what trains, and the text that the designer shows the model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Episode, ResetItem

from designer import Archive, Designer
from tests.trainer.conftest import SMALL
from tests.trainer.fakes import FakeDesigner, FakeSandboxClient
from trainer.config import Config, horizon
from trainer.config_reading import load_config
from trainer.protocols import Level, PoolItem
from trainer.rows import AGENT
from trainer.run import run
from trainer.runfolder import RunFolder
from trainer.selfplay import SelfPlay

INTERVAL = 2
# Turn cap by step, from 1; steps 3 and 5 begin a stage.
CAPS = {1: 2, 2: 2, 3: 4, 4: 4, 5: 6, 6: 6, 7: 6}

# An episode that nothing but a cap ends.
ENDLESS = """
class EndlessEnv:
    def __init__(self, max_turns=99):
        self.turn = 0

    def reset(self, seed=None):
        self.turn = seed % 2
        return "on", {"actions": ["a", "b"]}

    def step(self, action):
        return "on", 0.1 if action == "a" else 0.0, False, False, {}
"""


@dataclass
class Counting(FakeSandboxClient):
    """Keeps the caps it is asked for."""

    caps: list[int] = field(default_factory=list)

    async def reset_stream(self, items: Sequence[ResetItem]) -> AsyncIterator[tuple[int, Episode]]:
        self.caps += [item.max_turns for item in items]
        async for started in super().reset_stream(items):
            yield started


@dataclass
class Prompting(FakeDesigner):
    """Asks the real designer for the prompts of the cap that it is told."""

    prompts: dict[int, list[str]] = field(default_factory=dict)

    async def write(self, writer: Any, n: int, step: int, progress: Any = None) -> Any:
        async with AsyncSandboxClient("localhost:1") as client:
            with Archive(":memory:") as archive:
                designer = Designer(client, archive, max_turns=99)
                designer.max_turns = self.max_turns
                requests = designer.requests(1, step)
        self.prompts.setdefault(step, []).extend(r.messages[-1]["content"] for r in requests)
        return await super().write(writer, n, step, progress)

    def parse(self, request: Any, completion: str) -> Any:
        request = replace(request, max_turns=self.max_turns)
        return replace(super().parse(request, completion), source=ENDLESS + f"# {self.max_turns}")


def configuration(tmp_path, steps: int, *overrides: str) -> Config:
    config = load_config(
        "cpu-demo",
        [
            *(f"run.root={tmp_path}", "run.name=test", f"run.steps={steps}"),
            *("design.environments=1", "design.attempts=1", "design.replay_steps=1"),
            *("play.group_size=6", "play.max_turns=20", "play.rehearsed=0"),
            f"play.horizon_interval={INTERVAL}",
            "play.horizon_stages=[2,4,6]",
            *("evaluation.episodes=0", "update.minibatches=1", "update.accumulation=1"),
            *("run.keep_checkpoints=9", "update.credit=to_go"),
            *overrides,
        ],
    )
    return replace(config, model=SMALL)


@dataclass
class Seen:
    """What a run was seen to do, by step from 1."""

    caps: dict[int, set[int]] = field(default_factory=dict)
    turns: dict[int, set[int]] = field(default_factory=dict)
    prompts: dict[int, list[str]] = field(default_factory=dict)


async def watched(
    config: Config, patch: pytest.MonkeyPatch, items: Any = (), resume: bool = False
) -> Seen:
    seen = Seen()
    client = Counting()
    designer = Prompting(client)
    collect = SelfPlay.collect

    async def noted(self: SelfPlay, step: int) -> Any:
        client.caps.clear()
        rows = await collect(self, step)
        seen.caps[step + 1] = set(client.caps)
        # A turn of an unfinished episode is one token of the agent's, and one it could not be
        # spared: every row of the agent is as long as the cap allows.
        seen.turns[step + 1] = {sum(row.mask) for row in rows if row.role == AGENT}
        return rows

    with patch.context() as context:
        context.setattr(SelfPlay, "collect", noted)
        await run(config, client, designer, [], items, resume=resume)
    seen.prompts = designer.prompts
    return seen


def check(seen: Seen, steps: range) -> None:
    assert sorted(seen.caps) == list(steps)
    for step in steps:
        cap = CAPS[step]
        assert seen.caps[step] == {cap}
        assert seen.turns[step] == {cap}
        assert all(f"The player has {cap} turns." in text for text in seen.prompts[step])


@pytest.mark.parametrize(("step", "cap"), CAPS.items())
def test_the_stage_of_a_step_is_its_number_by_the_interval(step, cap):
    config = load_config(
        "cpu-demo", ["play.horizon_stages=[2,4,6]", f"play.horizon_interval={INTERVAL}"]
    )
    stage = min((step - 1) // INTERVAL, 2)
    assert horizon(config.play, step - 1) == (stage, cap)


async def test_the_cap_of_every_step_reaches_server_rows_and_prompt(tmp_path, monkeypatch):
    config = configuration(tmp_path, 6)
    check(await watched(config, monkeypatch), range(1, 7))
    assert [row["stage"] for row in RunFolder(config.folder).metrics()] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("done", [1, 2, 3, 4, 5])
async def test_a_run_resumed_beside_a_boundary_lands_in_the_stage_of_its_step(
    tmp_path, monkeypatch, done
):
    """The checkpoints are those one step before each boundary, on it, and one after."""
    await watched(configuration(tmp_path, done), monkeypatch)
    seen = await watched(configuration(tmp_path, done + 1), monkeypatch, resume=True)
    check(seen, range(done + 1, done + 2))


async def test_a_stage_caps_a_pool_s_environments_too(tmp_path, monkeypatch):
    config = configuration(tmp_path, 5, "run.mode=fixed", "pool.sources=[folder:x]")
    items = [PoolItem("endless", "folder:x", (Level(ENDLESS),))]
    seen = await watched(config, monkeypatch, items)
    assert seen.caps == {step: {CAPS[step]} for step in range(1, 6)}
    assert seen.turns == seen.caps


async def test_an_environment_keeps_the_turns_it_was_written_for_while_it_is_replayed(
    tmp_path, monkeypatch
):
    config = configuration(tmp_path, 6, "design.replay_steps=3")
    seen = await watched(config, monkeypatch)
    assert seen.caps == {1: {2}, 2: {2}, 3: {2}, 4: {4}, 5: {4}, 6: {4}}
