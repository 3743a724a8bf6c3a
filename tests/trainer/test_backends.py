"""Back ends of generation: what a configuration may ask for, and how inexact ones train."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.trainer.test_grpo import logprobs, sampled_rows, settings
from trainer.config import ConfigError
from trainer.config_reading import load_config
from trainer.generators import generator_for
from trainer.grammar import Grammar, GrammarCompiler
from trainer.grpo import SelfPlayGRPOTrainer, grpo_arguments
from trainer.models import character_tokenizer, stop_ids

VLLM = ["generation.backend=vllm-server", "vllm.url=http://localhost:8000", "design.explore=0"]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["generation.backend=vllm"], "choose one of transformers, vllm-colocated, vllm-server"),
        (["generation.backend=openai"], "cannot train.*spadework eval endpoint"),
        (["generation.backend=vllm-server", "design.explore=0"], "needs vllm.url"),
        (["vllm.url=http://localhost:8000"], "use vllm-server"),
        ([*VLLM, "vllm.url=http://localhost:8000/v1"], "without /v1"),
        ([*VLLM, "design.explore=0.4"], "design.explore=0"),
        ([*VLLM, "vllm.weight_sync=ftp"], "must be nccl or folder"),
        ([*VLLM, "vllm.sync_folder=/shared"], "vllm.weight_sync=folder"),
        ([*VLLM, "vllm.weight_sync=folder", "model.lora_rank=4"], "use nccl with lora_rank"),
        (["generation.backend=vllm-colocated", "vllm.memory_share=1.5"], "between 0 and 1"),
        ([*VLLM, "vllm.concurrency=0"], "at least 1"),
    ],
)
def test_back_ends_that_cannot_work_are_refused_before_anything_is_loaded(overrides, said):
    with pytest.raises(ConfigError, match=said):
        load_config("cpu-demo", overrides)


def test_without_vllm_beside_the_trainer_its_back_ends_say_what_to_install(small_model):
    config = load_config("cpu-demo", ["generation.backend=vllm-colocated", "design.explore=0"])
    with pytest.raises(ConfigError, match=r"pip install 'spadework\[gpu\]'"):
        generator_for(config, *small_model)


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (Grammar(choices=("left", "right", 'say "è"')), "left"),
        (
            Grammar(
                json_schema='{"type":"object","properties":{"a":{"enum":["x","y"]},'
                '"n":{"type":"integer"}},"required":["a","n"]}'
            ),
            '{"a":"y","n":12}',
        ),
    ],
)
def test_what_a_grammar_allowed_is_found_again_from_tokens_sampled_elsewhere(grammar, text):
    tokenizer = character_tokenizer()
    compiler = GrammarCompiler(tokenizer, len(tokenizer), [tokenizer.eos_token_id])
    token_ids = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]
    allowed = compiler.allowed(grammar, token_ids)
    assert all(token in among for token, among in zip(token_ids, allowed, strict=True))
    assert min(map(len, allowed)) == 1
    with pytest.raises(ValueError, match="not among what its grammar allowed"):
        compiler.allowed(grammar, tokenizer("?")["input_ids"])


def test_rows_of_an_inexact_engine_are_weighted_by_the_capped_ratio_of_both_engines(
    small_model, generator, chat, tmp_path
):
    model = copy.deepcopy(small_model[0])
    (row,) = sampled_rows(generator, chat, 1, length=3)
    exact = logprobs(model, row)
    # The engine thought each token likelier, as likely, and much less likely.
    row.logprobs = (exact + torch.tensor([0.1, 0.0, -3.0])[: len(exact)]).tolist()
    row.stale = True
    seen = {}

    class Watching(SelfPlayGRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            batch = super()._generate_and_score_completions(inputs)
            seen.update(batch)
            return batch

    config = settings()
    trainer = Watching(
        model,
        small_model[1],
        grpo_arguments(config, tmp_path),
        collect=lambda step: [copy.deepcopy(row)],
        staleness_cap=2.0,
    )
    trainer.train()
    weights = seen["advantages"][-1][: len(exact)]
    expected = torch.tensor([-0.1, 0.0, 3.0])[: len(exact)].exp().clamp(max=2.0)
    torch.testing.assert_close(weights, expected, atol=1e-4, rtol=1e-4)
    gaps = [m["sampling_gap"] for m in trainer.update_metrics if "sampling_gap" in m]
    assert gaps == [pytest.approx(3.1 / 3, abs=1e-4)]


def test_all_tokens_that_end_a_message_stop_a_completion(small_model):
    model, tokenizer = copy.deepcopy(small_model[0]), small_model[1]
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, 7]
    assert stop_ids(model, tokenizer) == {tokenizer.eos_token_id, 7}
