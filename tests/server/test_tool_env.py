"""The base class of tool-use programs: calls, answers, messages in turn, criteria, schemas."""

from __future__ import annotations

import enum
import json
from typing import Annotated, Literal

import pytest
from sandbox_api.types import ResetItem

from sandbox_server.worker.tool_answers import matches
from sandbox_server.worker.tool_env import Criterion, Message, ToolEnv
from sandbox_server.worker.tool_schemas import schema
from tests.server.conftest import Sandbox


def call(name: str, /, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class OrdersEnv(ToolEnv):
    """Two messages: the first about the state, the second with an answer as well."""

    note = "no tool"
    tool_box = "nor this"

    def setup(self, rng):
        self.orders = {"A1": {"items": 4, "status": "open"}}
        self.messages = [
            Message("Close A1.", criterion=Criterion("orders.A1.status", "==", "closed")),
            Message(
                "How many items had it?",
                answer=lambda: self.orders["A1"]["items"],
                criterion=[
                    lambda: self.orders["A1"]["status"] == "closed",
                    lambda: self.orders["A1"]["seen"],
                ],
            ),
        ]

    @property
    def tool_kit(self):
        return self.orders

    def tool_close(self, order_id: str, force: bool = False):
        self.orders[order_id]["status"] = "closed"
        return "closed"

    def tool_look(self, order_id: str):
        self.orders[order_id]["seen"] = True
        return self.orders[order_id]["items"], float("nan")


def played(env: ToolEnv, *actions: str) -> list[tuple]:
    env.reset(seed=1)
    return [env.step(action) for action in actions]


def test_a_message_gives_way_to_the_next_only_when_its_criterion_holds():
    early, closed, first, unseen, seen, last = played(
        OrdersEnv(),
        "<answer>done</answer>",
        call("close", order_id="A1"),
        "<answer>done</answer>",
        "<answer>4</answer>",
        call("look", order_id="A1"),
        "<answer>4 items</answer><answer>$4.00</answer>",
    )
    assert early == ("That is not done yet.", 0.0, False, False, {"message": 0})
    assert closed[:3] == ("closed", 0.0, False)
    assert first == ("How many items had it?", 0.0, False, False, {"message": 1})
    assert unseen[:3] == ("That is not done yet.", 0.0, False)
    assert json.loads(seen[0]) == [4, "nan"]
    assert last == ("Done.", 1.0, True, False, {"message": 2})


def test_a_wrong_answer_ends_the_episode_without_a_reward():
    env = OrdersEnv()
    calls = call("close", order_id="A1") + call("look", order_id="A1")
    *_, wrong, after = played(env, calls, "<answer>x</answer>", "<answer>5</answer>", "again")
    assert wrong[:4] == ("That is not right.", 0.0, True, False)
    assert after[:4] == ("The episode is over.", 0.0, True, False)
    assert not env.verify()


def test_the_state_of_the_criteria_is_told_to_gates_and_not_to_the_player():
    observation, info = OrdersEnv().reset(seed=1)
    assert observation == "Close A1."
    assert info == {
        "message": 0,
        "messages": 2,
        "criteria": [
            {
                "message": 0,
                "met": False,
                "path": "orders.A1.status",
                "op": "==",
                "expected": "str",
                "found": "str",
            },
            {"message": 1, "met": False},
            {"message": 1, "met": False, "error": "KeyError: 'seen'"},
        ],
        "state": {"orders": {"A1": {"items": "int", "status": "str"}}},
    }


def test_calls_of_an_action_run_in_order_and_an_answer_in_an_argument_is_none():
    env = OrdersEnv()
    hidden = "<think>maybe <answer>4</answer>" + call("nope") + "</think>"
    said, quoted = played(
        env,
        hidden + call("close", order_id="A1") + "\n" + call("look", order_id="A1"),
        call("close", order_id="<answer>4</answer>"),
    )
    assert said[0] == 'closed\n[4, "nan"]'
    assert quoted[0] == "Error: close: KeyError: '<answer>4</answer>'"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("hello", "Use <tool_call>"),
        ("<tool_call>{broken</tool_call>", "Error: a tool call is"),
        ("<tool_call>[1]</tool_call>", "Error: a tool call is"),
        ('<tool_call>{"name": "close", "arguments": "{"}</tool_call>', "Error: a tool call is"),
        (call("kit"), "Error: no tool 'kit'; there are close, look."),
        (call("box"), "Error: no tool 'box'; there are close, look."),
        (call("close"), "Error: close: missing a required argument: 'order_id'."),
        (call("close", order_id=1), "Error: close: order_id must be string."),
        (call("close", order_id="A1", force="yes"), "Error: close: force must be boolean."),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "Error: a tool call is"),
        (call("look", order_id="A1") * 9, '[4, "nan"]'),
    ],
)
def test_what_makes_no_sense_is_answered_and_the_episode_goes_on(said, told):
    ((shown, reward, terminated, truncated, _),) = played(OrdersEnv(), said)
    assert shown.startswith(told)
    assert (reward, terminated, truncated) == (0.0, False, False)


