"""Who writes environments: chance, an endpoint, or a model in this process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from designer import DesignRequest


class Writer(Protocol):
    """Anything that completes the designer's requests."""

    async def complete(self, requests: Sequence[DesignRequest], max_tokens: int) -> list[str]:
        """One completion a request, in order."""

    async def aclose(self) -> None:
        """Let go of what it holds."""


class RandomWriter:
    """Draws specifications evenly: what designing without any model gives."""

    async def complete(self, requests: Sequence[DesignRequest], max_tokens: int) -> list[str]:
        from designer.families import held_out, random_spec, spec_text

        completions = []
        for request in requests:
            generator = random.Random(request.seed)
            spec = random_spec(generator, request.skill)
            while held_out(spec):
                spec = random_spec(generator, request.skill)
            completions.append(spec_text(spec))
        return completions

    async def aclose(self) -> None:
        """Nothing to let go of."""


class EndpointWriter:
    """Asks an OpenAI-compatible server."""

    def __init__(self, url: str, model: str, key_variable: str, temperature: float) -> None:
        from trainer.config import DesignConfig
        from trainer.endpoint import EndpointDesigner

        self._endpoint = EndpointDesigner(
            DesignConfig(endpoint=url, endpoint_model=model, endpoint_key_variable=key_variable),
            temperature=temperature,
        )

    async def complete(self, requests: Sequence[DesignRequest], max_tokens: int) -> list[str]:
        prompts = [(request.messages, request.json_schema) for request in requests]
        return await self._endpoint.complete(prompts, max_tokens=max_tokens)

    async def aclose(self) -> None:
        await self._endpoint.aclose()


class ModelWriter:
    """Samples from a transformers model, under the request's grammar where it has one."""

    def __init__(self, name: str, temperature: float, context_tokens: int, seed: int) -> None:
        """Load the model.

        Raises:
            ModelSourceError: If its weights cannot be had.
        """
        from trainer.chat import ChatFormat
        from trainer.config import ModelConfig
        from trainer.generation import TransformersGenerator
        from trainer.models import load_model

        model, tokenizer = load_model(
            ModelConfig(name=name), context_tokens=context_tokens, seed=seed
        )
        self._generator = TransformersGenerator(model, tokenizer, max_rows=16)
        self._generator.begin(seed)
        self._chat = ChatFormat(tokenizer)
        self._temperature = temperature
        self._context_tokens = context_tokens

    async def complete(self, requests: Sequence[DesignRequest], max_tokens: int) -> list[str]:
        from trainer.generation import GenerationRequest
        from trainer.grammar import Grammar

        asked = []
        for request in requests:
            prompt_ids = self._chat.prompt(request.messages)
            room = self._context_tokens - len(prompt_ids)
            schema = request.json_schema
            asked.append(
                GenerationRequest(
                    prompt_ids=prompt_ids,
                    max_new_tokens=max(1, min(max_tokens, room)),
                    temperature=self._temperature,
                    grammar=Grammar(json_schema=schema) if schema else None,
                )
            )
        completions = await asyncio.to_thread(self._generator.generate, asked)
        return [self._chat.text(completion.token_ids) for completion in completions]

    async def aclose(self) -> None:
        """Nothing to let go of."""
