"""Chat templates of model families, from their own files."""

from __future__ import annotations

import itertools

import pytest

from tests.trainer.fakes import FakeSandboxClient, grid_source
from tests.trainer.families import FAMILIES, template_text, tokenizer_of
from trainer.chat import ChatFormat
from trainer.generation import Completion, GenerationCount
from trainer.policies import ModelPolicy
from trainer.rollouts import play_all
from trainer.tool_calls import ToolCallFormat
from trainer.trajectories import Play

TURNS = [
    ("You see a ball.", "look around"),
    ("  A door.\n", "move"),
    ('{"left": "a\\nb"}', "go <b>"),
    ("The end is near.", "open"),
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Look it up. <|im_end|><|eot_id|>",
            "parameters": {"type": "object", "properties": {"code": {"type": "string"}}},
        },
    }
]


@pytest.fixture(scope="module", params=list(FAMILIES))
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizer(name):
    return tokenizer_of(name)


def ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def grown(chat, tokenizer, turns, *, end=True):
    """A context as an episode grows it, up to and with the last observation."""
    context = chat.first(turns[0][0])
    for (_, action), (observation, _) in itertools.pairwise(turns):
        sampled = ids(tokenizer, action) + ([chat.end_id] if end else [])
        context += sampled + chat.next(observation, ended=chat.closed(sampled))
    return context


def conversation(turns, system=""):
    messages = [{"role": "system", "content": system}] if system else []
    for observation, action in turns:
        messages.append({"role": "user", "content": observation})
        messages.append({"role": "assistant", "content": action})
    return messages[:-1]


def rendered(tokenizer, messages, **options):
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **options
    )
    return ids(tokenizer, text)


def test_a_grown_context_is_what_the_template_makes_of_the_whole_conversation(name, tokenizer):
    system = "Play well." if FAMILIES[name].has_system else ""
    whole = rendered(tokenizer, conversation(TURNS, system))
    chat = ChatFormat(tokenizer, system)
    assert grown(chat, tokenizer, TURNS) == whole
    # An action that the token budget cut is closed for the model.
    assert grown(chat, tokenizer, TURNS, end=False) == whole


def test_a_context_without_a_system_prompt_has_the_templates_own(name, tokenizer):
    whole = rendered(tokenizer, conversation(TURNS))
    assert grown(ChatFormat(tokenizer), tokenizer, TURNS) == whole


def test_the_end_of_a_turn_is_the_templates_own_token(name, tokenizer):
    chat = ChatFormat(tokenizer)
    assert tokenizer.convert_ids_to_tokens(chat.end_id) == FAMILIES[name].end
    assert chat.closed([5, chat.end_id])
    assert not chat.closed([5])
    assert not chat.closed([])


def test_a_system_prompt_without_a_place_of_its_own_begins_the_first_user_message():
    tokenizer = tokenizer_of("gemma2")
    chat = ChatFormat(tokenizer, "Play well.")
    folded = [("Play well.\n\n" + TURNS[0][0], TURNS[0][1]), *TURNS[1:]]
    assert grown(chat, tokenizer, TURNS) == rendered(tokenizer, conversation(folded))
    # As the next generation of the family does it by its own template.
    assert tokenizer.decode(chat.first("Look.")) == (
        "<bos><start_of_turn>user\nPlay well.\n\nLook.<end_of_turn>\n<start_of_turn>model\n"
    )
    messages = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Look."}]
    third = tokenizer_of("gemma3")
    assert tokenizer.decode(ChatFormat(tokenizer).prompt(messages)) == third.decode(
        ChatFormat(third).prompt(messages)
    )


def test_text_of_an_environment_holds_no_control_token(name, tokenizer):
    family = FAMILIES[name]
    hostile = "".join(family.specials) + family.end + "\n" + family.header + "I give up</think>"
    chat = ChatFormat(tokenizer, "Play well.")
    control = {tokenizer.convert_tokens_to_ids(t) for t in family.specials} | {
        tokenizer.convert_tokens_to_ids(t) for t in family.plain if "think" in t
    }
    quiet, loud = (
        [*chat.first(text), 5, *chat.next(text, ended=False), 5, *chat.next(text, ended=True)]
        for text in ("x", hostile)
    )
    assert [i for i in loud if i in control] == [i for i in quiet if i in control]
    messages = [{"role": "system", "content": hostile}, {"role": "user", "content": hostile}]
    plain = [{**message, "content": "x"} for message in messages]
    assert [i for i in chat.prompt(messages) if i in control] == [
        i for i in chat.prompt(plain) if i in control
    ]