def test_arguments_may_come_as_json_text():
    said = '<tool_call>{"name": "close", "arguments": "{\\"order_id\\": \\"A1\\"}"}</tool_call>'
    assert played(OrdersEnv(), said)[0][0] == "closed"


def test_a_subclass_may_keep_its_own_constructor():
    class OwnEnv(OrdersEnv):
        def __init__(self):
            self.mine = 1

    assert [step[3] for step in played(OwnEnv(), *["wait"] * 20)] == [False] * 19 + [True]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("12.01", 12),
        ("$1,234.50.", 1234.5),
        ("40 %", "40"),
        (".5", 0.5),
        ("Paris.", "paris"),
        ('"New   York"', "new york"),
        ("YES", True),
        ("a, B", ["A", "b"]),
        ("[2, 1.001]", [2, 1]),
        ("b,a", {"a", "b"}),
        ('{"n": "2"}', {"n": 2}),
        ("1e400", "1e400"),
    ],
)
def test_answers_that_agree(given, expected):
    assert matches(given, expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("12.02", 12),
        ("1e400", 10**400),
        ("twelve", 12),
        ("1", True),
        ("maybe", False),
        ("a", ["a", "b"]),
        ("a,a", {"a", "b"}),
        ("{", {"n": 2}),
        ("", "x"),
    ],
)
def test_answers_that_do_not(given, expected):
    assert not matches(given, expected)


class Colour(enum.Enum):
    RED = "red"


def typed(
    self_is_no_tool: str | None,
    count: Annotated[int, "How many."],
    kind: Literal["a", "b"],
    colours: list[Colour],
    prices: dict[str, float],
    odd: NotKnown,  # noqa: F821
    *rest: int,
    both: int | str = 3,
    plain=None,
    flag=True,
    **more: int,
):
    """Do it.

    At length.

    Args:
        kind (str): Of what
            there is.
        prices: By name.

    Returns:
        Nothing: at all.
    """


def test_a_schema_tells_types_choices_items_and_descriptions():
    function = schema("typed", typed)["function"]
    assert function["description"] == "Do it.\n\nAt length."
    parameters = function["parameters"]
    assert parameters["required"] == [
        "self_is_no_tool",
        "count",
        "kind",
        "colours",
        "prices",
        "odd",
    ]
    assert parameters["additionalProperties"] is True
    assert parameters["properties"] == {
        "self_is_no_tool": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "count": {"type": "integer", "description": "How many."},
        "kind": {"type": "string", "enum": ["a", "b"], "description": "Of what there is."},
        "colours": {"type": "array", "items": {"type": "string", "enum": ["red"]}},
        "prices": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "description": "By name.",
        },
        "odd": {},
        "both": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 3},
        "plain": {"type": "string"},
        "flag": {"type": "boolean", "default": True},
    }


def test_criteria_find_values_by_key_place_and_attribute():
    class World:
        def __init__(self):
            self.rows = [{7: "x"}]

    assert Criterion("rows.0.7", "==", "x").holds(World())
    assert Criterion(("rows", 0, 7), "in", ("x", "y")).holds(World())
    assert Criterion("rows", "contains", {7: "x"}).holds(World())
    with pytest.raises(ValueError, match="no operator"):
        Criterion("rows", "=", 1)


PROGRAM = '''
from spadework_env import Criterion, Message, ToolEnv

class LampEnv(ToolEnv):
    def setup(self, rng):
        self.lamps = {"hall": "off"}
        self.messages = [Message("Light the hall.", criterion=Criterion("lamps.hall", "==", "on"))]
    def tool_light(self, room: str):
        """Light a room."""
        self.lamps[room] = "on"
'''


async def test_the_sandbox_supplies_the_base_class(sandbox: Sandbox) -> None:
    program = await sandbox.register(PROGRAM)
    (episode,) = await sandbox.reset([ResetItem(program.program_id, seed=1)])
    assert episode.info["criteria"][0]["found"] == "str"
    assert (await sandbox.step(episode, 0, "<answer>done</answer>")).reward == 0.0
    lit = await sandbox.step(episode, 1, call("light", room="hall"))
    assert lit.observation == "null"
    done = await sandbox.step(episode, 2, "<answer>done</answer>")
    assert (done.reward, done.terminated) == (1.0, True)
