"""LoRA adapters, gradient checkpointing and the type that is computed with."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer.conftest import SMALL
from tests.trainer.fakes import completions
from tests.trainer.test_grpo import logprobs, sampled_rows, settings
from tests.trainer.test_run import Killed, _kill_in_step_three, configuration, start
from trainer.config import ConfigError, ModelConfig
from trainer.config_reading import load_config
from trainer.generation import GenerationRequest
from trainer.generation_queue import GenerationQueue
from trainer.grpo import SelfPlayGRPOTrainer, grpo_arguments
from trainer.models import ModelSourceError, load_model, lora_config, weights_dtype
from trainer.runfolder import RunFolder
from trainer.transformers_engine import TransformersEngine

LORA = replace(SMALL, lora_rank=4)


def trainer_of(model, tokenizer, config, rows, folder, **options):
    return SelfPlayGRPOTrainer(
        model,
        tokenizer,
        grpo_arguments(config, folder),
        collect=lambda step: copy.deepcopy(rows),
        staleness_cap=2.0,
        **options,
    )


@pytest.fixture
def model(small_model):
    return copy.deepcopy(small_model[0])


def test_adapters_train_the_weights_do_not_and_the_generator_has_them_at_once(
    model, small_model, generator, chat, tmp_path
):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = sampled_rows(generator, chat, 2)
    config = settings(**{"run.steps": 2})
    playing = GenerationQueue(TransformersEngine(model, small_model[1]))
    trainer = trainer_of(model, small_model[1], config, rows, tmp_path, adapters=lora_config(LORA))
    trained = [n for n, p in trainer.model.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    trainer.train()
    after = {name.replace(".base_layer", ""): v for name, v in model.state_dict().items()}
    assert all(torch.equal(after[name], value) for name, value in before.items())
    request = GenerationRequest(rows[0].prompt_ids, 1, temperature=0.0)
    (played,) = completions(playing, [request])
    with torch.no_grad():
        logits = trainer.model(torch.tensor([rows[0].prompt_ids])).logits[0, -1]
        with trainer.model.disable_adapter():
            first = trainer.model(torch.tensor([rows[0].prompt_ids])).logits[0, -1]
    assert played.logprobs[0] == pytest.approx(logits.log_softmax(-1).max().item(), abs=1e-5)
    assert (logits - first).abs().max() > 1e-3


@pytest.mark.parametrize("adapters", [False, True])
def test_the_divergence_is_from_the_first_weights(
    adapters, model, small_model, generator, chat, tmp_path
):
    rows = sampled_rows(generator, chat, 2)
    for row in rows:
        row.logprobs = logprobs(model, row).tolist()
    first = [logprobs(model, row) for row in rows]
    config = settings(**{"run.steps": 3, "update.kl_coef": 0.1, "update.learning_rate": 0.05})
    seen = []

    class Spy(SelfPlayGRPOTrainer):
        def _compute_loss(self, model, inputs):
            seen.append([logprobs(self.accelerator.unwrap_model(model), row) for row in rows])
            return super()._compute_loss(model, inputs)

    trainer = Spy(
        model,
        small_model[1],
        grpo_arguments(config, tmp_path),
        collect=lambda step: copy.deepcopy(rows),
        staleness_cap=2.0,
        adapters=lora_config(LORA) if adapters else None,
    )
    trainer.train()
    measured = [metrics["kl"] for metrics in trainer.update_metrics if "kl" in metrics]
    for now, kl in zip(seen, measured, strict=True):
        # The estimator of TRL: exp(r - p) - (r - p) - 1, by token.
        gap = torch.cat(first).double() - torch.cat(now).double()
        assert kl == pytest.approx((gap.exp() - gap - 1).mean().item(), abs=1e-4)
    assert measured[0] == pytest.approx(0.0, abs=1e-6)
    assert measured[-1] > 1e-3


async def test_a_run_with_adapters_resumes_without_a_trace_and_is_loaded_as_a_model(
    tmp_path, monkeypatch
):
    overrides = ("run.steps=4", "update.kl_coef=0.01", "update.gradient_checkpointing=true")
    config = replace(configuration(tmp_path, *overrides), model=LORA)
    whole = replace(config, run=replace(config.run, name="whole"))
    await start(whole)
    with monkeypatch.context() as patch:
        _kill_in_step_three(patch, "playing")
        with pytest.raises(Killed):
            await start(config)
    await start(config, resume=True)
    rows, expected = (RunFolder(c.folder).metrics() for c in (config, whole))
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for row, other in zip(rows, expected, strict=True):
        assert row["agent/mean_return"] == pytest.approx(other["agent/mean_return"], abs=1e-6)
        assert row["update/entropy"] == pytest.approx(other["update/entropy"], rel=1e-4)

    checkpoint = RunFolder(config.folder).newest_checkpoint()
    assert (checkpoint / "adapter_model.safetensors").is_file()
    assert not (checkpoint / "model.safetensors").exists()
    loaded, tokenizer = load_model(ModelConfig(name=str(checkpoint)), context_tokens=64, seed=9)
    base, _ = load_model(SMALL, context_tokens=config.generation.context_tokens, seed=0)
    adapters = load_file(checkpoint / "adapter_model.safetensors")
    merged, first = loaded.state_dict(), base.state_dict()
    assert merged.keys() == first.keys()
    changed = 0
    for name, value in adapters.items():
        if name.endswith("lora_A.weight"):
            layer = name.removeprefix("base_model.model.").replace("lora_A.weight", "weight")
            low = adapters[name.replace("lora_A", "lora_B")] @ value
            expected = first[layer] + low * LORA.lora_alpha / LORA.lora_rank
            assert torch.allclose(merged[layer], expected, atol=1e-6)
            changed += not torch.equal(merged[layer], first[layer])
    assert changed == 7 * SMALL.layers
    assert tokenizer.chat_template


def test_adapters_of_other_weights_are_refused(tmp_path):
    (tmp_path / "run" / "checkpoints" / "step_000001").mkdir(parents=True)
    folder = tmp_path / "run" / "checkpoints" / "step_000001"
    (folder / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": None, "peft_type": "LORA"})
    )
    config = load_config("cpu-demo")
    (tmp_path / "run" / "config.json").write_text(json.dumps(config.to_dict()))
    with pytest.raises(ModelSourceError, match="give the folder of the run that trained them"):
        load_model(ModelConfig(name=str(folder)), context_tokens=64, seed=0)


def gradients(model, tokenizer, config, rows, folder, **options):
    """Gradients of the first update, by parameter."""
    kept = {}

    class Spy(SelfPlayGRPOTrainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            loss = super().training_step(model, inputs, num_items_in_batch)
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    kept[name] = parameter.grad.clone()
            return loss

    trainer = Spy(
        model,
        tokenizer,
        grpo_arguments(config, folder),
        collect=lambda step: copy.deepcopy(rows),
        staleness_cap=2.0,
        **options,
    )
    trainer.train()
    return kept


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("adapters", [False, True])
def test_checkpointed_activations_give_the_same_gradients(
    adapters, constrained, small_model, generator, chat, tmp_path
):
    rows = [r for n in (3, 7) for r in sampled_rows(generator, chat, 2, length=n)]
    if constrained:
        for row in rows:
            row.allowed[0] = tuple(sorted({row.completion_ids[0], 10, 11}))
    results = []
    for checkpointing in (False, True):
        config = settings(**{"update.gradient_checkpointing": checkpointing, "run.steps": 1})
        model = copy.deepcopy(small_model[0])
        results.append(
            gradients(
                model,
                small_model[1],
                config,
                rows,
                tmp_path,
                adapters=lora_config(LORA) if adapters else None,
            )
        )
        assert getattr(model, "is_gradient_checkpointing", False) == checkpointing
    plain, checkpointed = results
    assert plain.keys() == checkpointed.keys()
    assert max(value.abs().max() for value in plain.values()) > 1e-3
    for name, value in plain.items():
        assert torch.allclose(checkpointed[name], value, atol=1e-5, rtol=0)


def test_weights_that_train_are_float32_and_others_are_held_as_computed(tmp_path):
    half = replace(SMALL, dtype="bfloat16")
    assert weights_dtype(half) is torch.float32
    assert weights_dtype(replace(half, lora_rank=2)) is torch.bfloat16
    assert weights_dtype(replace(SMALL, lora_rank=2)) is torch.float32  # no GPU: float32
    model, _ = load_model(replace(half, lora_rank=2), context_tokens=64, seed=0)
    assert model.dtype is torch.bfloat16


def test_a_bfloat16_run_updates_float32_weights(generator, chat, small_model, model, tmp_path):
    rows = sampled_rows(generator, chat, 2)
    config = settings(**{"run.steps": 2})
    config = replace(config, model=replace(SMALL, dtype="bfloat16"))
    arguments = grpo_arguments(config, tmp_path)
    assert arguments.bf16
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = trainer_of(model, small_model[1], config, rows, tmp_path)
    trainer.train()
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert any(not torch.equal(before[n], v) for n, v in model.state_dict().items())


def test_adapter_settings_are_checked():
    for override, message in (
        ("model.dtype=float16", "choose one of"),
        ("model.lora_dropout=1", "is possible"),
        ("model.lora_targets=[]", "all-linear"),
        ("model.lora_rank=-1", "at least 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config("cpu-demo", [override])
    named = lora_config(ModelConfig(lora_rank=2, lora_targets=("q_proj", "v_proj")))
    assert named.target_modules == {"q_proj", "v_proj"}
    assert lora_config(ModelConfig()) is None
