"""Braces that an f-string cannot mean are doubled; all others stand."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from designer.repair import repair_braces


def value_of(source: str, **names: object) -> object:
    """Evaluate one repaired expression of this test file's own."""
    return eval(repair_braces(source).source, dict(names))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (r'f"say \\boxed{}"', r"say \boxed{}"),
        (r'f"say \\boxed{...}"', r"say \boxed{...}"),
        (r'f"say \\boxed{your answer}"', r"say \boxed{your answer}"),
        (r'f"say \\boxed{answer}"', r"say \boxed{answer}"),
        (r'f"say \\boxed{{{x}}}"', r"say \boxed{7}"),
        (r'f"say \\boxed{x}"', r"say \boxed7"),
        ('f"a {x} b } c"', "a 7 b } c"),
        ('f"a { b {x}"', "a { b 7"),
        ("f\"send {'move': 1}\"", "send {'move': 1}"),
        ('f"send {"move": {x}} now"', 'send {"move": 7} now'),
        ('f"""{x} and {"k": "v"}"""', '7 and {"k": "v"}'),
        ('f"{x:>3}|{x!r}|{x + 1}"', "  7|7|8"),
        ('f"{[y for y in range(x)][1]}"', "1"),
        ('"{not} an {f} string" + f"{}"', "{not} an {f} string{}"),
        ('rf"\\d{2} {x}"', "\\d2 7"),
    ],
)
def test_a_field_that_is_none_becomes_text(source, expected):
    wrapped = f"(lambda x: {source})(7)"
    assert value_of(wrapped) == expected


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = 1\n",
        '# f"{oops"\nx = 1\n',
        "s = 'it''s f\"{}\"'\n",
        "def g(a):\n    return f'{a}' f\"{a!r:>{5}}\"\n",
        'import os.path\nv = f"{os.path.sep}"\n',
        "from dataclasses import dataclass\nprint(f'{dataclass} {len(str(3))} {math.pi}')\n",
        "try:\n    pass\nexcept ValueError as e:\n    print(f'{e}')\n",
        "x = f'{(lambda q: q)(1)}'\n",
        "t = '''it's\nf\"{}\" '''\n",
    ],
)
def test_a_sound_program_is_left_alone(source):
    assert repair_braces(source) == type(repair_braces(""))(source, 0)


def test_a_repaired_program_parses():
    source = (
        "class GameEnv:\n"
        "    def reset(self, seed=None):\n"
        '        return f"Guess. Answer with \\\\boxed{your guess}, 1 to {self.n}", {}\n'
    )
    repaired = repair_braces(source)
    ast.parse(repaired.source)
    assert repaired.fields == 1
    assert "{self.n}" in repaired.source


@given(st.text(alphabet="f\"'{}\\x1 :=\n#r!(", max_size=40))
def test_any_text_is_survived_and_repair_is_idempotent_where_it_parses(text):
    repaired = repair_braces(text).source
    try:
        ast.parse(repaired)
    except (SyntaxError, ValueError):
        return
    assert repair_braces(repaired).source == repaired
