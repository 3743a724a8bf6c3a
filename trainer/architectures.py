"""Sizes of models without their weights: parameters, and the memory of a token in the cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import ConfigError, ModelConfig

# Of the tokenizer that `tiny` gets; a test holds it to that.
TINY_VOCABULARY = 102


@dataclass(frozen=True)
class Architecture:
    """A decoder of the Llama kind: gated feed-forward, RMS norms, grouped queries.

    Attributes:
        layers: Of the decoder.
        hidden: Width.
        heads: Of queries.
        kv_heads: Of keys and values.
        head_dim: Width of a head.
        intermediate: Width of the feed-forward part; of one expert where there are experts.
        vocabulary: Rows of the embedding.
        tied: Whether the embedding is the output layer, too.
        experts: Feed-forward parts of a layer; 0 for a dense one.
        active_experts: Of those, how many a token goes through.
        query_bias: Whether queries, keys and values have a bias (Qwen2).
        head_norms: Whether queries and keys have norms of their own (Qwen3).
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    tied: bool
    experts: int = 0
    active_experts: int = 0
    query_bias: bool = False
    head_norms: bool = False

    @property
    def parameters(self) -> int:
        """All of them."""
        return self._parameters(max(1, self.experts))

    @property
    def active_parameters(self) -> int:
        """Those that a token goes through."""
        return self._parameters(max(1, self.active_experts))

    def _parameters(self, feed_forwards: int) -> int:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (2 * queries + 2 * keys)
        attention += (queries + 2 * keys) * self.query_bias + 2 * self.head_dim * self.head_norms
        feed_forward = 3 * self.hidden * self.intermediate * feed_forwards
        router = self.hidden * self.experts
        layer = attention + feed_forward + router + 2 * self.hidden
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * layer + embeddings + self.hidden

    def adapter_parameters(self, rank: int) -> int:
        """Of low-rank adapters on all linear layers but the output; experts have none."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sides = 2 * (self.hidden + queries) + 2 * (self.hidden + keys)
        if not self.experts:
            sides += 3 * (self.hidden + self.intermediate)
        return self.layers * rank * sides

    def cache_bytes(self, value_bytes: int) -> int:
        """Of keys and values, a token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * value_bytes

    def activation_values(self) -> int:
        """Values that a layer keeps of a token for its gradient, attention by blocks.

        Inputs of both norms and of the four projections around them, queries, keys, values, what
        attention gives, and three parts of the feed-forward and their product.
        """
        feed_forward = self.intermediate * max(1, self.active_experts)
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return 6 * self.hidden + 2 * queries + 2 * keys + 4 * feed_forward


# From the config.json that each model is published with.
ARCHITECTURES: dict[str, Architecture] = {
    "smollm2-135m": Architecture(30, 576, 9, 3, 64, 1536, 49152, tied=True),
    "Qwen/Qwen2.5-3B-Instruct": Architecture(
        36, 2048, 16, 2, 128, 11008, 151936, tied=True, query_bias=True
    ),
    "Qwen/Qwen2.5-7B-Instruct": Architecture(
        28, 3584, 28, 4, 128, 18944, 152064, tied=False, query_bias=True
    ),
    "Qwen/Qwen3-4B": Architecture(36, 2560, 32, 8, 128, 9728, 151936, tied=True, head_norms=True),
    "Qwen/Qwen3-8B": Architecture(
        36, 4096, 32, 8, 128, 12288, 151936, tied=False, head_norms=True
    ),
    "Qwen/Qwen3-30B-A3B": Architecture(
        48,
        2048,
        32,
        4,
        128,
        768,
        151936,
        tied=False,
        experts=128,
        active_experts=8,
        head_norms=True,
    ),
}


def architecture_of(model: ModelConfig) -> Architecture:
    """The architecture of a run's model, nothing of it loaded.

    Raises:
        ConfigError: If it is neither known nor a folder with a config.json.
    """
    if model.name == "tiny":
        width = model.hidden_size // model.heads
        return Architecture(
            layers=model.layers,
            hidden=model.hidden_size,
            heads=model.heads,
            kv_heads=model.heads,
            head_dim=width,
            intermediate=model.intermediate_size,
            vocabulary=TINY_VOCABULARY,
            tied=True,
        )
    if model.name in ARCHITECTURES:
        return ARCHITECTURES[model.name]
    path = Path(model.name) / "config.json"
    if path.is_file():
        return _from_config(json.loads(path.read_text()))
    raise ConfigError(
        f"model.name {model.name!r}: its size is not known here; known are tiny, "
        f"{', '.join(ARCHITECTURES)}, and any folder with a config.json"
    )


def _from_config(values: Mapping[str, Any]) -> Architecture:
    kind = str(values.get("model_type", ""))
    heads, hidden = values["num_attention_heads"], values["hidden_size"]
    experts = values.get("num_experts") or values.get("num_local_experts") or 0
    return Architecture(
        layers=values["num_hidden_layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=values.get("num_key_value_heads") or heads,
        head_dim=values.get("head_dim") or hidden // heads,
        intermediate=(values.get("moe_intermediate_size") if experts else None)
        or values["intermediate_size"],
        vocabulary=values["vocab_size"],
        tied=bool(values.get("tie_word_embeddings", False)),
        experts=experts,
        active_experts=values.get("num_experts_per_tok", 0) if experts else 0,
        query_bias=kind.startswith("qwen2"),
        head_norms=kind.startswith("qwen3"),
    )
