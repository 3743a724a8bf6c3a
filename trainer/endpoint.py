"""Completions of any server that speaks OpenAI's chat protocol: designs, hints, and plays.

Bounded in every direction: requests in flight, requests and tokens a minute, attempts, waits,
tokens and money. What was answered is kept in a ledger, so that a run that ends here, for
whatever reason, goes on where it was.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
from openai.types.chat import ChatCompletionMessage

from trainer.budget import Budget, BudgetSpentError, Usage, most_prompt_tokens
from trainer.control_tokens import ControlTokens
from trainer.endpoint_config import EndpointConfig
from trainer.ledger import Ledger
from trainer.protocols import Answer, DesignRequest
from trainer.rate import RateLimit
from trainer.tagged_calls import tagged_call

# Answers that another attempt may turn out better: timeouts, conflicts, limits, faults.
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# Answers that are about the request and not about the server.
_REFUSED = frozenset({400, 413, 422})
# Out of money there, which waiting does not mend.
_NO_QUOTA = "insufficient_quota"
_TOO_LONG = "context_length_exceeded"
# Of what a server said, in a message of ours.
_QUOTED_CHARACTERS = 400


class EndpointError(RuntimeError):
    """The endpoint refused or failed; the message holds what it said."""


class _RetryError(Exception):
    """An attempt failed; another may do better, `after_s` from now."""

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


@dataclass(frozen=True)
class ChatRequest:
    """One message that is wanted of a model.

    Attributes:
        messages: Of the protocol, earlier tool calls and their results included.
        max_tokens: Longest completion.
        seed: Of the sampling; part of what names the request in the ledger.
        json_schema: That the answer must follow; None for any text.
        tools: Schemas of what the model may call.
        choices: Whole texts, one of which it must be; empty for anything. Only for servers with
            `endpoint.structured_outputs`.
    """

    messages: Sequence[dict[str, Any]]
    max_tokens: int
    seed: int = 0
    json_schema: str | None = None
    tools: Sequence[dict[str, Any]] = ()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    """What came of a request.

    Attributes:
        text: The message; calls of tools in the sandbox's tags, after the rest of it.
        tokens_out: Tokens that it had.
        refusal: Why the server does not take the request, where that is for the request to bear.
    """

    text: str
    tokens_out: int = 0
    refusal: str = ""


@dataclass(frozen=True)
class _Sent:
    """What became of a request that was sent.

    Attributes:
        usage: What it cost.
        text: What it was answered with.
        refusal: Why the server does not take it, where that is for the request to bear.
        error: What is to be raised instead.
    """

    usage: Usage
    text: str | None = None
    refusal: str = ""
    error: Exception | None = None


class Endpoint:
    """A server of others; what it gives is text, without the tokens that training needs.

    Args:
        config: The server and the bounds.
        temperature: Of sampling.
        ledger: Keeps the answers; None for memory alone. What it holds already counts as
            spent.
    """

    def __init__(
        self, config: EndpointConfig, *, temperature: float, ledger: Ledger | None = None
    ) -> None:
        self._config = config
        self._key = os.environ.get(config.key_variable, "")
        self._temperature = temperature
        self._ledger = ledger or Ledger()
        self.budget = Budget(config, self._ledger.usage)
        # The client wants a key; where there is none, no header tells it.
        self._headers = {} if self._key else {"Authorization": openai.omit}
        # Attempts are ours: the limits and the budget have to know of each.
        self._client = openai.AsyncOpenAI(
            base_url=config.url,
            api_key=self._key or "none",
            max_retries=0,
            timeout=config.timeout_s,
        )
        self._slots = asyncio.Semaphore(config.concurrency)
        self._requests = RateLimit(config.requests_per_minute)
        self._tokens = RateLimit(config.tokens_per_minute)
        # Until then nobody asks: the server said so.
        self._quiet_until_s = 0.0
        self._answered = False
        self._failure: EndpointError | None = None
        # Spreads attempts that failed together; no result depends on it.
        self._jitter = random.Random()
        # The server's tokenizer is not known here.
        self._control = ControlTokens.known()

    def metrics(self) -> dict[str, float]:
        """What was spent under this ledger."""
        spent = self.budget.spent
        return {
            "endpoint/requests": spent.requests,
            "endpoint/tokens_in": spent.tokens_in,
            "endpoint/tokens_out": spent.tokens_out,
            "endpoint/assumed": spent.assumed,
            "endpoint/money": self.budget.money,
        }

    def spent(self) -> str:
        """What was spent under this ledger, for people."""
        return self.budget.describe()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def complete(
        self,
        requests: Sequence[DesignRequest],
        max_tokens: int,
        done: Callable[[], None] | None = None,
    ) -> list[Answer | None]:
        """One answer a request, in order; None where the budget did not reach.

        What the ledger holds of earlier runs is not asked again.

        Args:
            requests: Messages, and a JSON schema where the answer must follow one.
            max_tokens: Longest completion.
            done: Called for each answer.

        Raises:
            EndpointError: If the server fails or cannot be reached. Answers that were there
                by then are in the ledger.
        """

        async def one(request: DesignRequest) -> Answer | None:
            reply = await self._reply(
                ChatRequest(request.messages, max_tokens, request.seed, request.json_schema)
            )
            if done is not None:
                done()
            return None if reply is None else Answer(reply.text, error=reply.refusal)

        self._failure = None
        # Nobody is cancelled when one fails: what is in flight is paid for, and is kept.
        answers = await asyncio.gather(*map(one, requests), return_exceptions=True)
        if self._failure is not None:
            raise self._failure
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def chat(self, request: ChatRequest) -> Reply:
        """One message; many may be asked for at once.

        Raises:
            EndpointError: If the server fails or cannot be reached, or the budget does not reach.
        """
        reply = await self._reply(request)
        if reply is None:
            self._failure = EndpointError(
                f"the budget is spent: {self.spent()}; raise endpoint.budget_tokens or "
                "endpoint.budget_money, and what a ledger holds is not paid for again"
            )
            raise self._failure
        return reply

    async def _reply(self, request: ChatRequest) -> Reply | None:
        body = self._body(request)
        key = self._ledger.key(body)
        known = self._ledger.answer(key)
        if known is not None:
            return Reply(known.text, known.tokens_out)
        prompt_tokens = most_prompt_tokens(body["messages"], request.json_schema, request.tools)
        most = Usage(1, prompt_tokens, request.max_tokens)
        async with self._slots:
            return await self._ask(key, body, most)

    async def _ask(self, key: str, body: dict[str, Any], most: Usage) -> Reply | None:
        for attempt in range(1, self._config.attempts + 1):
            if self._failure is not None:
                raise self._failure
            try:
                return await self._attempt(key, body, most)
            except BudgetSpentError:
                return None
            except _RetryError as error:
                if attempt == self._config.attempts:
                    self._failure = EndpointError(f"{error}, {attempt} times; check endpoint.url")
                    raise self._failure from error
                await asyncio.sleep(self._backoff_s(attempt, error.after_s))
            except EndpointError as error:
                self._failure = error
                raise
        raise AssertionError("the last attempt returns or raises")

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        plain = self._control.plain_everywhere
        body: dict[str, Any] = {
            "model": self._config.model,
            "messages": [{**m, "content": plain(m["content"])} for m in request.messages],
            "temperature": self._temperature,
            "seed": request.seed,
            self._config.length_parameter: request.max_tokens,
        }
        # Fields that the protocol has not are for the client to pass on.
        extra: dict[str, Any] = {}
        if request.tools:
            body["tools"] = plain(list(request.tools))
        if request.choices:
            extra["structured_outputs"] = {"choice": list(request.choices)}
        extra |= json.loads(self._config.extra or "{}")
        if extra:
            body["extra_body"] = extra
        if request.json_schema:
            schema = {"name": "environment", "schema": json.loads(request.json_schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    async def _attempt(self, key: str, body: dict[str, Any], most: Usage) -> Reply:
        """Send a request once.

        Raises:
            BudgetSpentError: If the budget does not reach for it.
            _RetryError: If another attempt may be answered.
            EndpointError: If none will be.
        """
        while (wait_s := self._quiet_until_s - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        await self._requests.take(1)
        taken = await self._tokens.take(most.tokens)
        try:
            reserved = await self.budget.reserve(most)
        except BudgetSpentError:
            self._tokens.correct(taken, 0)
            raise
        # Unless we learn better, it was paid for, and as dear as it could be.
        sent = _Sent(Usage(1, most.tokens_in, most.tokens_out, assumed=1))
        try:
            sent = await self._send(body, most)
        finally:
            if sent.usage.requests:
                self._ledger.record(key, sent.text, sent.usage)
            self._tokens.correct(taken, sent.usage.tokens)
            await self.budget.settle(reserved, sent.usage)
        if sent.error is not None:
            raise sent.error
        return Reply(sent.text or "", sent.usage.tokens_out, sent.refusal)

    async def _send(self, body: dict[str, Any], most: Usage) -> _Sent:
        lost = Usage(1, most.tokens_in, most.tokens_out, assumed=1)
        try:
            async with asyncio.timeout(self._config.timeout_s):
                answer = await self._client.chat.completions.create(
                    **body, extra_headers=self._headers
                )
        except (TimeoutError, openai.APITimeoutError):
            seconds = f"{self._config.timeout_s:g} s"
            return _Sent(lost, error=_RetryError(f"the endpoint did not answer in {seconds}"))
        except openai.APIStatusError as error:
            return self._refused(error)
        except openai.APIConnectionError as error:
            unsent = isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)
            why = error.__cause__ or error
            said = f"the endpoint {self._config.url} cannot be reached ({why!r})"
            if unsent and not self._answered:
                # Not a fault that passes, as likely as not, but a wrong address.
                return _Sent(Usage(), error=EndpointError(f"{said}; check endpoint.url"))
            return _Sent(Usage() if unsent else lost, error=_RetryError(said))
        except (openai.APIResponseValidationError, ValueError) as error:
            return _Sent(lost, error=EndpointError(f"no answer of the protocol: {error!r}"))
        choices = getattr(answer, "choices", None)
        if not choices:
            said = str(answer)[:_QUOTED_CHARACTERS]
            return _Sent(
                lost,
                error=EndpointError(
                    f"{self._config.url} does not speak OpenAI's chat protocol: it answered "
                    f"{said!r}; the base URL usually ends in /v1"
                ),
            )
        self._answered = True
        # JSON can hold halves of characters, which no file and no other request could.
        text = _text(choices[0].message).encode("utf-8", "replace").decode()
        usage = answer.usage
        if usage is None:
            written = min(most.tokens_out, len(text.encode()))
            return _Sent(Usage(1, most.tokens_in, written, assumed=1), text)
        return _Sent(Usage(1, usage.prompt_tokens, usage.completion_tokens), text)

    def _refused(self, error: openai.APIStatusError) -> _Sent:
        """What an answer that is no success means; such answers are free."""
        status = error.status_code
        text = error.response.text[:_QUOTED_CHARACTERS]
        said = f"the endpoint answered {status}: {text}"
        if self._key:
            said = said.replace(self._key, "(the key)")
        if status in _RETRIED and error.code != _NO_QUOTA:
            after_s = _retry_after_s(error.response.headers)
            if after_s > self._config.retry_after_most_s:
                wait = f"it asks for a wait of {after_s:.0f} s"
                return _Sent(Usage(), error=EndpointError(f"{said}; {wait}: too long"))
            if status == 429:
                self._quiet_until_s = max(self._quiet_until_s, time.monotonic() + after_s)
            return _Sent(Usage(), error=_RetryError(said, after_s))
        if error.code == _TOO_LONG or (status in _REFUSED and self._answered):
            # It takes others: this one is at fault, and not the settings.
            return _Sent(Usage(), refusal=said)
        return _Sent(Usage(), error=EndpointError(said))

    def _backoff_s(self, attempt: int, asked_s: float) -> float:
        config = self._config
        wait_s = min(config.backoff_first_s * 2 ** (attempt - 1), config.backoff_most_s)
        # Between half of it and all of it.
        return max(asked_s, wait_s * (1 - self._jitter.random() / 2))


def _text(message: ChatCompletionMessage) -> str:
    """A message as one text: its calls of tools in tags, as environments read them."""
    calls = [call.function for call in message.tool_calls or () if call.type == "function"]
    tagged = [tagged_call(call.name, _arguments(call.arguments)) for call in calls]
    return "\n".join([message.content, *tagged] if message.content else tagged)


def _arguments(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text  # the environment says what is wrong with it


def _retry_after_s(headers: httpx2.Headers) -> float:
    """Seconds that the server asks to wait: a number, or a date; 0 if it does not ask."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0
