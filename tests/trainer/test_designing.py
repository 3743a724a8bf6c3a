"""A cycle of designing: slots, turn caps, repairs that train, budgets that end a run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from designer import Archive, Designer, WritingSettings
from tests.protocol_server import protocol_server
from tests.trainer.conftest import SMALL
from tests.trainer.fakes import FakeDesigner, FakeOutcome, FakeSandboxClient
from trainer.budget import BudgetSpentError
from trainer.config_reading import load_config
from trainer.designing import DesignRound
from trainer.protocols import Answer
from trainer.rows import DESIGNER
from trainer.run import run
from trainer.runfolder import RunFolder
from trainer.selfplay import SelfPlay
from trainer.writers import ModelWriter


class Counting:
    """Writes grids; each completion's sample is its number."""

    def __init__(self) -> None:
        self.written = 0

    async def complete(self, requests: Any, max_tokens: int, done: Any = None) -> list[Answer]:
        answers = []
        for _ in requests:
            text = f'{{"n":{3 + self.written % 3},"k":{self.written // 3 % 4}}}'
            answers.append(Answer(text, self.written))
            self.written += 1
        return answers

    def metrics(self) -> dict[str, float]:
        return {"endpoint/requests": self.written}


def design_config(*overrides: str) -> Any:
    return load_config(
        "cpu-demo", ["design.environments=2", "design.attempts=1", *overrides]
    ).design


@pytest.mark.parametrize(
    ("which", "expected"),
    [("first", [[0], [1]]), ("last", [[4], [5]]), ("all", [[0, 2, 4], [1, 3, 5]])],
)
async def test_the_completions_that_train_are_those_of_the_round_that_is_set(which, expected):
    designer = FakeDesigner(FakeSandboxClient(), repairs=2)
    config = design_config(f"design.repair_trains={which}")
    outcome = await DesignRound(designer, Counting(), config).run(1, 8)
    assert [environment.samples for environment in outcome.environments] == expected


async def test_the_turn_cap_in_force_is_told_to_the_designer():
    designer = FakeDesigner(FakeSandboxClient())
    round_ = DesignRound(designer, Counting(), design_config())
    await round_.run(1, 4)
    await round_.run(5, 12)
    assert designer.capped == [4, 12]


async def test_the_horizon_of_the_step_is_the_cap(tmp_path):
    config = run_config(
        tmp_path, "play.horizon_stages=[2,3]", "play.horizon_interval=1", "run.steps=2"
    )
    client = FakeSandboxClient()
    designer = FakeDesigner(client)
    await run(config, client, designer, [])
    assert set(designer.capped) == {2, 3}


@dataclass
class Spent(FakeDesigner):
    """There is a budget for so many rounds of writing."""

    rounds: int = 0

    async def write(self, writer: Any, n: int, step: int, progress: Any = None) -> FakeOutcome:
        self.rounds -= 1
        if self.rounds < 0:
            return FakeOutcome([], unanswered=n)
        return await super().write(writer, n, step)


async def test_a_budget_that_reaches_for_nothing_ends_the_run_with_what_to_do():
    designer = Spent(FakeSandboxClient())
    with pytest.raises(BudgetSpentError, match="--resume"):
        await DesignRound(designer, Counting(), design_config()).run(1, 8)


async def test_a_budget_that_reaches_for_some_lets_them_be_played():
    designer = Spent(FakeSandboxClient(), rounds=1)
    config = design_config("design.environments=4", "design.attempts=3")
    wanted = FakeDesigner.requests
    designer.requests = lambda n, step: wanted(designer, 2, step)
    outcome = await DesignRound(designer, Counting(), config).run(1, 8)
    assert len(outcome.environments) == 2


async def test_a_prompt_longer_than_the_context_is_an_error_of_that_prompt(generator, chat):
    writer = ModelWriter(generator, chat, temperature=1.0, context_tokens=64)
    short, long = FakeDesigner(FakeSandboxClient()).requests(2, 0)
    long = replace(long, messages=[{"role": "user", "content": "x" * 100}])
    generator.begin(0)
    answers = await writer.complete([long, short], 16)
    assert "generation.context_tokens" in answers[0].error
    assert answers[0].sample is None
    assert answers[1].text
    assert answers[1].sample.completion_ids


async def test_the_trained_model_mends_its_own_drafts_and_each_round_can_train(generator, chat):
    writer = ModelWriter(generator, chat, temperature=1.0, context_tokens=256)
    generator.begin(0)
    with Archive(":memory:") as archive:
        # So short, no specification is whole: each draft is refused before any sandbox.
        designer = Designer(
            None,
            archive,
            prompt_style="compact",
            writing=WritingSettings(max_tokens=6, repair_rounds=2),
        )
        outcome = await designer.write(writer, 2, 1)
    assert outcome.reasons == {"PARSE": 6}
    for entry in outcome.written:
        assert entry.report.draft.request.round == 2
        first, second, third = entry.samples
        # A repair's prompt holds the draft as text, then the gate's code.
        assert chat.text(second.prompt_ids).endswith(chat.text(first.completion_ids) + "PARSE\n")
        assert chat.text(third.prompt_ids).endswith(chat.text(second.completion_ids) + "PARSE\n")
        assert all(len(s.decisions) == len(s.completion_ids) for s in entry.samples)


def run_config(tmp_path: Any, *overrides: str) -> Any:
    config = load_config(
        "cpu-demo",
        [
            f"run.root={tmp_path}",
            "run.name=test",
            "run.steps=2",
            "design.environments=2",
            "design.replay_steps=1",
            "play.group_size=2",
            "play.max_turns=4",
            "play.rehearsed=0",
            "evaluation.episodes=0",
            "update.minibatches=1",
            *overrides,
        ],
    )
    return replace(config, model=SMALL)


async def test_an_endpoint_designs_a_run_and_trains_nothing_and_a_resumed_one_pays_once(
    tmp_path, monkeypatch
):
    roles: list[set[str]] = []
    collect = SelfPlay.collect

    async def watched(self: SelfPlay, step: int) -> Any:
        rows = await collect(self, step)
        roles.append({row.role for row in rows})
        if step == 1 and not killed:
            killed.append(step)
            raise Killed
        return rows

    killed: list[int] = []
    monkeypatch.setattr(SelfPlay, "collect", watched)
    with protocol_server() as server:
        numbers = iter(range(99))
        server.write = lambda body: f'{{"n":{3 + next(numbers) % 3},"k":0}}'
        endpoint = [f"endpoint.url={server.url}", "endpoint.model=m"]
        config = run_config(tmp_path, *endpoint)
        client = FakeSandboxClient()
        with pytest.raises((Killed, asyncio.CancelledError)):
            await run(config, client, Numbered(client), [])
        asked = len(server.asked)
        await run(config, client, Numbered(client), [], resume=True)
        assert len(server.asked) == asked == 4
    assert all(DESIGNER not in found for found in roles)
    assert len((config.folder / "endpoint.jsonl").read_text().splitlines()) == 4
    rows = RunFolder(config.folder).metrics()
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[1]["endpoint/requests"] == 4
    assert rows[1]["endpoint/tokens_out"] > rows[0]["endpoint/tokens_out"] > 0


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it on its way out."""


class Numbered(FakeDesigner):
    """Requests differ by step and slot, as a designer's do."""

    def requests(self, n: int, step: int) -> list[Any]:
        return [
            replace(request, seed=100 * step + request.slot)
            for request in super().requests(n, step)
        ]
