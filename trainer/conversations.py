"""An episode as messages, played by a model behind a server of OpenAI's chat protocol.

Text only: what was sampled is not known by its tokens, so such plays measure and never train.
Nothing here needs torch.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer.endpoint import ChatRequest, Endpoint
from trainer.tagged_calls import split_calls
from trainer.thinking import CLOSE, OPEN, without_thinking

SEED_BITS = 31


@dataclass(frozen=True)
class ConversationSettings:
    """How a model is asked for actions.

    Attributes:
        max_action_tokens: Longest message, thoughts included.
        system_prompt: System message; empty for none.
        native_tools: Whether tools are offered in the protocol's own field, and called that way;
            else by the sandbox's tags, of which the environment tells.
        constrain_actions: Whether only actions that the environment lists may be written.
        seed: Of the sampling.
    """

    max_action_tokens: int
    system_prompt: str = ""
    native_tools: bool = False
    constrain_actions: bool = False
    seed: int = 0


class Conversation:
    """One episode.

    Args:
        endpoint: The model.
        settings: How it is asked.
        observation: The first.
        tools: Schemas that the environment publishes.
        stream: Names its random numbers among those of other episodes.

    Attributes:
        tokens: That the model wrote so far, as the server counts them.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        settings: ConversationSettings,
        observation: str,
        tools: Sequence[dict[str, Any]] = (),
        stream: str = "",
    ) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._stream = stream
        self._tools = list(tools) if settings.native_tools else []
        self._messages: list[dict[str, Any]] = []
        if settings.system_prompt:
            self._messages.append({"role": "system", "content": settings.system_prompt})
        self._messages.append({"role": "user", "content": observation})
        self._turn = 0
        self._unanswered: list[str] = []
        self._refused = False
        self.tokens = 0

    async def act(self, actions: tuple[str, ...] = ()) -> str:
        """The next action; none, as of a player who says nothing, once a request was refused.

        A server refuses, say, what is longer than the model's context, and will again.

        Args:
            actions: Valid ones, where the environment lists any.

        Raises:
            EndpointError: If the server fails, or the budget is spent.
        """
        if self._refused:
            return ""
        drawn = random.Random(f"{self._settings.seed}/{self._stream}/{self._turn}")
        reply = await self._endpoint.chat(
            ChatRequest(
                self._messages,
                self._settings.max_action_tokens,
                seed=drawn.getrandbits(SEED_BITS),
                tools=self._tools,
                choices=actions if self._settings.constrain_actions else (),
            )
        )
        self._turn += 1
        self._refused = bool(reply.refusal)
        self.tokens += reply.tokens_out
        said = _said(reply.text)
        return self._called(said) if self._tools else self._told(said)

    def observe(self, observation: str) -> None:
        """Take in what the environment answered."""
        if not self._unanswered:
            self._messages.append({"role": "user", "content": observation})
        # An environment answers all calls of an action together.
        for call_id in self._unanswered:
            self._messages.append(
                {"role": "tool", "tool_call_id": call_id, "content": observation}
            )
            observation = "See the first result."
        self._unanswered = []

    def _told(self, said: str) -> str:
        self._messages.append({"role": "assistant", "content": said})
        return said

    def _called(self, said: str) -> str:
        """Note a message as the protocol has it, and give it as the environment reads it."""
        rest, calls = split_calls(said)
        if not calls:
            answers = said and "<answer>" not in said and "<tool_call>" not in said
            self._messages.append({"role": "assistant", "content": said})
            return f"<answer>{said}</answer>" if answers else said
        # Names of our own: those of the server are not in the ledger.
        self._unanswered = [f"call_{self._turn}_{number}" for number in range(len(calls))]
        self._messages.append(
            {
                "role": "assistant",
                "content": rest,
                "tool_calls": [
                    {
                        "id": call_id,
                        "type": "function",
                        "function": {
                            "name": call["name"],
                            "arguments": json.dumps(call["arguments"]),
                        },
                    }
                    for call_id, call in zip(self._unanswered, calls, strict=True)
                ],
            }
        )
        return said


def _said(text: str) -> str:
    """What a message says after its thought, which some servers send without its first tag."""
    begun = CLOSE in text and OPEN not in text.partition(CLOSE)[0]
    return without_thinking(text, begun=begun).strip()
