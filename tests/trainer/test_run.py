import asyncio
import gzip
import json
from dataclasses import replace

import pytest

from tests.trainer.conftest import SMALL
from tests.trainer.fakes import FakeDesigner, FakeSandboxClient, grid_source
from trainer.config_reading import load_config
from trainer.protocols import EvaluationItem
from trainer.run import run
from trainer.runfolder import RunExistsError, RunFolder
from trainer.selfplay import LostPlaysError, SelfPlay

SUITE = [EvaluationItem(f"grid-{n}", "grid", grid_source(n), "", 6, tuple("NSEW")) for n in (3, 4)]


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it on its way out."""


def configuration(tmp_path, *overrides):
    config = load_config(
        "cpu-demo",
        [
            f"run.root={tmp_path}",
            "run.name=test",
            "run.steps=2",
            "design.environments=3",
            "design.replay_steps=2",
            "play.group_size=4",
            "play.max_turns=4",
            "evaluation.episodes=8",
            "update.inner_iterations=1",
            "update.minibatches=2",
            "update.accumulation=1",
            *overrides,
        ],
    )
    return replace(config, model=SMALL)


async def start(config, **options):
    client = FakeSandboxClient()
    designer = FakeDesigner(client)
    summary = await run(config, client, designer, SUITE, **options)
    return client, designer, summary


async def test_two_steps_leave_a_whole_run_folder(tmp_path):
    config = configuration(tmp_path)
    client, designer, summary = await start(config)
    folder = config.folder

    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    wanted = {
        "agent/mean_return",
        "agent/return_std",
        "agent/return_n",
        "agent/win_rate",
        "groups/no_variance_share",
        "sandbox/steps_per_s",
        "sandbox/lost_plays",
        "generation/tokens_per_s",
        "update/loss",
        "update/entropy",
        "update/grad_norm",
        "time/design_s",
        "time/play_s",
        "time/update_s",
    }
    assert all(wanted <= row.keys() for row in rows)
    assert rows[0]["gates/OK"] > 0
    assert "agent/mean_return_hinted" in rows[0]
    assert "designer/mean_reward" not in rows[0]
    assert {"designer/mean_reward", "designer/learnable_share", "regret/se"} <= rows[1].keys()

    evaluation = json.loads((folder / "eval.json").read_text())
    assert set(evaluation["policies"]) == {"before", "after", "random", "oracle"}
    assert all(p["n"] == 8 for p in evaluation["policies"].values())
    assert evaluation["policies"]["oracle"]["mean_return"] == 1.0
    assert min(evaluation["protocol"]["seeds"]) >= 1_000_000

    with gzip.open(folder / "trajectories" / "step_000001.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    assert {line["arm"] for line in lines} == {"plain", "hinted"}
    plain = [(x["env_id"], x["seed"]) for x in lines if x["arm"] == "plain"]
    hinted = [(x["env_id"], x["seed"]) for x in lines if x["arm"] == "hinted"]
    assert sorted(plain) == sorted(hinted)
    assert all(seed < 1_000_000 for _, seed in plain)

    assert (folder / "checkpoints" / "step_000002" / "tokenizer.json").is_file()
    assert list((folder / "tensorboard").iterdir())
    assert summary == json.loads((folder / "summary.json").read_text())
    assert designer.measurements[-1]["designer_reward"] is not None
    assert {len(plays) for _, _, plays in designer.plays} == {4, 8}
    assert not client.live


async def test_a_step_of_a_single_update_has_its_figures_too(tmp_path):
    config = configuration(tmp_path, "update.minibatches=1", "evaluation.episodes=0")
    await start(config)
    rows = RunFolder(config.folder).metrics()
    assert all(isinstance(row["update/loss"], float) for row in rows)
    assert all(row["update/entropy"] > 0 for row in rows)


async def test_a_second_run_in_the_same_folder_must_be_asked_for(tmp_path):
    config = configuration(tmp_path, "run.steps=1")
    await start(config)
    with pytest.raises(RunExistsError, match="--resume"):
        await start(config)


@pytest.mark.parametrize("moment", ["playing", "recorded", "saved"])
async def test_a_run_killed_at_any_moment_resumes_without_a_trace(tmp_path, moment, monkeypatch):
    config = configuration(tmp_path, "run.steps=4")
    whole = replace(config, run=replace(config.run, name="whole"))
    await start(whole)

    with monkeypatch.context() as patch:
        _kill_in_step_three(patch, moment)
        with pytest.raises((Killed, asyncio.CancelledError)):
            await start(config)
    _, designer, _ = await start(config, resume=True)

    done = 3 if moment == "saved" else 2
    assert designer.rewound == [done]
    rows, expected = (RunFolder(c.folder).metrics() for c in (config, whole))
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for row, other in zip(rows, expected, strict=True):
        assert row["agent/mean_return"] == pytest.approx(other["agent/mean_return"], abs=1e-6)
        assert row["update/entropy"] == pytest.approx(other["update/entropy"], rel=1e-4)
    files = {p.name for p in (config.folder / "trajectories").iterdir()}
    assert files == {f"step_{i:06d}.jsonl.gz" for i in (1, 2, 3, 4)}
    names = sorted(p.name for p in (config.folder / "checkpoints").iterdir())
    assert names == ["step_000003", "step_000004"]


async def test_a_run_with_a_critic_resumes_with_it(tmp_path, monkeypatch):
    overrides = ("run.steps=4", "update.estimator=ppo", "update.step_rewards=true")
    config = configuration(tmp_path, *overrides)
    whole = replace(config, run=replace(config.run, name="whole"))
    await start(whole)
    with monkeypatch.context() as patch:
        _kill_in_step_three(patch, "playing")
        with pytest.raises((Killed, asyncio.CancelledError)):
            await start(config)
    await start(config, resume=True)
    rows, expected = (RunFolder(c.folder).metrics() for c in (config, whole))
    key = "critic/explained_variance"
    for row, other in zip(rows, expected, strict=True):
        assert row["agent/mean_return"] == pytest.approx(other["agent/mean_return"], abs=1e-6)
        assert row[key] == pytest.approx(other[key], abs=1e-4)


async def test_prioritised_rehearsal_resumes_with_what_it_goes_by(tmp_path, monkeypatch):
    overrides = (
        *("run.steps=4", "design.replay_steps=1", "play.rehearsed=2"),
        *("play.rehearsal=prioritised", "play.rehearsal_temperature=0.1"),
    )
    config = configuration(tmp_path, *overrides)
    whole = replace(config, run=replace(config.run, name="whole"))
    await start(whole)
    with monkeypatch.context() as patch:
        _kill_in_step_three(patch, "playing")
        with pytest.raises((Killed, asyncio.CancelledError)):
            await start(config)
    await start(config, resume=True)
    rows, expected = (RunFolder(c.folder).metrics() for c in (config, whole))
    key = "agent/mean_return_rehearsed"
    assert sum(key in row for row in rows) == 3
    for row, other in zip(rows, expected, strict=True):
        assert row["agent/mean_return"] == pytest.approx(other["agent/mean_return"], abs=1e-6)
        assert row.get(key) == pytest.approx(other.get(key), abs=1e-6)


def _kill_in_step_three(patch, moment):
    def at(step):
        if step == 3:
            raise Killed

    if moment == "playing":
        collect = SelfPlay.collect

        async def broken_collect(self, step):
            rows = await collect(self, step)
            at(step + 1)
            return rows

        patch.setattr(SelfPlay, "collect", broken_collect)
    elif moment == "recorded":
        append = RunFolder.append_metrics

        def broken_append(self, row):
            append(self, row)
            at(row["step"])

        patch.setattr(RunFolder, "append_metrics", broken_append)
    else:
        commit = RunFolder.commit_checkpoint

        def broken_commit(self, written, step, state, *, keep):
            commit(self, written, step, state, keep=keep)
            at(step)

        patch.setattr(RunFolder, "commit_checkpoint", broken_commit)


async def test_lost_plays_are_counted_and_train_nothing(tmp_path):
    config = configuration(tmp_path, "run.steps=1")
    client = FakeSandboxClient()
    original = client._step

    def failing(item):
        if item.step_index == 1 and item.episode_id.endswith("3"):
            client.fail_steps.add((client.seeds[item.episode_id], 1))
        return original(item)

    client._step = failing
    await run(config, client, FakeDesigner(client), [])
    (row,) = RunFolder(config.folder).metrics()
    assert row["sandbox/lost_plays"] > 0
    assert row["sandbox/kills/PROGRAM_ERROR"] == row["sandbox/lost_plays"]
    assert row["agent/return_n"] < 12


async def test_a_step_that_loses_too_many_plays_stops_the_run_with_the_reason(tmp_path):
    config = configuration(*(tmp_path, "run.steps=3", "design.replay_steps=1", "play.rehearsed=0"))
    client = FakeSandboxClient()
    original = client._step

    def failing(item):
        # From the second step on, all first steps fail.
        if len(RunFolder(config.folder).metrics()) > 0 and item.step_index == 0:
            client.fail_steps.add((client.seeds[item.episode_id], 0))
        return original(item)

    client._step = failing
    with pytest.raises(LostPlaysError, match=r"step 2 lost 24 of its 24 .*PROGRAM_ERROR 24"):
        await run(config, client, FakeDesigner(client), [])
    folder = RunFolder(config.folder)
    assert [row["sandbox/lost_plays"] for row in folder.metrics()] == [0, 24]
    assert folder.newest_checkpoint().name == "step_000001"
    assert (folder.trajectories_path / "step_000002.jsonl.gz").exists()

    healthy = FakeSandboxClient()
    await run(config, healthy, FakeDesigner(healthy), [], resume=True)
    assert [row["step"] for row in folder.metrics()] == [1, 2, 3]


async def test_a_cycle_without_environments_waits_for_the_next(tmp_path):
    config = configuration(tmp_path)
    client = FakeSandboxClient()
    designer = FakeDesigner(client)
    validate = designer.validate

    async def refuse_first(drafts):
        reports = await validate(drafts)
        if len(designer.remembered) < 6:
            for report in reports:
                report.reason = "CONTRACT"
        return reports

    designer.validate = refuse_first
    await run(config, client, designer, [])
    rows = RunFolder(config.folder).metrics()
    assert rows[0]["gates/CONTRACT"] == 6
    assert rows[0]["agent/mean_return"] is None
    assert rows[1]["agent/return_n"] > 0


async def test_earlier_environments_are_rehearsed_and_train_the_agent_only(tmp_path):
    config = configuration(tmp_path, "design.replay_steps=1", "play.rehearsed=2", "run.steps=3")
    client = FakeSandboxClient()
    designer = FakeDesigner(client)
    await run(config, client, designer, [])
    rows = RunFolder(config.folder).metrics()
    assert "agent/mean_return_rehearsed" not in rows[0]
    assert all("agent/mean_return_rehearsed" in row for row in rows[1:])
    assert all(row["designer/reward_n"] <= 3 for row in rows)
    written = {env_id: step for env_id, step in reversed(designer.remembered)}
    assert any(step > written[env_id] for env_id, step, _ in designer.plays)


@pytest.mark.parametrize("paired", [True, False])
async def test_both_arms_share_their_seeds_only_where_they_are_paired(tmp_path, paired):
    config = configuration(tmp_path, "run.steps=1", f"design.paired={paired}".lower())
    await start(config)
    with gzip.open(config.folder / "trajectories" / "step_000001.jsonl.gz", "rt") as lines:
        plays = [json.loads(line) for line in lines]
    seeds = {
        arm: {(p["env_id"], p["seed"]) for p in plays if p["arm"] == arm}
        for arm in ("plain", "hinted")
    }
    environments = {play["env_id"] for play in plays}
    assert len(seeds["plain"]) == len(seeds["hinted"]) == len(environments) * 4
    assert (seeds["plain"] == seeds["hinted"]) == paired
    assert paired or not seeds["plain"] & seeds["hinted"]
