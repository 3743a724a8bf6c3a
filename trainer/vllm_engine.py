"""vLLM in the trainer's own process, with the trainer's weights.

TRL makes the engine and brings the weights to it; requests go to it one by one, so that rows join
and leave at any step of it, each with its own length, temperature and grammar.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase
from trl.generation.vllm_generation import VLLMGeneration
from vllm import RequestOutput, SamplingParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from trainer.generation import Completion, GenerationError, GenerationRequest
from trainer.grammar import GrammarCompiler
from trainer.models import stop_ids
from trainer.vllm_config import VLLMConfig
from trainer.vllm_server import SEED_BITS


@dataclass(frozen=True)
class _Row:
    number: int
    request: GenerationRequest


class VLLMEngine:
    """An `Engine` for `GenerationQueue` over a colocated vLLM.

    Args:
        generation: TRL's, in its mode `colocate`.
        tokenizer: Of the model.
        config: How to use it.
        max_rows: Rows that are sampled at once.
    """

    exact = False

    def __init__(
        self,
        generation: VLLMGeneration,
        tokenizer: PreTrainedTokenizerBase,
        config: VLLMConfig,
        *,
        max_rows: int,
    ) -> None:
        self.max_rows = max_rows
        self._generation = generation
        self._engine = generation.llm.llm_engine
        self._seeded = config.seeded
        model: Any = generation.model
        self._stop_ids = stop_ids(model, tokenizer)
        vocab_size = model.config.get_text_config().vocab_size
        self._compiler = GrammarCompiler(tokenizer, vocab_size, sorted(self._stop_ids))
        self._seed = 0
        self._running: dict[str, _Row] = {}
        self._refused: list[tuple[int, Exception]] = []

    @property
    def rows(self) -> int:
        """Rows that are being sampled."""
        return len(self._running)

    def begin(self, seed: int) -> None:
        """Bring the weights as they are to vLLM; seed the streams."""
        if self._generation.accelerator.device.type == "cpu":
            self._reload_weights()
        else:
            self._generation.sync_weights()
        self._seed = seed

    def forget(self, key: str) -> None:
        """Nothing: vLLM keeps what prefixes it has room for."""

    def join(self, requests: Sequence[tuple[int, GenerationRequest]]) -> None:
        """Take rows in; one that vLLM refuses is done, with the reason."""
        for number, request in requests:
            try:
                # vLLM names a request in its own way, of which ours is the beginning.
                self._engine.add_request(
                    str(number),
                    {"prompt_token_ids": list(request.prompt_ids)},
                    self._parameters(request),
                )
            except ValueError as error:
                self._refused.append((number, error))
                continue
            self._running[str(number)] = _Row(number, request)

    def leave(self, numbers: Sequence[int]) -> None:
        """Give rows up that nobody waits for."""
        names = [name for name in map(str, numbers) if self._running.pop(name, None)]
        self._engine.abort_request(names)

    def advance(
        self, interrupted: Callable[[int], bool]
    ) -> list[tuple[int, Completion | Exception]]:
        """Sample until at least one row is done, or it is interrupted."""
        finished: list[tuple[int, Completion | Exception]] = list(self._refused)
        self._refused.clear()
        steps = 0
        while not finished and self._running:
            for output in self._engine.step():
                row = self._running.pop(output.request_id, None)
                if row is not None:
                    finished.append((row.number, self._completion(row.request, output)))
            steps += 1
            if interrupted(steps):
                break
        return finished

    def _reload_weights(self) -> None:
        """TRL's sync writes into vLLM's tensors, which on a CPU are packed in another layout."""
        llm, model = self._generation.llm, self._generation.model
        llm.collective_rpc("reload_weights", kwargs={"weights_iterator": model.named_parameters()})
        if model.config.get_text_config().tie_word_embeddings:
            llm.apply_model(_pack_output_layer)
        llm.reset_prefix_cache()

    def _parameters(self, request: GenerationRequest) -> SamplingParams:
        """
        Raises:
            ValueError: If even exploration is asked for, which vLLM does not offer.
        """
        if request.explore:
            raise ValueError("vLLM draws no even choices; use design.explore=0")
        options: dict[str, Any] = {}
        if request.grammar is not None:
            options["structured_outputs"] = StructuredOutputsParams(grammar=request.grammar.ebnf())
        if self._seeded:
            drawn = random.Random(f"{self._seed}/{request.stream}")
            options["seed"] = drawn.getrandbits(SEED_BITS)
        return SamplingParams(
            temperature=max(0.0, request.temperature),
            max_tokens=request.max_new_tokens,
            stop_token_ids=sorted(self._stop_ids),
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **options,
        )

    def _completion(
        self, request: GenerationRequest, output: RequestOutput
    ) -> Completion | GenerationError:
        sampled = output.outputs[0]
        token_ids = list(sampled.token_ids)
        if not token_ids or sampled.logprobs is None:
            return GenerationError(f"vLLM gave no completion: {sampled.finish_reason}")
        logprobs = [
            place[token_id].logprob
            for place, token_id in zip(sampled.logprobs, token_ids, strict=True)
        ]
        completion = Completion(token_ids, logprobs, [], token_ids[-1] in self._stop_ids)
        if request.grammar is None:
            completion.allowed = [None] * len(token_ids)
            return completion
        try:
            completion.allowed = self._compiler.allowed(request.grammar, token_ids)
        except ValueError as error:
            return GenerationError(f"vLLM ignored a grammar: {error}")
        return completion


def _pack_output_layer(model: Any) -> None:
    """Where it is the embeddings', reloading forgets that it has a packed copy of them."""
    model.lm_head.quant_method.process_weights_after_loading(model.lm_head)
