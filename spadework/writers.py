"""Who writes environments: chance, an endpoint, or a model in this process."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainer.protocols import Answer

if TYPE_CHECKING:
    from designer import DesignRequest
    from trainer.endpoint import Endpoint
    from trainer.endpoint_config import EndpointConfig
    from trainer.writers import ModelWriter

# Draws of a specification that is not kept for evaluation; of a narrow grammar all may be.
HELD_OUT_DRAWS = 100


class Writer(Protocol):
    """Anything that completes the designer's requests, and can be closed."""

    async def complete(
        self,
        requests: Sequence[DesignRequest],
        max_tokens: int,
        done: Callable[[], None] | None = None,
    ) -> list[Answer | None]:
        """One answer a request, in order; None where the budget did not reach."""

    def spent(self) -> str:
        """What it cost so far, for people; empty where it costs nothing."""

    async def aclose(self) -> None:
        """Let go of what it holds."""


class RandomWriter:
    """Draws specifications evenly: what designing without any model gives."""

    async def complete(
        self,
        requests: Sequence[DesignRequest],
        max_tokens: int,
        done: Callable[[], None] | None = None,
    ) -> list[Answer | None]:
        from designer.families import draw_spec, held_out, spec_text

        answers: list[Answer | None] = []
        for request in requests:
            rng = random.Random(request.seed)
            schema = json.loads(request.json_schema or "{}")
            for _ in range(HELD_OUT_DRAWS):
                spec = draw_spec(schema, rng)
                if not held_out(spec):
                    break
            answers.append(Answer(spec_text(spec)))
            if done is not None:
                done()
        return answers

    def spent(self) -> str:
        """Nothing."""
        return ""

    async def aclose(self) -> None:
        """Nothing to let go of."""


def endpoint_writer(config: EndpointConfig, temperature: float, folder: Path) -> Endpoint:
    """A server that writes; its answers are kept in a folder.

    Raises:
        LedgerError: If the folder holds a broken ledger.
    """
    from trainer.endpoint import Endpoint
    from trainer.ledger import LEDGER_FILE, Ledger

    return Endpoint(config, temperature=temperature, ledger=Ledger(folder / LEDGER_FILE))


def model_writer(name: str, temperature: float, context_tokens: int, seed: int) -> ModelWriter:
    """A transformers model in this process.

    Raises:
        ModelSourceError: If its weights cannot be had.
    """
    from trainer.chat import ChatFormat
    from trainer.config import ModelConfig
    from trainer.generation_queue import GenerationQueue
    from trainer.models import load_model
    from trainer.transformers_engine import TransformersEngine
    from trainer.writers import ModelWriter

    model, tokenizer = load_model(ModelConfig(name=name), context_tokens=context_tokens, seed=seed)
    generator = GenerationQueue(TransformersEngine(model, tokenizer, max_rows=16))
    generator.begin(seed)
    return ModelWriter(
        generator,
        ChatFormat(tokenizer),
        temperature=temperature,
        context_tokens=context_tokens,
    )
