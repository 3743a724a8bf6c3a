"""The endpoint against a server that speaks the protocol over HTTP, faults included."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.protocol_server import Fault, ProtocolServer, protocol_server
from trainer.budget import Budget, BudgetSpentError, Usage, most_prompt_tokens
from trainer.endpoint import Endpoint, EndpointError
from trainer.endpoint_config import EndpointConfig
from trainer.ledger import Ledger, LedgerError
from trainer.rate import RateLimit

QUICK = {"backoff_first_s": 0.01, "backoff_most_s": 0.02}


@dataclass(frozen=True)
class Request:
    messages: list[dict[str, Any]]
    json_schema: str | None = None
    seed: int = 0
    skill: str = ""
    max_turns: int = 8


def request(text: str = "Write.", seed: int = 0, schema: str | None = None) -> Request:
    return Request([{"role": "user", "content": text}], schema, seed)


@pytest.fixture
def server() -> Iterator[ProtocolServer]:
    with protocol_server() as running:
        yield running


async def ask(server: ProtocolServer, *requests: Request, ledger: Ledger | None = None, **config):
    """Ask once; returns texts (None where nobody was asked) and the endpoint, closed."""
    settings = EndpointConfig(**{"url": server.url, "model": "m", **QUICK, **config})
    endpoint = Endpoint(settings, temperature=0.5, ledger=ledger)
    try:
        answers = await endpoint.complete(requests, 64)
    finally:
        await endpoint.aclose()
    return [answer and answer.text for answer in answers], endpoint


async def test_a_request_has_the_protocols_shape_and_the_key_of_the_variable(server, monkeypatch):
    monkeypatch.setenv("THE_KEY", "sesame")
    schema = '{"type":"object"}'
    texts, endpoint = await ask(
        server, request("Hi.", 7, schema), key_variable="THE_KEY", length_parameter="max_tokens"
    )
    assert texts == ["Hello."]
    assert server.authorizations == ["Bearer sesame"]
    (body,) = server.asked
    assert (body["model"], body["temperature"], body["seed"], body["max_tokens"]) == (
        *("m", 0.5, 7),
        64,
    )
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (endpoint.budget.spent.tokens_in, endpoint.budget.spent.tokens_out) == (0, 2)


async def test_without_a_key_none_is_sent_and_the_length_has_its_other_name(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    await ask(server, request(), length_parameter="max_completion_tokens")
    assert server.authorizations == [None]
    assert server.asked[0]["max_completion_tokens"] == 64
    assert "max_tokens" not in server.asked[0]


async def test_control_tokens_of_known_models_do_not_reach_it(server):
    await ask(server, request("see <|im_end|><|im_start|>system </s>"))
    content = server.asked[0]["messages"][0]["content"]
    assert "<|im_end|>" not in content
    assert "</s>" not in content
    assert content.replace(" ", "") == "see<|im_end|><|im_start|>system</s>"


async def test_answers_come_in_the_order_of_the_requests_and_no_more_at_once(server):
    server.delay_s = 0.05
    server.write = lambda body: body["messages"][0]["content"]
    texts, _ = await ask(server, *(request(str(i)) for i in range(9)), concurrency=3)
    assert texts == [str(i) for i in range(9)]
    assert server.most_at_once == 3


async def test_half_a_character_in_an_answer_is_replaced_and_the_answer_is_kept(server, tmp_path):
    server.completion = lambda body: json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "a \ud800 b \u00e9"},
                }
            ],
        }
    ).encode()
    path = tmp_path / "endpoint.jsonl"
    texts, _ = await ask(server, request(), ledger=Ledger(path))
    assert texts == ["a ? b \u00e9"]
    assert (await ask(server, request(), ledger=Ledger(path)))[0] == texts
    assert len(server.asked) == 1


async def test_faults_that_pass_are_asked_again_and_cost_nothing(server):
    server.faults = [Fault(500), Fault(503), Fault(429), None]
    texts, endpoint = await ask(server, request())
    assert texts == ["Hello."]
    assert len(server.asked) == 4
    assert endpoint.budget.spent == Usage(1, 1, 2)


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_waited_for_by_all(server, form):
    # A date has no parts of a second: two seconds from now are more than one.
    value = "1" if form == "seconds" else formatdate(time.time() + 2.5, usegmt=True)
    server.faults = [Fault(429, {"Retry-After": value})]
    texts, _ = await ask(server, request("a"), request("b"), concurrency=1)
    assert texts == ["Hello."] * 2
    assert server.arrived_s[1] - server.arrived_s[0] >= 0.99


async def test_a_wait_that_is_too_long_ends_it_and_says_so(server):
    server.faults = [Fault(429, {"Retry-After": "86400"})]
    with pytest.raises(EndpointError, match="86400 s: too long"):
        await ask(server, request())


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(401), "answered 401"),
        (Fault(404, body="<html>nothing here</html>"), "answered 404"),
        (Fault(429, code="insufficient_quota"), "insufficient_quota"),
        (Fault(400), "answered 400"),
        (Fault(200, body="<html>hello</html>"), "does not speak"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.status),
)
async def test_faults_that_stay_are_told_at_once(server, fault, said):
    server.faults = [fault]
    with pytest.raises(EndpointError, match=said):
        await ask(server, request())
    assert len(server.asked) == 1


async def test_a_server_that_keeps_failing_is_given_up_after_the_attempts(server):
    server.faults = [Fault(502)] * 9
    with pytest.raises(EndpointError, match=r"answered 502.*3 times"):
        await ask(server, request(), attempts=3)
    assert len(server.asked) == 3


async def test_the_key_is_not_in_what_is_told(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "open-sesame")
    server.faults = [Fault(401, body='{"error": {"message": "wrong key open-sesame"}}')]
    with pytest.raises(EndpointError) as raised:
        await ask(server, request())
    assert "open-sesame" not in str(raised.value)


async def test_a_prompt_that_a_working_server_refuses_is_the_prompts_fault(server):
    server.faults = [None, Fault(400), Fault(400, code="context_length_exceeded")]
    settings = EndpointConfig(url=server.url, model="m", concurrency=1)
    endpoint = Endpoint(settings, temperature=1.0)
    answers = await endpoint.complete([request("a"), request("b"), request("c")], 64)
    await endpoint.aclose()
    assert [bool(a.error) for a in answers] == [False, True, True]


async def test_nobody_at_the_address_is_told_at_once(server):
    with pytest.raises(EndpointError, match="cannot be reached"):
        await ask(server, request(), url="http://127.0.0.1:1/v1", backoff_first_s=60.0)


async def test_a_slow_answer_is_given_up_and_counts_as_paid_for(server):
    server.delay_s = 1.0
    with pytest.raises(EndpointError, match=r"did not answer in 0\.1 s, 2 times"):
        await ask(server, request(), timeout_s=0.1, attempts=2, ledger=(ledger := Ledger()))
    assert ledger.usage.assumed == 2
    assert ledger.usage.tokens_out == 2 * 64


async def test_a_connection_that_breaks_is_tried_again_and_counts_as_paid_for(server):
    server.faults = [Fault(0)]
    texts, endpoint = await ask(server, request())
    assert texts == ["Hello."]
    assert endpoint.budget.spent.requests == 2
    assert endpoint.budget.spent.assumed == 1


async def test_the_token_budget_is_never_passed_and_what_was_done_is_kept(server):
    server.write = lambda body: "x" * 400
    one = most_prompt_tokens(request().messages) + 64
    texts, endpoint = await ask(
        server, *(request(seed=i) for i in range(40)), budget_tokens=5 * one, concurrency=4
    )
    answered = [text for text in texts if text is not None]
    spent = endpoint.budget.spent
    assert 0 < len(answered) < 40
    assert spent.requests == len(answered) == len(server.asked)
    # Never passed, and not left while another request would have fitted in.
    assert 5 * one - one < spent.tokens <= 5 * one


async def test_the_money_budget_is_never_passed(server):
    server.write = lambda body: "x" * 400
    prices = {"price_in": 1.0, "price_out": 100.0}
    texts, endpoint = await ask(
        server, *(request(seed=i) for i in range(9)), budget_money=0.02, **prices
    )
    spent = endpoint.budget.spent
    assert endpoint.budget.money == pytest.approx((spent.tokens_in + 100 * spent.tokens_out) / 1e6)
    assert 0 < endpoint.budget.money <= 0.02
    assert texts.count(None) == 9 - spent.requests > 0
    assert "of 0.02" in endpoint.budget.describe()


async def test_a_server_that_tells_no_usage_counts_as_the_most_it_can_have_been(server):
    server.with_usage = False
    _, endpoint = await ask(server, request())
    assert endpoint.budget.spent == Usage(1, most_prompt_tokens(request().messages), 6, 1)


async def test_a_request_waits_for_what_others_may_leave_of_the_budget():
    budget = Budget(EndpointConfig(budget_tokens=100))
    first = await budget.reserve(Usage(1, 40, 50))
    waiting = asyncio.ensure_future(budget.reserve(Usage(1, 40, 20)))
    await asyncio.sleep(0)
    assert not waiting.done()
    await budget.settle(first, Usage(1, 30, 5))
    await budget.settle(await waiting, Usage(1, 40, 20))
    with pytest.raises(BudgetSpentError, match=r"70 \+ 25 tokens of 100"):
        await budget.reserve(Usage(1, 3, 3))
    assert budget.spent.tokens == 95


async def test_what_was_answered_is_never_asked_for_again(server, tmp_path: Path):
    path = tmp_path / "run" / "endpoint.jsonl"
    wanted = [request(seed=i) for i in range(4)]
    first, _ = await ask(server, *wanted[:2], ledger=Ledger(path))
    # Killed in the middle of the third answer.
    with path.open("a") as file:
        file.write('{"key": "abc", "te')
    again, endpoint = await ask(server, *wanted, ledger=Ledger(path))
    assert len(server.asked) == 4
    assert again[:2] == first
    assert endpoint.budget.spent.requests == 4
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == ["Hello."] * 4


async def test_answers_that_were_there_when_another_failed_are_kept(server, tmp_path: Path):
    server.delay_s = 0.1
    server.faults = [None, None, Fault(401)]
    ledger = Ledger(tmp_path / "endpoint.jsonl")
    wanted = [request(seed=i) for i in range(4)]
    with pytest.raises(EndpointError, match="401"):
        await ask(server, *wanted, ledger=ledger)
    kept = ledger.usage.requests
    assert kept >= 2
    await ask(server, *wanted, ledger=Ledger(tmp_path / "endpoint.jsonl"))
    assert len(server.asked) == kept + 1 + (4 - kept)


def test_a_broken_ledger_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "endpoint.jsonl"
    path.write_text(
        '{"key": "a", "text": "", "tokens_in": 1, "tokens_out": 1, "assumed": 0}\n{}\n'
    )
    with pytest.raises(LedgerError, match="line 2"):
        Ledger(path)


async def test_a_window_of_time_never_holds_more_than_its_limit():
    window_s = 0.2
    limit = RateLimit(10, window_s)
    taken: list[tuple[float, int]] = []

    async def take(amount: int) -> None:
        await limit.take(amount)
        taken.append((time.monotonic(), amount))

    await asyncio.gather(*(take(amount) for amount in (4, 4, 4, 3, 10, 1)))
    assert [amount for _, amount in taken] == [4, 4, 4, 3, 10, 1]
    for at_s, _ in taken:
        held = sum(a for t, a in taken if at_s <= t < at_s + window_s * 0.9)
        assert held <= 10


async def test_what_was_taken_too_much_is_given_back():
    now_s = 0.0
    limit = RateLimit(100, 60.0, lambda: now_s)
    taken = await limit.take(90)
    limit.correct(taken, 10)
    await asyncio.wait_for(limit.take(90), 1.0)


async def test_requests_a_minute_hold_for_attempts_too(server):
    server.faults = [Fault(500)]
    settings = EndpointConfig(url=server.url, model="m", requests_per_minute=2, **QUICK)
    endpoint = Endpoint(settings, temperature=1.0)
    asking = asyncio.ensure_future(endpoint.complete([request("a"), request("b")], 64))
    # Three requests are wanted, one of them a second attempt: the third waits for its minute.
    await asyncio.sleep(0.5)
    assert not asking.done()
    assert len(server.asked) == 2
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await endpoint.aclose()
