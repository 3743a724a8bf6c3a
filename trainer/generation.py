"""Sampling completions for many prompts at once.

One small interface, and its transformers implementation. A row that names a `key` keeps
its attention cache between calls, so that a growing context is read once: in a rollout of
T turns this saves a factor of about T / 2.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from trainer.grammar import AllowedTokens, BatchConstraint, Grammar, GrammarCompiler


@dataclass(frozen=True)
class GenerationRequest:
    """One completion to sample.

    Attributes:
        prompt_ids: The whole context so far.
        max_new_tokens: Longest completion.
        temperature: 0 takes the likeliest token.
        grammar: What the completion may look like; None for anything.
        key: Names the row across calls, where its context grows; None for a single call.
        explore: Share of the choices that are drawn evenly from what the grammar allows.
    """

    prompt_ids: Sequence[int]
    max_new_tokens: int
    temperature: float = 1.0
    grammar: Grammar | None = None
    key: str | None = None
    explore: float = 0.0


@dataclass
class Completion:
    """One sampled completion.

    Attributes:
        token_ids: As sampled, the end token included if there was one.
        logprobs: Of each token among those that its grammar allowed, at the request's
            temperature and with its exploration: the numbers that the update compares its
            own with.
        allowed: By token, what its grammar allowed; None for anything.
        ended: Whether the model closed it with the end token.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    allowed: list[AllowedTokens] = field(default_factory=list)
    ended: bool = False

    @property
    def free(self) -> list[bool]:
        """By token, whether more than one was allowed; the others decided nothing."""
        return [a is None or len(a) > 1 for a in self.allowed]


@dataclass
class GenerationCount:
    """Work done since it was last reset."""

    tokens: int = 0
    seconds: float = 0.0


