"""Designing by any OpenAI-compatible server instead of the trained model."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import httpx

from trainer.config import DesignConfig
from trainer.control_tokens import ControlTokens


class EndpointError(RuntimeError):
    """The endpoint refused or failed; the message holds what it said."""


class EndpointDesigner:
    """Chat completions from a server; text only, so that its rows never train."""

    def __init__(
        self, config: DesignConfig, *, temperature: float, timeout_s: float = 300.0
    ) -> None:
        key = os.environ.get(config.endpoint_key_variable, "")
        self._client = httpx.AsyncClient(
            base_url=config.endpoint.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=timeout_s,
        )
        self._model = config.endpoint_model
        self._temperature = temperature
        # The server's tokenizer is not known here.
        self._control = ControlTokens.known()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def complete(
        self, prompts: list[tuple[list[dict[str, Any]], str | None]], *, max_tokens: int
    ) -> list[str]:
        """One completion a (messages, JSON schema or None), in order.

        Raises:
            EndpointError: If the server fails or cannot be reached.
        """
        return list(
            await asyncio.gather(*(self._one(m, schema, max_tokens) for m, schema in prompts))
        )

    async def _one(
        self, messages: list[dict[str, Any]], json_schema: str | None, max_tokens: int
    ) -> str:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{**m, "content": self._control.plain(m["content"])} for m in messages],
            "temperature": self._temperature,
            "max_tokens": max_tokens,
        }
        if json_schema:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "environment", "schema": json.loads(json_schema)},
            }
        try:
            response = await self._client.post("chat/completions", json=body)
            response.raise_for_status()
            return response.json()["choices"][0]["message"]["content"] or ""
        except httpx.HTTPStatusError as error:
            raise EndpointError(
                f"the designer endpoint answered {error.response.status_code}: "
                f"{error.response.text[:400]}"
            ) from error
        except httpx.HTTPError as error:
            raise EndpointError(
                f"the designer endpoint cannot be reached ({error!r}); check design.endpoint"
            ) from error
