"""What may be spent on an endpoint, and what was: a bound that is never passed.

A request is sent only if its dearest outcome still fits in: the prompt at one token a byte,
which no tokenizer of bytes exceeds, and the longest completion. What it did not use comes
back with its answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer.endpoint_config import EndpointConfig

# Tokens that a chat template writes around a message, and before all of them, at most.
MESSAGE_TOKENS = 16
TEMPLATE_TOKENS = 64
# What it says about how tools are called, where there are any.
TOOL_TOKENS = 512


def most_prompt_tokens(
    messages: Sequence[dict[str, Any]],
    json_schema: str | None = None,
    tools: Sequence[dict[str, Any]] = (),
) -> int:
    """An upper bound: tokenizers of bytes write no more than one token a byte.

    A schema counts as well, since there are servers that write it into the prompt.
    """
    texts = sum(len(str(message["content"] or "").encode()) for message in messages)
    called = [message["tool_calls"] for message in messages if "tool_calls" in message]
    around = TEMPLATE_TOKENS + MESSAGE_TOKENS * len(messages)
    around += TOOL_TOKENS if tools else 0
    written = (json.dumps(value) for value in (*called, *tools))
    texts += sum(len(text.encode()) for text in written)
    return texts + around + len((json_schema or "").encode())


class BudgetSpentError(RuntimeError):
    """Nothing more may be asked: the next request could pass the budget."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one or more requests.

    Attributes:
        requests: Answers, and requests whose answer was lost.
        tokens_in: Prompt tokens.
        tokens_out: Completion tokens.
        assumed: Of the requests, those whose usage the server did not tell: they count as
            the most that they can have been.
    """

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    assumed: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.tokens_in + self.tokens_out

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.assumed + other.assumed,
        )


class Budget:
    """Keeps what is spent plus what is in flight within the bounds of a configuration.

    Args:
        config: Bounds and prices.
        spent: What was spent before.
    """

    def __init__(self, config: EndpointConfig, spent: Usage | None = None) -> None:
        self.spent = spent or Usage()
        self._config = config
        self._reserved: list[Usage] = []
        self._changed = asyncio.Condition()

    @property
    def money(self) -> float:
        """Money spent so far."""
        return self._config.money(self.spent.tokens_in, self.spent.tokens_out)

    async def reserve(self, most: Usage) -> Usage:
        """Put the most that a request can cost aside.

        Waits while requests in flight might leave enough over.

        Raises:
            BudgetSpentError: If not enough is left, with nothing in flight.
        """
        async with self._changed:
            while not self._fits(most):
                if not self._reserved:
                    raise BudgetSpentError(f"the budget is spent: {self.describe()}")
                await self._changed.wait()
            self._reserved.append(most)
            return most

    async def settle(self, reserved: Usage, used: Usage) -> None:
        """Replace what was put aside by what was used."""
        async with self._changed:
            self._reserved.remove(reserved)
            self.spent += used
            self._changed.notify_all()

    def describe(self) -> str:
        """What was spent, of what, for people."""
        spent, config = self.spent, self._config
        text = f"{spent.requests} requests, {spent.tokens_in:,} + {spent.tokens_out:,} tokens"
        if config.budget_tokens:
            text += f" of {config.budget_tokens:,}"
        if config.price_in or config.price_out:
            text += f", {self.money:.4f} of money"
            if config.budget_money:
                text += f" of {config.budget_money:g}"
        return text + (f" ({spent.assumed} assumed)" if spent.assumed else "")

    def _fits(self, more: Usage) -> bool:
        total = sum(self._reserved, self.spent) + more
        config = self._config
        if config.budget_tokens and total.tokens > config.budget_tokens:
            return False
        money = config.money(total.tokens_in, total.tokens_out)
        return not config.budget_money or money <= config.budget_money
