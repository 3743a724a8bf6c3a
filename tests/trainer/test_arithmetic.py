"""What a run amounts to, counted by hand; sizes of models against the models themselves."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from trainer.architectures import ARCHITECTURES, Architecture, architecture_of
from trainer.arithmetic import batch, checkpoint_bytes, memory, stages
from trainer.config import ConfigError, ModelConfig
from trainer.config_reading import load_config
from trainer.models import load_model


def published(name: str, size: Architecture) -> PreTrainedConfig:
    kinds = {"Qwen2.5": Qwen2Config, "Qwen3": Qwen3Config, "smollm2": LlamaConfig}
    kind: Any = Qwen3MoeConfig if size.experts else next(v for k, v in kinds.items() if k in name)
    more = {}
    if size.experts:
        more = {
            "num_experts": size.experts,
            "num_experts_per_tok": size.active_experts,
            "moe_intermediate_size": size.intermediate,
        }
    return kind(
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_dim,
        intermediate_size=size.intermediate,
        vocab_size=size.vocabulary,
        tie_word_embeddings=size.tied,
        **more,
    )


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameters_are_those_that_transformers_makes(name: str):
    size = ARCHITECTURES[name]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(published(name, size))
    assert size.parameters == sum(p.numel() for p in model.parameters())


def test_models_are_as_large_as_their_names_say():
    billions = {name: size.parameters / 1e9 for name, size in ARCHITECTURES.items()}
    assert billions["smollm2-135m"] == pytest.approx(0.135, rel=0.01)
    assert billions["Qwen/Qwen3-4B"] == pytest.approx(4.0, rel=0.01)
    assert billions["Qwen/Qwen3-8B"] == pytest.approx(8.2, rel=0.01)
    assert billions["Qwen/Qwen3-30B-A3B"] == pytest.approx(30.5, rel=0.01)
    active = ARCHITECTURES["Qwen/Qwen3-30B-A3B"].active_parameters / 1e9
    assert active == pytest.approx(3.3, rel=0.02)


def test_the_size_of_the_model_made_here_is_exact():
    config = load_config("cpu-demo")
    model, _ = load_model(config.model, context_tokens=640, seed=0)
    assert architecture_of(config.model).parameters == sum(p.numel() for p in model.parameters())


def test_a_folder_with_a_configuration_needs_no_weights(tmp_path):
    size = ARCHITECTURES["Qwen/Qwen3-30B-A3B"]
    (tmp_path / "config.json").write_text(json.dumps(published("Qwen3", size).to_dict()))
    assert architecture_of(ModelConfig(name=str(tmp_path))) == size


def test_an_unknown_model_is_named_with_what_would_do():
    with pytest.raises(ConfigError, match=r"'nobody/knows'.*config\.json"):
        architecture_of(ModelConfig(name="nobody/knows"))


@pytest.mark.parametrize("tokens", [64, 256])
@pytest.mark.parametrize("kind", ["Llama", "Qwen3"])
def test_activations_are_what_autograd_keeps_within_a_fifth(kind: str, tokens: int):
    size = Architecture(3, 256, 8, 2, 32, 768, 100, tied=True, head_norms=kind == "Qwen3")
    model = AutoModelForCausalLM.from_config(
        published("Qwen3" if size.head_norms else "smollm2", size)
    )
    model.train()
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        pointer = tensor.untyped_storage().data_ptr()
        if pointer not in weights:
            kept[pointer] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        # Kept in a name, so that no storage is given out a second time.
        output = model.model(torch.zeros(2, tokens, dtype=torch.long))
    seen = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    assert output.last_hidden_state.shape[:2] == (2, tokens)
    assert seen == pytest.approx(2 * tokens * size.layers * size.activation_values() * 4, rel=0.2)


def test_a_step_is_counted_by_hand():
    counted = batch(load_config("cpu-demo"))
    # 12 environments, 5 plays an arm, 20 rehearsed; 5 minibatches in 2 pieces each.
    assert counted.plays == 2 * 12 * 5 + 20 * 5
    assert counted.replays == 12 * 5 + 20 * 5
    assert counted.environment_steps == counted.plays * 12
    assert counted.rows == 160 + 12  # plays and designs
    assert (counted.minibatch_rows, counted.piece_rows) == (35, 18)  # of 5 and 10, rounded up


def test_memory_is_counted_by_hand():
    config = load_config("cpu-demo")
    size = architecture_of(config.model)
    needed = memory(config, size)
    assert needed.weights == needed.gradients == 4 * size.parameters
    assert needed.optimizer == 8 * size.parameters
    assert needed.reference == 0
    assert checkpoint_bytes(config, size) == 2 * 12 * size.parameters
    shared = memory(config, size, processes=2)
    assert shared.weights == needed.weights
    assert shared.optimizer == needed.optimizer // 2
    assert shared.logits == needed.logits // 2

    adapters = dataclasses.replace(config.model, lora_rank=8)
    under = memory(dataclasses.replace(config, model=adapters), size, gpu=True)
    assert under.weights < needed.weights
    assert under.optimizer == 8 * size.adapter_parameters(8)


def test_adapters_have_as_many_parameters_as_peft_gives_them():
    from peft import LoraConfig, get_peft_model

    size = Architecture(2, 64, 4, 2, 16, 128, 100, tied=True)
    model = AutoModelForCausalLM.from_config(published("smollm2", size))
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert size.adapter_parameters(4) == trained


def test_stages_are_told_by_their_first_step():
    overrides = ["play.horizon_stages=[4,8]", "play.horizon_interval=20", "run.steps=30"]
    assert stages(load_config("cpu-demo", overrides)) == [(1, 4), (21, 8)]
    assert stages(load_config("cpu-demo")) == [(1, 12)]
