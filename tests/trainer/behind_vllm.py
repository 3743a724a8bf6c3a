"""`generation.backend=vllm-server` with TRL's own client; run by test_vllm_server.py.

In a process of its own: TRL looks for vLLM when it is imported, and finds `vllm_parts`.
"""

from __future__ import annotations

import asyncio
import copy
import json

import pytest
import requests
import torch
from trl.generation.vllm_client import VLLMClient

from tests.trainer.fakes import FakeDesigner, FakeSandboxClient
from tests.trainer.test_processes import launch
from tests.trainer.test_run import SUITE, configuration
from tests.trainer.vllm_protocol import ServedModel, serve
from tests_on_vllm import sampling
from trainer.config import ConfigError
from trainer.generation import GenerationError, GenerationRequest
from trainer.generators import generator_for
from trainer.run import run
from trainer.runfolder import RunFolder


@pytest.fixture(autouse=True)
def without_gpus(monkeypatch):
    """TRL sends weights from GPUs alone, and `vllm_parts` need none."""
    with_gpus = VLLMClient.init_communicator
    monkeypatch.setattr(
        VLLMClient, "init_communicator", lambda self, device: with_gpus(self, "cuda")
    )


@pytest.fixture
def served(small_model):
    return ServedModel(copy.deepcopy(small_model[0]), small_model[1])


def server_configuration(tmp_path, url, sync, *overrides):
    settings = ["generation.backend=vllm-server", f"vllm.url={url}", f"vllm.weight_sync={sync}"]
    settings += ["design.explore=0", "play.cohorts=0", "vllm.start_timeout_s=0"]
    return configuration(tmp_path, *settings, *overrides)


@pytest.fixture(params=["nccl", "folder"])
def sync(request):
    return request.param


@pytest.fixture
def generator(request, served, small_model, tmp_path, sync):
    own = copy.deepcopy(small_model[0])
    with serve(served) as url:
        made = generator_for(server_configuration(tmp_path, url, sync), own, small_model[1])
        yield made, own, small_model[1]
        made.close()


async def test_tokens_probabilities_and_grammars_are_the_trainers(generator, served):
    await sampling.assert_samples_as_the_trainer_would(*generator)
    assert {body["logprobs"] for body in served.asked} == {0}


async def test_after_a_sync_the_greedy_completion_is_the_new_weights(generator, served):
    await sampling.assert_new_weights_are_sampled_from(*generator, share=2.0)
    assert served.syncs == 2
    assert served.cache_resets == 2


async def test_a_server_that_is_gone_loses_plays_and_says_so(served, small_model, tmp_path):
    with serve(served) as url:
        made = generator_for(server_configuration(tmp_path, url, "folder"), *small_model)
    made._client.session.mount("http://", requests.adapters.HTTPAdapter())
    with pytest.raises(GenerationError, match="gave no completion"):
        await made.generate(GenerationRequest([3], 2))
    with pytest.raises(GenerationError, match="did not take the weights"):
        made.begin(0)
    made.close()


async def test_what_it_cannot_do_is_refused_by_name(generator):
    made, _, _ = generator
    with pytest.raises(ValueError, match="explore=0"):
        await made.generate(GenerationRequest([3], 2, explore=0.5))
    with pytest.raises(ValueError, match="empty prompt"):
        await made.generate(GenerationRequest([], 2))


@pytest.mark.parametrize(
    ("options", "overrides", "said"),
    [
        ({"logprobs_mode": "raw_logprobs"}, ["generation.temperature=0.6"], "--logprobs-mode"),
    ],
)
def test_a_server_that_was_started_otherwise_is_told_how(
    served, small_model, tmp_path, options, overrides, said
):
    with serve(served, **options) as url:
        config = server_configuration(tmp_path, url, "folder", *overrides)
        with pytest.raises(ConfigError, match=said):
            generator_for(config, *small_model)


def test_a_server_without_its_development_endpoints_is_told_how(served, small_model, tmp_path):
    with serve(served, developing=False) as url:
        made = generator_for(server_configuration(tmp_path, url, "folder"), *small_model)
        with pytest.raises(GenerationError, match="VLLM_SERVER_DEV_MODE=1"):
            made.begin(0)
        made.close()


def test_nobody_at_the_address_is_one_sentence(small_model, tmp_path):
    config = server_configuration(tmp_path, "http://127.0.0.1:9", "folder")
    with pytest.raises(ConfigError, match=r"vllm\.url=http://127\.0\.0\.1:9"):
        generator_for(config, *small_model)


async def test_a_run_designs_plays_trains_and_is_measured_by_it(served, tmp_path, sync):
    with serve(served) as url:
        config = server_configuration(tmp_path, url, sync, "update.learning_rate=0.01")
        client = FakeSandboxClient()
        designer = FakeDesigner(client)
        first = {name: p.clone() for name, p in served.model.named_parameters()}
        await run(config, client, designer, SUITE)
    rows = RunFolder(config.folder).metrics()
    assert [row["step"] for row in rows] == [1, 2]
    # Same arithmetic on both sides, so that the rows, though recomputed, weigh what they did.
    gaps = [row["update/sampling_gap"] for row in rows]
    assert all(gap is not None and gap < 1e-4 for gap in gaps)
    # Before the evaluation, for each of two steps, after the second.
    assert served.syncs == 4
    assert any(not torch.equal(p, first[name]) for name, p in served.model.named_parameters())
    evaluation = json.loads((config.folder / "eval.json").read_text())
    assert {"before", "after"} <= set(evaluation["policies"])
    assert any("structured_outputs" in body for body in served.asked)


@pytest.mark.timeout(280)
async def test_two_processes_train_with_one_server_like_one(served, small_model, tmp_path):
    overrides = ("update.accumulation=2", "update.minibatches=1", "evaluation.episodes=0")
    with serve(served) as url:
        config = server_configuration(tmp_path / "alone", url, "folder", *overrides)
        client = FakeSandboxClient()
        await run(config, client, FakeDesigner(client), [])
        served.model.load_state_dict(small_model[0].state_dict())
        settings = [f"vllm.url={url}", "generation.backend=vllm-server", "design.explore=0"]
        settings += ["vllm.weight_sync=folder", "play.cohorts=0", *overrides]
        done = await asyncio.to_thread(launch, tmp_path / "together", *settings)
        assert done.returncode == 0, done.stderr[-4000:]
    rows = RunFolder(tmp_path / "together" / "test").metrics()
    expected = RunFolder(config.folder).metrics()
    assert [row["step"] for row in rows] == [1, 2]
    for row, other in zip(rows, expected, strict=True):
        assert row["agent/mean_return"] == pytest.approx(other["agent/mean_return"])
        for key in ("update/loss", "update/entropy", "update/grad_norm"):
            assert row[key] == pytest.approx(other[key], rel=1e-3, abs=1e-5), key
    # The leader alone sends them: at two steps of either run.
    assert served.syncs == 4
