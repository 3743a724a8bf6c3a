"""A server that trains with a run."""

from __future__ import annotations

import json

import pytest

from tests.trainer.fakes import FakeDesigner, FakeSandboxClient
from tests_on_vllm import sampling
from trainer.config_reading import load_config
from trainer.generators import generator_for
from trainer.run import run


def configuration(served, folder, *overrides):
    return load_config(
        "cpu-135m",
        [
            f"model.name={served.folder}",
            "generation.backend=vllm-server",
            f"vllm.url={served.url}",
            "vllm.weight_sync=folder",
            f"run.root={folder}",
            "run.name=test",
            "design.explore=0",
            "play.cohorts=0",
            *overrides,
        ],
    )


@pytest.fixture
def generator(served, model, tmp_path):
    made = generator_for(configuration(served, tmp_path), *model)
    yield made
    made.close()


async def test_tokens_probabilities_and_grammars_are_the_trainers(generator, model):
    await sampling.assert_samples_as_the_trainer_would(generator, *model)


async def test_weights_that_are_synced_are_what_is_sampled_from(generator, model):
    await sampling.assert_new_weights_are_sampled_from(generator, *model)


async def test_a_run_trains_on_what_the_server_samples(served, tmp_path):
    config = configuration(
        served,
        tmp_path,
        "run.steps=2",
        "design.environments=2",
        "design.replay_steps=1",
        "play.group_size=6",
        "play.max_turns=3",
        "play.rehearsed=0",
        "evaluation.episodes=0",
        "update.minibatches=1",
    )
    client = FakeSandboxClient()
    await run(config, client, FakeDesigner(client), [])
    lines = (config.folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    gaps = [row["update/sampling_gap"] for row in rows]
    returns = [row["agent/mean_return"] for row in rows]
    print(f"\nsampling gaps by step: {gaps}; mean returns: {returns}")
    assert len(rows) == 2
    assert not any(row["sandbox/lost_plays"] for row in rows)
    assert all(gap is None or gap < 1e-3 for gap in gaps)
    assert any(gap is not None for gap in gaps)
    assert (config.folder / "vllm-weights" / "config.json").is_file()