class Generator(Protocol):
    """Anything that samples completions."""

    count: GenerationCount

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Sample one completion a request, in order."""
        ...

    def begin(self, seed: int) -> None:
        """Start afresh with the weights as they are now, and sampling seeded."""
        ...


@dataclass
class _Cached:
    """Attention state of the rows of the last call.

    Attributes:
        rows: Key to row.
        ids: By row, the token ids that the cache holds, in order.
        mask: (rows, columns) bool; False where a column is padding.
    """

    rows: dict[str, int]
    ids: list[list[int]]
    mask: torch.Tensor
    cache: DynamicCache


class TransformersGenerator:
    """Batched sampling with a transformers model in this process."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_rows: int = 512,
        threads: int = 1,
        cohorts: int = 1,
    ) -> None:
        """
        Args:
            model: Weights, used as they are at each call.
            tokenizer: Of the model.
            max_rows: Rows in one forward pass; a longer list is cut into pieces.
            threads: Torch threads while generating.
            cohorts: Calls between two of the same rows, whose caches are kept.
        """
        self._model = model
        self._pad_id = tokenizer.pad_token_id
        self._stop_ids = _stop_ids(model, tokenizer)
        self._vocab_size = model.config.get_text_config().vocab_size
        self._compiler = GrammarCompiler(tokenizer, self._vocab_size, sorted(self._stop_ids))
        self._max_rows = max_rows
        self._threads = threads
        self._rng = torch.Generator().manual_seed(0)
        self._cohorts = cohorts
        # The latest last.
        self._cached: list[_Cached] = []
        self.count = GenerationCount()

    def begin(self, seed: int) -> None:
        """Start afresh: forget caches of older weights, seed the sampling."""
        self._cached.clear()
        self._rng.manual_seed(seed)

    @torch.no_grad()
    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Sample one completion a request, in order.

        Raises:
            ValueError: If a prompt is empty.
        """
        if any(not request.prompt_ids for request in requests):
            raise ValueError("cannot continue an empty prompt")
        started = time.perf_counter()
        threads = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        training = self._model.training
        self._model.eval()
        try:
            completions: list[Completion] = []
            starts = range(0, len(requests), self._max_rows)
            for start in starts:
                completions += self._generate_piece(requests[start : start + self._max_rows])
            del self._cached[: -len(starts) * self._cohorts]
        finally:
            self._model.train(training)
            torch.set_num_threads(threads)
        self.count.tokens += sum(len(c.token_ids) for c in completions)
        self.count.seconds += time.perf_counter() - started
        return completions

    def _generate_piece(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        keyed = any(request.key is not None for request in requests)
        cached = self._recall(self._take_cached(requests), requests)
        pending = [
            list(r.prompt_ids[len(ids) :]) for r, ids in zip(requests, cached.ids, strict=True)
        ]
        constraint = BatchConstraint(
            self._compiler, [r.grammar for r in requests], self._vocab_size
        )
        completions = [Completion() for _ in requests]
        active = [True] * len(requests)
        temperatures = torch.tensor([r.temperature for r in requests])
        explore = torch.tensor([r.explore for r in requests])
        while any(active):
            logits = self._forward(cached, pending)
            tokens, logprobs, allowed = self._sample(
                logits, temperatures, explore, constraint, active
            )
            for row, completion in enumerate(completions):
                pending[row] = []
                if not active[row]:
                    continue
                token = tokens[row]
                constraint.accept(row, token)
                completion.token_ids.append(token)
                completion.logprobs.append(logprobs[row])
                completion.allowed.append(allowed[row])
                pending[row] = [token]
                completion.ended = token in self._stop_ids
                if completion.ended or (len(completion.token_ids) >= requests[row].max_new_tokens):
                    active[row] = False
                    pending[row] = []
        if keyed:
            self._cached.append(cached)
        return completions

    def _take_cached(self, requests: Sequence[GenerationRequest]) -> _Cached | None:
        """The cache that has most of these rows, if one has any."""
        keys = {r.key for r in requests if r.key is not None}
        best = max(self._cached, key=lambda c: len(keys & c.rows.keys()), default=None)
        if best is None or keys.isdisjoint(best.rows):
            return None
        # By identity: caches compare by their tensors.
        self._cached = [cached for cached in self._cached if cached is not best]
        return best

    def _recall(self, old: _Cached | None, requests: Sequence[GenerationRequest]) -> _Cached:
        """The cache of these rows: what is known of each, compacted to the right."""
        rows = {r.key: i for i, r in enumerate(requests) if r.key is not None}
        sources: list[int | None] = []
        for request in requests:
            row = old.rows.get(request.key) if old and request.key is not None else None
            if row is not None:
                known = old.ids[row]
                if len(known) >= len(request.prompt_ids) or (
                    list(request.prompt_ids[: len(known)]) != known
                ):
                    row = None
            sources.append(row)
        ids = [list(old.ids[s]) if s is not None else [] for s in sources]
        width = max((len(i) for i in ids), default=0)
        cache = DynamicCache(config=self._model.config)
        mask = torch.zeros(len(requests), width, dtype=torch.bool, device=self._model.device)
        if old is None or width == 0:
            return _Cached(rows, ids, mask[:, :0], cache)
        picks = torch.tensor([s or 0 for s in sources], device=mask.device)
        known = torch.tensor([s is not None for s in sources], device=mask.device)
        valid = old.mask[picks] & known[:, None]
        # Columns may hold padding anywhere. Keys carry their positions already, so a stable
        # sort moves every row's real columns to the right without changing what they mean.
        order = torch.argsort(valid.to(torch.uint8), dim=1, stable=True)[:, -width:]
        mask = torch.gather(valid, 1, order)
        for index, layer in enumerate(old.cache.layers):
            pick = order[:, None, :, None].expand(-1, layer.keys.shape[1], -1, layer.keys.shape[3])
            keys = torch.gather(layer.keys[picks], 2, pick)
            values = torch.gather(layer.values[picks], 2, pick)
            cache.update(keys, values, index)
        return _Cached(rows, ids, mask, cache)

    def _forward(self, cached: _Cached, pending: list[list[int]]) -> torch.Tensor:
        """Read the pending tokens of every row; return logits after each row's last.

        Returns:
            (rows, vocabulary) float32; meaningless for a row without pending tokens.
        """
        device = self._model.device
        width = max(len(p) for p in pending)
        chunk = torch.full((len(pending), width), self._pad_id, dtype=torch.long)
        mask = torch.zeros(len(pending), width, dtype=torch.bool)
        positions = torch.zeros(len(pending), width, dtype=torch.long)
        for row, tokens in enumerate(pending):
            if tokens:
                chunk[row, -len(tokens) :] = torch.tensor(tokens)
                mask[row, -len(tokens) :] = True
                start = len(cached.ids[row])
                positions[row, -len(tokens) :] = torch.arange(start, start + len(tokens))
                cached.ids[row].extend(tokens)
        cached.mask = torch.cat([cached.mask, mask.to(device)], dim=1)
        output = self._model(
            input_ids=chunk.to(device),
            attention_mask=cached.mask.long(),
            position_ids=positions.to(device),
            past_key_values=cached.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def _sample(
        self,
        logits: torch.Tensor,
        temperatures: torch.Tensor,
        explore: torch.Tensor,
        constraint: BatchConstraint,
        active: list[bool],
    ) -> tuple[list[int], list[float], list[AllowedTokens]]:
        logits = logits.cpu()
        greedy = temperatures <= 0
        scaled = logits / torch.where(greedy, 1.0, temperatures)[:, None]
        allowed = constraint.apply(scaled, active)
        logprobs = torch.log_softmax(scaled, dim=-1)
        if explore.any():
            even = scaled.isfinite().float()
            even /= even.sum(dim=-1, keepdim=True)
            share = explore[:, None]
            logprobs = ((1 - share) * logprobs.exp() + share * even).log()
        likeliest = scaled.argmax(dim=-1)
        sampled = torch.multinomial(logprobs.exp(), 1, generator=self._rng)[:, 0]
        tokens = torch.where(greedy, likeliest, sampled)
        chosen = logprobs.gather(1, tokens[:, None])[:, 0]
        return tokens.tolist(), chosen.tolist(), allowed


def _stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    declared = model.generation_config.eos_token_id
    ids = [declared] if isinstance(declared, int) else list(declared or ())
    return {*ids, tokenizer.eos_token_id} - {None}
