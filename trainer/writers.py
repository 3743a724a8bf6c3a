"""The trained model as a writer of environments: completions, with what trains it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from trainer.chat import ChatFormat
from trainer.environments import DesignSample
from trainer.generation import (
    Batch,
    Completion,
    GenerationError,
    GenerationRequest,
    Generator,
)
from trainer.grammar import Grammar
from trainer.protocols import Answer, DesignRequest


class ModelWriter:
    """Samples from the model in this process, under a request's grammar where it has one.

    Args:
        generator: Seeded by whoever runs this.
        chat: The model's chat template, without a system prompt of its own.
        temperature: Of sampling.
        context_tokens: Longest prompt plus completion.
        explore: Share of a grammar's choices that are drawn evenly.
        together: Whether the requests of a call share their batches with no others; see `Batch`.
    """

    def __init__(
        self,
        generator: Generator,
        chat: ChatFormat,
        *,
        temperature: float,
        context_tokens: int,
        explore: float = 0.0,
        together: bool = True,
    ) -> None:
        self._generator = generator
        self._chat = chat
        self._temperature = temperature
        self._context_tokens = context_tokens
        self._explore = explore
        self._together = together

    async def complete(
        self,
        requests: Sequence[DesignRequest],
        max_tokens: int,
        done: Callable[[], None] | None = None,
    ) -> list[Answer | None]:
        """One answer a request, in order; a prompt that leaves no room has none but an error."""
        prompts = [self._chat.prompt(request.messages) for request in requests]
        fitting = sum(len(prompt_ids) < self._context_tokens for prompt_ids in prompts)
        batch = Batch(fitting) if self._together else None

        async def answer(request: DesignRequest, prompt_ids: list[int]) -> Answer:
            written = await self._answer(request, prompt_ids, max_tokens, batch)
            if done is not None:
                done()
            return written

        return list(await asyncio.gather(*map(answer, requests, prompts)))

    async def _answer(
        self, request: DesignRequest, prompt_ids: list[int], max_tokens: int, batch: Batch | None
    ) -> Answer:
        room = self._context_tokens - len(prompt_ids)
        if room <= 0:
            error = (
                f"the prompt has {len(prompt_ids)} tokens and the context only "
                f"{self._context_tokens}; raise generation.context_tokens"
            )
            return Answer("", error=error)
        schema = request.json_schema
        asked = GenerationRequest(
            prompt_ids=prompt_ids,
            max_new_tokens=min(max_tokens, room),
            temperature=self._temperature,
            explore=self._explore if schema else 0.0,
            grammar=Grammar(json_schema=schema) if schema else None,
            batch=batch,
        )
        try:
            completion = await self._generator.generate(asked)
        except GenerationError as error:
            return Answer("", error=str(error))
        return Answer(self._chat.text(completion.token_ids), _sample(prompt_ids, completion))

    def metrics(self) -> dict[str, float]:
        """Nothing."""
        return {}

    def spent(self) -> str:
        """Nothing."""
        return ""

    async def aclose(self) -> None:
        """Nothing to let go of."""


def _sample(prompt_ids: list[int], completion: Completion) -> DesignSample:
    return DesignSample(
        prompt_ids=prompt_ids,
        completion_ids=completion.token_ids,
        logprobs=completion.logprobs,
        decisions=[int(free) for free in completion.free],
        allowed=completion.allowed,
    )
