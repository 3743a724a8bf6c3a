"""What the text of a program tells: the environments that the sandbox would take pass."""

from __future__ import annotations

import pytest

from designer.findings import RefusedError
from designer.inspection import inspect_program

METHODS = """
    def reset(self, seed=None):
        return "ready", {}

    def step(self, action):
        return "", 0.0, True, False, {}
"""


@pytest.mark.parametrize(
    "source",
    [
        f"class RoomEnv:{METHODS}",
        f"class Environment:{METHODS}",
        f"class Helper:\n    pass\n\n\nclass Room:{METHODS}",
        f"class Base:{METHODS}\n\nclass RoomEnv(Base):\n    pass\n",
        "def make_env():\n    return None\n",
    ],
    ids=["named Env", "named otherwise", "beside a helper", "inherited", "a factory"],
)
def test_a_program_in_each_shape_that_the_sandbox_loads_passes(source: str) -> None:
    inspect_program(source)


@pytest.mark.parametrize(
    "source",
    [f"class AEnv:{METHODS}\n\nclass BEnv:{METHODS}", "class Room:\n    pass\n", "x = 1\n"],
    ids=["two", "without its methods", "none"],
)
def test_a_program_in_which_the_sandbox_would_find_none_or_two_is_refused(source: str) -> None:
    with pytest.raises(RefusedError, match="needs exactly one class"):
        inspect_program(source)
