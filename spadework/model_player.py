"""A model behind a server of OpenAI's chat protocol that plays one episode, a turn at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from spadework import console
from spadework.console import CommandError
from trainer.conversations import Conversation, ConversationSettings
from trainer.endpoint import Endpoint, EndpointError
from trainer.endpoint_config import EndpointConfig


class ModelPlayer:
    """Asks the server and waits: for commands that are not asynchronous.

    Args:
        config: The server.
        settings: How it is asked.
        temperature: Of sampling.
    """

    def __init__(
        self, config: EndpointConfig, settings: ConversationSettings, temperature: float
    ) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._endpoint = Endpoint(config, temperature=temperature)

    def policy(
        self, observation: str, tools: Sequence[dict[str, Any]]
    ) -> Callable[[str, dict[str, Any], int], str]:
        """Who plays an episode that starts so."""
        conversation = Conversation(self._endpoint, self._settings, observation, tools)

        def act(observation: str, info: dict[str, Any], turn: int) -> str:
            if turn:
                conversation.observe(observation)
            try:
                return self._runner.run(conversation.act())
            except EndpointError as error:
                raise CommandError(str(error)) from error

        return act

    def close(self) -> None:
        """Say what it cost, and close the connections."""
        console.announce(f"endpoint: {self._endpoint.spent()}")
        self._runner.run(self._endpoint.aclose())
        self._runner.close()
