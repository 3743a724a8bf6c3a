"""The trained model as a writer of environments: completions, with what trains it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from trainer.chat import ChatFormat
from trainer.environments import DesignSample
from trainer.generation import Completion, GenerationRequest, Generator
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
    """

    def __init__(
        self,
        generator: Generator,
        chat: ChatFormat,
        *,
        temperature: float,
        context_tokens: int,
        explore: float = 0.0,
    ) -> None:
        self._generator = generator
        self._chat = chat
        self._temperature = temperature
        self._context_tokens = context_tokens
        self._explore = explore

    async def complete(
        self,
        requests: Sequence[DesignRequest],
        max_tokens: int,
        done: Callable[[], None] | None = None,
    ) -> list[Answer | None]:
        """One answer a request, in order; a prompt that leaves no room has none but an error."""
        prompts = [self._chat.prompt(request.messages) for request in requests]
        rooms = [self._context_tokens - len(prompt_ids) for prompt_ids in prompts]
        asked = [
            GenerationRequest(
                prompt_ids=prompt_ids,
                max_new_tokens=min(max_tokens, room),
                temperature=self._temperature,
                explore=self._explore if request.json_schema else 0.0,
                grammar=Grammar(json_schema=request.json_schema) if request.json_schema else None,
            )
            for request, prompt_ids, room in zip(requests, prompts, rooms, strict=True)
            if room > 0
        ]
        completions = iter(await asyncio.to_thread(self._generator.generate, asked))
        answers: list[Answer | None] = []
        for prompt_ids, room in zip(prompts, rooms, strict=True):
            if room > 0:
                completion = next(completions)
                text = self._chat.text(completion.token_ids)
                answers.append(Answer(text, _sample(prompt_ids, completion)))
            else:
                error = (
                    f"the prompt has {len(prompt_ids)} tokens and the context only "
                    f"{self._context_tokens}; raise generation.context_tokens"
                )
                answers.append(Answer("", error=error))
            if done is not None:
                done()
        return answers

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
