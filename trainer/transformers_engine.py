"""Sampling with a transformers model in this process, rows joining and leaving at any pass.

A row that names a `key` keeps its attention state between calls, so that a growing context is
read once: in a rollout of T turns this saves a factor of about T / 2.

Rows are held in blocks, each with one attention cache. New rows are read in a block of their own,
without padding those that only go on; what is not done after its first token joins the block that
runs. Whenever rows are brought together, each one's columns are moved to the right edge: what a
block looks like, and so what it computes to the last digit, depends on its rows alone and not on
where they come from.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import xgrammar
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from trainer.generation import Completion, GenerationRequest
from trainer.grammar import AllowedTokens, GrammarCompiler, constrain
from trainer.models import stop_ids

# Blocks whose rows wait for their next turn; past it, they are brought together in one, which
# bounds what is kept of rows that have gone on elsewhere.
KEPT_BLOCKS = 4


@dataclass(eq=False)
class _Block:
    """Attention state of some rows.

    Attributes:
        ids: By row, the token ids that the cache holds, in order.
        mask: (rows, columns) bool; False where a column is padding.
    """

    ids: list[list[int]]
    mask: torch.Tensor
    cache: DynamicCache


@dataclass(eq=False)
class _Row:
    """A completion being sampled.

    Attributes:
        pending: Tokens that the model has not read yet.
        place: Block and row where its attention state is; None if there is none.
    """

    number: int
    request: GenerationRequest
    matcher: xgrammar.GrammarMatcher | None
    rng: random.Random
    pending: list[int]
    place: tuple[_Block, int] | None
    completion: Completion = field(default_factory=Completion)
    done: bool = False


class TransformersEngine:
    """Batched sampling with a transformers model in this process.

    Args:
        model: Weights, used as they are at each pass.
        tokenizer: Of the model.
        max_rows: Rows in one forward pass.
        threads: Torch threads while generating.
    """

    exact = True

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_rows: int = 512,
        threads: int = 1,
    ) -> None:
        self.max_rows = max_rows
        self._model = model
        self._pad_id = tokenizer.pad_token_id
        self._stop_ids = stop_ids(model, tokenizer)
        vocab_size = model.config.get_text_config().vocab_size
        self._compiler = GrammarCompiler(tokenizer, vocab_size, sorted(self._stop_ids))
        self._threads = threads
        self._seed = 0
        self._joining: list[_Row] = []
        self._running: list[_Row] = []
        self._kept: dict[str, tuple[_Block, int]] = {}
        self._refused: list[tuple[int, Exception]] = []

    @property
    def rows(self) -> int:
        """Rows that are being sampled."""
        return len(self._joining) + len(self._running)

    def begin(self, seed: int) -> None:
        """Forget attention states of older weights; seed the streams."""
        self._kept.clear()
        self._seed = seed

    def forget(self, key: str) -> None:
        """Let go of a row's attention state."""
        self._kept.pop(key, None)

    def join(self, requests: Sequence[tuple[int, GenerationRequest]]) -> None:
        """Take rows in; one whose grammar does not compile is done, with the reason."""
        for number, request in requests:
            try:
                matcher = self._compiler.matcher(request.grammar) if request.grammar else None
            except ValueError as error:
                self._refused.append((number, error))
                continue
            place = self._known(request)
            known = len(place[0].ids[place[1]]) if place else 0
            self._joining.append(
                _Row(
                    number,
                    request,
                    matcher,
                    random.Random(f"{self._seed}/{request.stream}"),
                    list(request.prompt_ids[known:]),
                    place,
                )
            )

    def leave(self, numbers: Sequence[int]) -> None:
        """Give rows up that nobody waits for."""
        gone = set(numbers)
        self._joining = [row for row in self._joining if row.number not in gone]
        self._running = [row for row in self._running if row.number not in gone]

    @torch.no_grad()
    def advance(
        self, interrupted: Callable[[int], bool]
    ) -> list[tuple[int, Completion | Exception]]:
        """Sample until at least one row is done, or it is interrupted."""
        finished: list[tuple[int, Completion | Exception]] = list(self._refused)
        self._refused.clear()
        threads = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        training = self._model.training
        self._model.eval()
        passes = 0
        try:
            while not finished and self.rows:
                finished += self._pass()
                passes += 1
                if interrupted(passes):
                    break
        finally:
            self._model.train(training)
            torch.set_num_threads(threads)
        return finished

    def _pass(self) -> list[tuple[int, Completion | Exception]]:
        """Read and sample once: the rows that join, if any do, else those that run."""
        joining = bool(self._joining)
        rows = self._joining if joining else self._running
        places = [row.place for row in rows]
        block = places[0][0] if places[0] is not None else None
        # Where every row of a block goes on, and they alone, it is used as it is.
        if joining or block is None or places != [(block, n) for n in range(len(block.ids))]:
            block = self._assemble(places)
        self._sample(rows, self._forward(block, rows))
        going_on = []
        finished: list[tuple[int, Completion | Exception]] = []
        for n, row in enumerate(rows):
            row.place = (block, n)
            if row.done:
                finished.append((row.number, row.completion))
                if row.request.key is not None:
                    self._kept[row.request.key] = row.place
            else:
                going_on.append(row)
        if joining:
            self._joining = []
            self._running = self._running + going_on
        else:
            self._running = going_on
        self._tidy()
        return finished

    def _known(self, request: GenerationRequest) -> tuple[_Block, int] | None:
        """Where the beginning of the request's context has been read already."""
        if request.key is None:
            return None
        place = self._kept.pop(request.key, None)
        if place is None:
            return None
        known = place[0].ids[place[1]]
        goes_on = len(known) < len(request.prompt_ids)
        return place if goes_on and list(request.prompt_ids[: len(known)]) == known else None

    def _tidy(self) -> None:
        """Bring kept rows together where they are scattered over many blocks."""
        if len({id(block) for block, _ in self._kept.values()}) > KEPT_BLOCKS:
            block = self._assemble(list(self._kept.values()))
            self._kept = {key: (block, n) for n, key in enumerate(self._kept)}

    def _assemble(self, places: Sequence[tuple[_Block, int] | None]) -> _Block:
        """A block of these rows, each one's columns at the right edge."""
        device = self._model.device
        ids = [list(place[0].ids[place[1]]) if place else [] for place in places]
        width = max(map(len, ids))
        mask = torch.zeros(len(places), width, dtype=torch.bool, device=device)
        cache = DynamicCache()
        if width == 0:
            return _Block(ids, mask, cache)
        sources: dict[int, tuple[_Block, list[int], list[int]]] = {}
        for target, place in enumerate(places):
            if place is not None:
                source = sources.setdefault(id(place[0]), (place[0], [], []))
                source[1].append(target)
                source[2].append(place[1])
        states: list[list[torch.Tensor]] = []
        for old, targets, picks in sources.values():
            taken = old.mask[picks]
            # Columns may hold padding anywhere. Keys carry their positions already, so a stable
            # sort moves every row's real columns to the right without changing what they mean.
            order = torch.argsort(taken.to(torch.uint8), dim=1, stable=True)[:, -width:]
            columns = order.shape[1]
            mask[targets, -columns:] = torch.gather(taken, 1, order)
            layers: list[Any] = old.cache.layers
            for index, layer in enumerate(layers):
                moved = [_moved(layer.keys, picks, order), _moved(layer.values, picks, order)]
                if len(targets) == len(places):
                    # All rows of one source, and as wide as the widest of them.
                    states.append(moved)
                    continue
                if index == len(states):
                    states.append(
                        [t.new_zeros(len(places), t.shape[1], width, t.shape[3]) for t in moved]
                    )
                for whole, part in zip(states[index], moved, strict=True):
                    whole[targets, :, -columns:] = part
        for index, (keys, values) in enumerate(states):
            cache.update(keys, values, index)
        return _Block(ids, mask, cache)

    def _forward(self, block: _Block, rows: Sequence[_Row]) -> torch.Tensor:
        """Read what is pending; return logits after each row's last token.

        Returns:
            (rows, vocabulary) float32.
        """
        device = self._model.device
        width = max(len(row.pending) for row in rows)
        chunk = torch.full((len(rows), width), self._pad_id, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.bool)
        positions = torch.zeros(len(rows), width, dtype=torch.long)
        for n, row in enumerate(rows):
            length, start = len(row.pending), len(block.ids[n])
            chunk[n, -length:] = torch.tensor(row.pending)
            mask[n, -length:] = True
            positions[n, -length:] = torch.arange(start, start + length)
            block.ids[n].extend(row.pending)
        block.mask = torch.cat([block.mask, mask.to(device)], dim=1)
        output = self._model(
            input_ids=chunk.to(device),
            attention_mask=block.mask.long(),
            position_ids=positions.to(device),
            past_key_values=block.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def _sample(self, rows: Sequence[_Row], logits: torch.Tensor) -> None:
        """Draw each row's next token."""
        temperatures = torch.tensor([row.request.temperature for row in rows])
        greedy = temperatures <= 0
        scaled = logits.cpu() / torch.where(greedy, 1.0, temperatures)[:, None]
        allowed = constrain(scaled, [row.matcher for row in rows], self._compiler.known_masks)
        logprobs = torch.log_softmax(scaled, dim=-1)
        explore = torch.tensor([row.request.explore for row in rows])
        if explore.any():
            even = scaled.isfinite().float()
            even /= even.sum(dim=-1, keepdim=True)
            share = explore[:, None]
            logprobs = ((1 - share) * logprobs.exp() + share * even).log()
        likeliest = scaled.argmax(dim=-1)
        tokens = torch.where(greedy, likeliest, _drawn(logprobs, [row.rng for row in rows]))
        chosen = logprobs.gather(1, tokens[:, None])[:, 0]
        for row, token, logprob, among in zip(
            rows, tokens.tolist(), chosen.tolist(), allowed, strict=True
        ):
            self._take(row, token, logprob, among)

    def _take(self, row: _Row, token: int, logprob: float, allowed: AllowedTokens) -> None:
        if row.matcher is not None and not row.matcher.is_terminated():
            row.matcher.accept_token(token)
        completion = row.completion
        completion.token_ids.append(token)
        completion.logprobs.append(logprob)
        completion.allowed.append(allowed)
        completion.ended = token in self._stop_ids
        row.pending = [token]
        row.done = completion.ended or len(completion.token_ids) >= row.request.max_new_tokens


def _moved(states: torch.Tensor, rows: list[int], order: torch.Tensor) -> torch.Tensor:
    """Rows of a layer's states, (rows, heads, columns, dimension), columns in their order."""
    pick = order[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
    return torch.gather(states[rows], 2, pick)


def _drawn(logprobs: torch.Tensor, generators: Sequence[random.Random]) -> torch.Tensor:
    """One token a row, by the inverse of the cumulative distribution.

    Each row has random numbers of its own, so what it draws does not depend on its neighbours.
    """
    cumulative = logprobs.exp().double().cumsum(dim=-1)
    # 40 bits: below 1 by more than a rounding error, or a token without any chance could be hit.
    shares = [rng.getrandbits(40) / 2**40 for rng in generators]
    wanted = torch.tensor(shares, dtype=torch.float64)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, wanted, right=True)[:, 0]
