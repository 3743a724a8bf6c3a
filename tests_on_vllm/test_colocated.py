"""vLLM in this process, by TRL's own class."""

from __future__ import annotations

import functools

import pytest

from tests_on_vllm import sampling
from trainer.config_reading import load_config
from trainer.generators import generator_for


@pytest.fixture(scope="module")
def colocated(weights):
    from trl.generation import vllm_generation

    from trainer.config import ModelConfig
    from trainer.models import load_model, smollm2_folder

    with pytest.MonkeyPatch.context() as patch:
        # TRL leaves both to vLLM, which on a CPU would compile for minutes, and for bfloat16.
        patch.setattr(
            vllm_generation,
            "LLM",
            functools.partial(vllm_generation.LLM, enforce_eager=True, dtype="float32"),
        )
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        # Its output layer is its embeddings, as in most small models.
        name = str(smollm2_folder())
        model = load_model(ModelConfig(name=name), context_tokens=1024, seed=0)
        settings = [f"model.name={name}", "generation.backend=vllm-colocated", "design.explore=0"]
        settings += ["vllm.memory_share=0.2", "generation.max_rows=32"]
        yield generator_for(load_config("cpu-135m", settings), *model), *model


async def test_tokens_probabilities_and_grammars_are_the_trainers(colocated):
    await sampling.assert_samples_as_the_trainer_would(*colocated)


async def test_weights_that_are_synced_are_what_is_sampled_from(colocated):
    await sampling.assert_new_weights_are_sampled_from(*colocated)
