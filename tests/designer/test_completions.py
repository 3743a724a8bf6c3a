"""What a model wrote is read in time in proportion to it, and never by raising something else."""

from __future__ import annotations

import contextlib
import time

import pytest

from designer.completions import CompletionError, read_code, read_hint, read_spec, strip_thinking
from designer.hints import HintError, check_hint_text
from designer.repair import repair_braces
from designer.twins import Trees, program_key

CLASS = "class AEnv:\n    pass\n"
# What models in a loop write, 100,000 characters of it.
LOOPS = {
    "fence": "```",
    "fenced line": "```python\n",
    "tilde": "~~~\n",
    "tick": "`",
    "tag": "<think>",
    "thought": "<think>a</think>",
    "closing tag": "</think>",
    "mixed tags": "<think></thought>",
    "brace": "{",
    "nested object": '{"a":',
    "space": " ",
    "line": "\n",
    "number": "1. ",
}
# Python that nests deeper than the parser, or a walk of its tree, can follow.
NESTED = {
    "unary": "-" * 100_000 + "1",
    "sum": "+".join(["1"] * 60_000),
    "attributes": "a" + ".b" * 2_500,
    "calls": "a" + "()" * 2_500,
    "lambdas": "lambda: " * 3_000 + "1",
    "conditions": "1 if a else " * 20_000 + "1",
    "parentheses": "(" * 5_000 + "1" + ")" * 5_000,
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_model_in_a_loop_costs_no_more_than_a_moment(loop: str):
    text = LOOPS[loop] * (100_000 // len(LOOPS[loop])) + CLASS
    started = time.process_time()
    for read in (read_code, read_spec):
        with contextlib.suppress(CompletionError):
            read(text)
    with contextlib.suppress(HintError):
        check_hint_text(read_hint(text))
    assert time.process_time() - started < 5


@pytest.mark.parametrize("nested", NESTED)
def test_a_program_nested_too_deeply_is_left_to_the_gates(nested: str):
    source = f"{CLASS}\nx = {NESTED[nested]}\n"
    assert repair_braces(source).source == source
    Trees().read(source)
    with contextlib.suppress(SyntaxError):
        program_key(source)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a</think>b", "b"),
        ("<think>a<think>b</think>c</think>d", "d"),
        ("a</thought>b", "b"),
        ("b<reasoning>a", "b"),
        ("<THINK>a</think>b<thinking>c</thinking>d", "bd"),
        ("<think>a</thought>b", "b"),
        ("plain", "plain"),
    ],
)
def test_thoughts_are_dropped_whichever_of_their_tags_is_missing(text: str, left: str):
    assert strip_thinking(text) == left


@pytest.mark.parametrize(
    "text",
    [
        f"Here:\n```python\n{CLASS}```\nDone.",
        f"~~~\nnotes\n~~~\n  ```py\n{CLASS}  ```",
        f"```python\n{CLASS}",
        f"````\n{CLASS}```\n````",
        f"It is this.\n{CLASS}",
    ],
)
def test_the_program_is_found_however_it_is_fenced(text: str):
    assert read_code(text).startswith(CLASS)


def test_a_fence_is_closed_by_one_as_long():
    assert read_code(f"````\n{CLASS}# ```\n```\nx = 1\n````") == f"{CLASS}# ```\n```\nx = 1\n"