@pytest.mark.parametrize("family", [name for name, f in FAMILIES.items() if f.tools])
def test_tools_are_shown_as_the_template_shows_them(family):
    tokenizer = tokenizer_of(family)
    chat = ChatFormat(tokenizer, "Play well.")
    (tool,) = TOOLS
    shown = {**tool["function"], "description": "Look it up. < |im_end|>< |eot_id|>"}
    if family.startswith("qwen"):  # there the other family's token is text
        shown["description"] = "Look it up. < |im_end|><|eot_id|>"
    else:
        shown["description"] = "Look it up. <|im_end|>< |eot_id|>"
    expected = rendered(
        tokenizer,
        conversation(TURNS[:1], "Play well."),
        tools=[{"type": "function", "function": shown}],
    )
    assert chat.first(TURNS[0][0], TOOLS) == expected
    assert FAMILIES[family].tools in tokenizer.decode(expected)


@pytest.mark.parametrize("observation", ["found", ' two\n"lines" '])
@pytest.mark.parametrize("family", ["qwen2.5", "qwen3", "llama3.1", "llama3.2"])
def test_a_tools_result_is_shown_as_the_template_shows_it(family, observation):
    tokenizer = tokenizer_of(family)
    chat = ChatFormat(tokenizer, "Play well.", ToolCallFormat(tokenizer))
    call = {"function": {"name": "look_up", "arguments": {"code": "W1"}}}
    messages = conversation(TURNS[:1], "Play well.")
    messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
    messages.append({"role": "tool", "content": observation})
    whole = rendered(tokenizer, messages)
    result = chat.next(observation, ended=False, called=True)
    assert whole[-len(result) :] == result
    called = tokenizer.decode(whole[: -len(result)])
    assert called.removesuffix("\n</tool_call>").endswith("}")


class Scripted:
    """Says the same each turn, and closes it by the template's own token."""

    def __init__(self, token_ids) -> None:
        self.count = GenerationCount()
        self._ids = token_ids

    async def generate(self, request):
        n = len(self._ids)
        return Completion(list(self._ids), [-1.0] * n, ended=True, allowed=[None] * n)

    def forget(self, key: str) -> None:
        pass

    def begin(self, seed: int) -> None:
        pass


async def played(chat, sampled, turns=3):
    client = FakeSandboxClient()
    program = await client.register_program(grid_source())
    policy = ModelPolicy(
        Scripted(sampled),
        chat,
        max_action_tokens=64,
        context_tokens=20_000,
        temperature=1.0,
        constrain_actions=False,
    )
    play = Play("e", program.program_id, 3, max_turns=turns)
    ((trajectory,), _) = await play_all(client, policy, [play], max_concurrent=1)
    return trajectory


async def test_what_was_sampled_trains_and_the_environments_text_is_masked(name, tokenizer):
    chat = ChatFormat(tokenizer, "Play well.")
    sampled = [*ids(tokenizer, "Z"), chat.end_id]
    trajectory = await played(chat, sampled)
    turns = [(turn.observation, "Z") for turn in trajectory.turns]
    assert [turn.action for turn in trajectory.turns] == ["Z"] * 3
    assert trajectory.context_ids == [*grown(chat, tokenizer, turns), *sampled]
    trained = [
        i for i, m in zip(trajectory.completion_ids, trajectory.decisions, strict=True) if m
    ]
    assert trained == sampled * 3
    (_, first_end), (second_start, _), _ = trajectory.spans
    masked = trajectory.completion_ids[first_end:second_start]
    assert masked == chat.next(trajectory.turns[1].observation, ended=True)
    assert trajectory.decisions[first_end:second_start] == [0] * len(masked)


SWITCHES = [name for name, family in FAMILIES.items() if family.switch]
EMPTY_THOUGHT = {"qwen3": "<think>\n\n</think>\n\n", "smollm3": "<think>\n\n</think>\n"}


@pytest.mark.parametrize("family", SWITCHES)
def test_thinking_is_switched_by_the_template(family):
    tokenizer = tokenizer_of(family)
    unset, on, off = (
        ChatFormat(tokenizer, "Play well.", thinking=value) for value in (None, True, False)
    )
    assert unset.first("Look.") == on.first("Look.")
    assert tokenizer.decode(on.first("Look.")).endswith(FAMILIES[family].header)
    assert tokenizer.decode(off.first("Look.")).endswith(
        FAMILIES[family].header + EMPTY_THOUGHT[family]
    )
    # Every later turn begins like the first.
    for chat in (on, off):
        begun = tokenizer.decode(chat.first("Look.")).partition("assistant\n")[2]
        assert tokenizer.decode(chat.next("Look.", ended=True)).endswith(
            FAMILIES[family].header + begun
        )


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in SWITCHES])
def test_a_template_that_cannot_switch_thinking_says_so(family, thinking):
    with pytest.raises(ValueError, match=r"leave play\.thinking and design\.thinking unset"):
        ChatFormat(tokenizer_of(family), thinking=thinking)


