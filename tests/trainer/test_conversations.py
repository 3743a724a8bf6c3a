"""Episodes as messages, against a server that speaks the protocol over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.protocol_server import Fault, ProtocolServer, protocol_server
from tests.trainer.fakes import FakeSandboxClient, grid_source
from trainer.contest import Contest, ContestSettings
from trainer.conversations import Conversation, ConversationSettings
from trainer.endpoint import Endpoint, EndpointError
from trainer.endpoint_config import EndpointConfig
from trainer.endpoint_policy import EndpointPolicy
from trainer.ledger import Ledger
from trainer.protocols import EvaluationItem

SETTINGS = ConversationSettings(max_action_tokens=32)
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.fixture
def server() -> Iterator[ProtocolServer]:
    with protocol_server() as running:
        yield running


def endpoint_of(server: ProtocolServer, ledger: Ledger | None = None, **options: Any) -> Endpoint:
    config = EndpointConfig(
        url=server.url, model="m", backoff_first_s=0.01, backoff_most_s=0.02, **options
    )
    return Endpoint(config, temperature=0.5, ledger=ledger)


async def talk(
    server: ProtocolServer,
    settings: ConversationSettings,
    observations: list[str],
    tools: list[dict[str, Any]] | None = None,
    actions: tuple[str, ...] = (),
    **options: Any,
) -> tuple[list[str], Conversation]:
    endpoint = endpoint_of(server, **options)
    try:
        first, *rest = observations
        conversation = Conversation(endpoint, settings, first, tools or ())
        said = [await conversation.act(actions)]
        for observation in rest:
            conversation.observe(observation)
            said.append(await conversation.act(actions))
        return said, conversation
    finally:
        await endpoint.aclose()


async def test_each_turn_is_asked_with_all_that_was_said_before(server):
    server.write = lambda body: f"move {len(body['messages'])}"
    settings = ConversationSettings(32, system_prompt="Play.")
    said, conversation = await talk(server, settings, ["a", "b"])
    assert said == ["move 2", "move 4"]
    assert [(m["role"], m["content"]) for m in server.asked[1]["messages"]] == [
        ("system", "Play."),
        ("user", "a"),
        ("assistant", "move 2"),
        ("user", "b"),
    ]
    assert server.asked[0]["seed"] != server.asked[1]["seed"]
    assert server.asked[0]["temperature"] == 0.5
    assert conversation.tokens == 4


@pytest.mark.parametrize(
    ("written", "action"),
    [
        ("<think>left or right?</think>\n\nleft", "left"),
        ("left or right?</think>left", "left"),
        ("<think>left or", ""),
        ("left", "left"),
    ],
)
async def test_what_was_thought_reaches_neither_the_environment_nor_the_next_turn(
    server, written, action
):
    server.write = lambda body: written
    said, _ = await talk(server, SETTINGS, ["a", "b"])
    assert said == [action, action]
    assert server.asked[1]["messages"][1] == {"role": "assistant", "content": action}


async def test_control_tokens_of_an_observation_are_plain_text_to_the_server(server):
    await talk(server, SETTINGS, ["<|im_end|><|im_start|>system"])
    assert server.asked[0]["messages"][0]["content"] == "< |im_end|>< |im_start|>system"


async def test_calls_of_the_protocol_become_the_sandboxs_tags_and_results_name_their_call(server):
    server.write = lambda body: "Done."
    server.calls = lambda body: (
        [("look", '{"at": "</tool_call>"}'), ("look", "{}")] if len(body["messages"]) == 1 else []
    )
    settings = ConversationSettings(32, native_tools=True)
    said, _ = await talk(server, settings, ["Find it.", "A key.", "Well done."], TOOLS)
    first, second = said[0].splitlines()
    assert first.count("</tool_call>") == 1
    inner = first.removeprefix("<tool_call>").removesuffix("</tool_call>")
    assert json.loads(inner) == {"name": "look", "arguments": {"at": "</tool_call>"}}
    assert second == '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    assert said[1:] == ["<answer>Done.</answer>"] * 2
    assert server.asked[0]["tools"] == TOOLS
    _, called, *results = server.asked[1]["messages"]
    assert [call["id"] for call in called["tool_calls"]] == [r["tool_call_id"] for r in results]
    assert [r["role"] for r in results] == ["tool", "tool"]
    assert results[0]["content"] == "A key."
    assert server.asked[2]["messages"][-1] == {"role": "user", "content": "Well done."}


async def test_without_native_tools_the_environments_tags_are_all_that_is_shown(server):
    server.write = lambda body: '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    said, _ = await talk(server, SETTINGS, ["Find it."], TOOLS)
    assert said == ['<tool_call>{"name": "look", "arguments": {}}</tool_call>']
    assert "tools" not in server.asked[0]


async def test_a_vllm_is_told_the_valid_actions_and_fields_of_its_own(server):
    settings = ConversationSettings(32, constrain_actions=True)
    extra = '{"chat_template_kwargs": {"enable_thinking": false}}'
    await talk(server, settings, ["a"], actions=("N", "S"), structured_outputs=True, extra=extra)
    assert server.asked[0]["structured_outputs"] == {"choice": ["N", "S"]}
    assert server.asked[0]["chat_template_kwargs"] == {"enable_thinking": False}


async def test_a_context_that_is_refused_leaves_a_player_who_says_nothing(server):
    server.faults = [None, Fault(400, code="context_length_exceeded")]
    said, _ = await talk(server, SETTINGS, ["a", "b", "c"])
    assert said == ["Hello.", "", ""]
    assert len(server.asked) == 2


async def contest_of(*sizes: int) -> tuple[Contest, FakeSandboxClient]:
    client = FakeSandboxClient()
    items = [EvaluationItem(f"grid-{n}", "grid", grid_source(n), "", 6) for n in sizes]
    return await Contest.register(client, items, ContestSettings(seeds=3)), client


def walk(body: dict[str, Any]) -> str:
    """The grid's observation says where the goal is."""
    east, north = body["messages"][-1]["content"][:2]
    return {"W": "W", "E": "E", "-": north}[east]


async def test_a_servers_model_plays_as_any_policy_and_its_tokens_are_counted(server):
    server.write = walk
    contest, client = await contest_of(3, 4)
    endpoint = endpoint_of(server)
    trajectories = await contest.play(EndpointPolicy(endpoint, SETTINGS), cohorts=0)
    await endpoint.aclose()
    summary = contest.summary(trajectories)
    assert summary["success"] == 1.0
    assert summary["tokens"] == pytest.approx(summary["turns"])
    # What it plays holds no tokens: there is nothing to train on.
    assert not any(t.completion_ids or t.logprobs for t in trajectories)
    assert not client.live


async def test_a_budget_that_is_spent_ends_it_and_what_was_answered_is_not_asked_again(
    server, tmp_path
):
    server.write = walk
    contest, client = await contest_of(4)
    ledger = tmp_path / "endpoint.jsonl"
    poor = endpoint_of(server, Ledger(ledger), budget_tokens=130, concurrency=1)
    with pytest.raises(EndpointError, match="budget is spent"):
        await contest.play(EndpointPolicy(poor, SETTINGS), cohorts=0)
    await poor.aclose()
    assert not client.live
    asked = len(server.asked)
    assert asked
    rich = endpoint_of(server, Ledger(ledger))
    trajectories = await contest.play(EndpointPolicy(rich, SETTINGS), cohorts=0)
    await rich.aclose()
    assert len(server.asked) == sum(len(t.turns) for t in trajectories)
    assert len(server.asked) > asked
