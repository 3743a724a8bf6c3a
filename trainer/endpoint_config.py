"""Settings of an OpenAI-compatible server, and what may be spent on it."""

from __future__ import annotations

import json
from dataclasses import dataclass

MILLION = 1_000_000
LENGTH_PARAMETERS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True)
class EndpointConfig:
    """A server that speaks OpenAI's chat protocol.

    Attributes:
        url: Base URL (`.../v1`) of the server. In a run it designs instead of the trained
            model; what it writes never trains. Empty for none.
        model: Name of the model there.
        key_variable: Environment variable that holds its key; unset means no key.
        length_parameter: What the server calls the longest completion: `max_tokens`, or
            `max_completion_tokens` where it refuses that.
        extra: Further fields of each request, as a JSON object: what a server knows beyond the
            protocol, such as {"chat_template_kwargs": {"enable_thinking": false}}.
        structured_outputs: Whether the server is a vLLM, which takes grammars by its own field
            `structured_outputs`; needed to constrain actions.
        concurrency: Requests in flight at once.
        requests_per_minute: Requests in any 60 s; 0 for no limit.
        tokens_per_minute: Tokens, prompts and completions, in any 60 s; 0 for no limit.
        timeout_s: Longest wait for one answer.
        attempts: Times one request is sent before the server counts as failed.
        backoff_first_s: Wait before the second attempt; doubles with each further one.
        backoff_most_s: Longest such wait.
        retry_after_most_s: Longest wait that the server may ask for by Retry-After; a longer
            one ends the run.
        budget_tokens: Tokens that may be spent, prompts and completions; 0 for no bound.
        budget_money: Money that may be spent, in the currency of the prices; 0 for no bound.
        price_in: Price of a million prompt tokens.
        price_out: Price of a million completion tokens.
    """

    url: str = ""
    model: str = ""
    key_variable: str = "OPENAI_API_KEY"
    length_parameter: str = "max_tokens"
    extra: str = ""
    structured_outputs: bool = False
    concurrency: int = 8
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    timeout_s: float = 300.0
    attempts: int = 6
    backoff_first_s: float = 1.0
    backoff_most_s: float = 60.0
    retry_after_most_s: float = 600.0
    budget_tokens: int = 0
    budget_money: float = 0.0
    price_in: float = 0.0
    price_out: float = 0.0

    def problem(self) -> str:
        """What cannot work among the settings, in a sentence; empty if nothing."""
        if bool(self.url) != bool(self.model):
            return "endpoint.url and endpoint.model go together; set both"
        if self.length_parameter not in LENGTH_PARAMETERS:
            names = " or ".join(LENGTH_PARAMETERS)
            return f"endpoint.length_parameter is {self.length_parameter!r}; it must be {names}"
        if self.budget_money and not (self.price_in or self.price_out):
            return "endpoint.budget_money needs endpoint.price_in and endpoint.price_out"
        try:
            extra = json.loads(self.extra or "{}")
        except ValueError as error:
            return f"endpoint.extra is no JSON: {error}"
        if not isinstance(extra, dict):
            return f"endpoint.extra is {self.extra}; it must be a JSON object"
        return ""

    def money(self, tokens_in: int, tokens_out: int) -> float:
        """What so many tokens cost; 0 where no price is known."""
        return (tokens_in * self.price_in + tokens_out * self.price_out) / MILLION


ENDPOINT_MINIMUM = {
    "endpoint.concurrency": 1,
    "endpoint.requests_per_minute": 0,
    "endpoint.tokens_per_minute": 0,
    "endpoint.timeout_s": 0.001,
    "endpoint.attempts": 1,
    "endpoint.backoff_first_s": 0,
    "endpoint.backoff_most_s": 0,
    "endpoint.retry_after_most_s": 0,
    "endpoint.budget_tokens": 0,
    "endpoint.budget_money": 0,
    "endpoint.price_in": 0,
    "endpoint.price_out": 0,
}