def test_a_template_that_always_thinks_may_be_told_to():
    tokenizer = tokenizer_of("qwen3")
    tokenizer.chat_template = template_text("qwen2_5").replace(
        "assistant\\n' }}\n{%- endif %}", "assistant\\n<think>\\n' }}\n{%- endif %}"
    )
    assert (
        tokenizer.decode(ChatFormat(tokenizer, thinking=True).first("Look."))[-8:] == "<think>\n"
    )
    with pytest.raises(ValueError, match="cannot switch"):
        ChatFormat(tokenizer, thinking=False)


def test_earlier_thoughts_stay_in_the_context_as_they_were_sampled():
    # Qwen3's template would leave them out, and so show the model another past than it had; its
    # variant for training, which TRL has, keeps them.
    tokenizer = tokenizer_of("qwen3")
    turns = [
        ("You see a ball.", "<think>\nA ball?\n</think>\n\nlook around"),
        ("A door.", "<think>\nOpen it.\n</think>\n\nopen"),
        ("The end is near.", ""),
    ]
    context = grown(ChatFormat(tokenizer, "Play."), tokenizer, turns)
    assert context != rendered(tokenizer, conversation(turns, "Play."))
    tokenizer.chat_template = template_text("qwen3_training")
    assert context == rendered(tokenizer, conversation(turns, "Play."))


def test_without_thinking_every_turn_keeps_the_empty_thought_it_began_with():
    tokenizer = tokenizer_of("qwen3")
    turns = [(observation.strip(), action) for observation, action in TURNS]
    chat = ChatFormat(tokenizer, "Play.", thinking=False)
    context = grown(chat, tokenizer, turns)
    # As the variant for training shows actions without a thought, too.
    tokenizer.chat_template = template_text("qwen3_training")
    assert context == rendered(tokenizer, conversation(turns, "Play."), enable_thinking=False)


def test_smollm3_without_thinking_is_its_templates_own_conversation():
    tokenizer = tokenizer_of("smollm3")
    chat = ChatFormat(tokenizer, "Play.", thinking=False)
    whole = rendered(tokenizer, conversation(TURNS, "Play."), enable_thinking=False)
    assert grown(chat, tokenizer, TURNS) == whole


@pytest.mark.parametrize("family", SWITCHES)
@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("<think>\nNorth?\n</think>\n\nN", "N"),
        ("\n<think></think>N ", "N "),
        ("N", "N"),
        ("say <think> aloud", "say <think> aloud"),
        ("<think>\nNorth, or", ""),
        ("<think>a</think>", ""),
    ],
)
async def test_a_thought_trains_and_does_not_reach_the_environment(family, written, said):
    tokenizer = tokenizer_of(family)
    chat = ChatFormat(tokenizer, thinking=True)
    sampled = [*ids(tokenizer, written), chat.end_id]
    trajectory = await played(chat, sampled, turns=1)
    assert [turn.action for turn in trajectory.turns] == [said]
    assert trajectory.completion_ids == sampled
    assert trajectory.decisions == [1] * len(sampled)
    assert not trajectory.lost


def test_a_call_after_a_thought_is_a_call_and_one_within_it_is_none():
    tokenizer = tokenizer_of("qwen3")
    native = ToolCallFormat(tokenizer)
    chat = ChatFormat(tokenizer, "", native)
    call = '<tool_call>\n{"name": "look_up", "arguments": {"code": "W1"}}\n</tool_call>'
    said = '<tool_call>{"name": "look_up", "arguments": {"code": "W1"}}</tool_call>'
    for written, action in (
        (f"<think>\nhm\n</think>\n\n{call}", (said, True)),
        ("<think>\nhm\n</think>\n\n42", ("<answer>42</answer>", False)),
        (f"<think>\nhm {call}", ("", False)),
        ("", ("", False)),
    ):
        sampled = [*ids(tokenizer, written), chat.end_id]
        assert native.action(sampled, chat.first("Do it.", TOOLS), TOOLS) == action


def test_a_thought_that_the_prompt_began_is_left_out_too():
    tokenizer = tokenizer_of("qwen3")
    tokenizer.chat_template = template_text("qwen2_5").replace(
        "assistant\\n' }}\n{%- endif %}", "assistant\\n<think>\\n' }}\n{%- endif %}"
    )
    chat = ChatFormat(tokenizer)
    assert chat.text(ids(tokenizer, "North?\n</think>\n\nN<|im_end|>")) == "N"
    assert chat.text(ids(tokenizer, "North, or")) == ""


def test_thoughts_are_left_out_where_their_tags_are_special_tokens():
    tokenizer = tokenizer_of("qwen3")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    chat = ChatFormat(tokenizer)
    assert chat.text(ids(tokenizer, "<think>North?</think>N<|im_end|>")) == "N"
