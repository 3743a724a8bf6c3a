"""Loading a program, and one face for the shapes that programs come in.

Everything here runs inside the episode process, after it was locked down: nothing in it
protects anyone from the program.
"""

from __future__ import annotations

import inspect
import math
import random
import sys
import types
from collections.abc import Callable
from typing import Any

from . import frames, prelude, text

FILENAME = "<program>"
MODULE = "program"

# Numbers of `sandbox_api.v1.ProgramKind`.
GAME, TOOL_USE, GYMNASIUM = 1, 2, 3


class ContractError(Exception):
    """The program returned or lacks something; the message says what and what to do."""


def compile_source(source: str) -> types.CodeType:
    """Compile a program.

    Raises:
        SyntaxError, ValueError: If it is not Python.
    """
    return compile(source, FILENAME, "exec", dont_inherit=True)


def execute(code: types.CodeType) -> types.ModuleType:
    """Execute the module's top level, with the prelude's names in reach."""
    module = types.ModuleType(MODULE)
    # dataclasses, enum and pickle look a class's module up by name.
    sys.modules[MODULE] = module
    module.__dict__.update(prelude.NAMES)
    exec(code, module.__dict__)
    return module


def find_entry(module: types.ModuleType, entry: str) -> Callable[..., Any]:
    """Find what constructs the environment.

    Raises:
        ContractError: If nothing does, or more than one thing could.
    """
    if entry:
        found = module.__dict__.get(entry)
        if not callable(found):
            raise ContractError(f"the program defines no class or function {entry!r}")
        return found
    classes = [
        value
        for value in module.__dict__.values()
        if isinstance(value, type) and value.__module__ == MODULE
    ]
    # A base class of another candidate is scaffolding, not the environment.
    leaves = [c for c in classes if not any(c is not d and issubclass(d, c) for d in classes)]
    playable = [c for c in leaves if callable(getattr(c, "step", None)) and hasattr(c, "reset")]
    for candidates in ([c for c in playable if c.__name__.endswith("Env")], playable):
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            names = ", ".join(sorted(c.__name__ for c in candidates))
            raise ContractError(
                f"more than one class could be the environment ({names}); "
                "name one as entry, or keep one"
            )
    factory = module.__dict__.get("make_env")
    if callable(factory):
        return factory
    raise ContractError(
        "no environment: define one class ending in Env with reset and step, "
        "or a function make_env"
    )


def _accepts(function: Callable[..., Any]) -> tuple[set[str], bool]:
    """Parameter names a call may give by keyword, and whether any name goes."""
    if isinstance(function, type):
        # Of a class, whose own it is.
        function = function.__init__  # type: ignore[misc]
        if function is object.__init__:
            return set(), False
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is not None and not hasattr(function, "__wrapped__"):
        # A plain function: what inspect.signature would say, at a hundredth of its price.
        count = code.co_argcount + code.co_kwonlyargcount
        any_name = bool(code.co_flags & inspect.CO_VARKEYWORDS)
        return set(code.co_varnames[code.co_posonlyargcount : count]), any_name
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set(), True
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return names, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _takes_no_argument(function: Any) -> bool:
    if not callable(function):
        return False
    code = getattr(getattr(function, "__func__", None), "__code__", None)
    if code is not None and not hasattr(function, "__wrapped__"):
        required = code.co_argcount - len(function.__defaults__ or ()) - 1
        return required <= 0 and code.co_kwonlyargcount == 0
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def seed_globals(seed: int) -> None:
    """Seed the generators that programs reach for without owning one."""
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


class Environment:
    """A constructed environment of any shape, stepped by text."""

    def __init__(self, factory: Callable[..., Any], options: dict[str, Any], max_turns: int):
        """Construct it.

        Args:
            factory: Class or function of the program.
            options: Constructor arguments that the factory names; the rest is kept for
                reset.
            max_turns: Turn cap; passed on where the factory takes it.
        """
        names, any_name = _accepts(factory)
        arguments = {k: v for k, v in options.items() if k in names}
        if max_turns and ("max_turns" in names or any_name) and isinstance(factory, type):
            arguments.setdefault("max_turns", max_turns)
        self._reset_options = {k: v for k, v in options.items() if k not in names}
        self.env = factory(**arguments)
        for method in ("reset", "step"):
            if not callable(getattr(self.env, method, None)):
                raise ContractError(f"{type(self.env).__name__} has no {method}()")
        self.kind = self._kind()
        self.has_verify = _takes_no_argument(getattr(self.env, "verify", None))
        self.has_solution = _takes_no_argument(getattr(self.env, "solution", None))

    def _kind(self) -> int:
        # Others call a list or a pattern their action space.
        if callable(getattr(getattr(self.env, "action_space", None), "contains", None)):
            return GYMNASIUM
        return TOOL_USE if callable(getattr(self.env, "get_tools", None)) else GAME

    def tools(self) -> list[Any]:
        if not callable(getattr(self.env, "get_tools", None)):
            return []
        tools = text.plain(self.env.get_tools())
        if not isinstance(tools, list):
            raise ContractError("get_tools() must return a list of OpenAI-format schemas")
        return tools

    def reset(self, seed: int) -> tuple[str, Any]:
        """Reset, whatever of seed and options the program's reset takes."""
        names, any_name = _accepts(self.env.reset)
        arguments: dict[str, Any] = {}
        if "seed" in names or any_name:
            arguments["seed"] = seed
        elif _accepts_one(getattr(self.env, "seed", None)):
            self.env.seed(seed)
        if self._reset_options:
            if "options" not in names and not any_name:
                raise ContractError(
                    f"neither the constructor nor reset takes {sorted(self._reset_options)}"
                )
            arguments["options"] = self._reset_options
        first = self.env.reset(**arguments)
        if isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], dict):
            return text.render(first[0]), first[1]
        return text.render(first), {}

    def step(self, action: str) -> tuple[str, float, int, Any]:
        """Take one step.

        Returns:
            Observation as text, finite reward, flags of `frames.TERMINATED` and
            `frames.TRUNCATED`, and info as the program gave it.

        Raises:
            ContractError: If what the program returned is no step, or its reward is not
                a finite number.
        """
        given: Any = action
        if self.kind == GYMNASIUM:
            try:
                given = text.parse_action(action, self.env.action_space)
            except text.InvalidActionError as error:
                return str(error), 0.0, 0, {"invalid_action": True}
        result = self.env.step(given)
        if type(result) is not tuple or len(result) != 5:
            result = _five(result)
        observation, reward, terminated, truncated, info = result
        if type(reward) is not float:
            reward = _number(reward)
        if not math.isfinite(reward):
            raise ContractError(f"reward must be finite, not {reward}")
        if type(observation) is not str:
            observation = text.render(observation)
        flags = (frames.TERMINATED if terminated else 0) | (frames.TRUNCATED if truncated else 0)
        return observation, reward, flags, info

    def verify(self) -> tuple[bool, str]:
        """Run the program's verify(): a bool, or (bool, message), or a dict with "verified"."""
        said = self.env.verify()
        if isinstance(said, dict):
            return bool(said.get("verified", said.get("success", False))), text.render(said)
        if isinstance(said, tuple) and len(said) == 2:
            return bool(said[0]), text.render(said[1])
        return bool(said), ""

    def solution(self) -> str | list[str]:
        """Run the program's solution(): a final answer, a list of actions, or text."""
        said = self.env.solution()
        if isinstance(said, list | tuple):
            return [text.render(action) for action in said]
        return text.render(said)


def _five(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """A step in the five parts of Gymnasium, from the four of old Gym or a tuple's subclass."""
    if not isinstance(result, tuple) or len(result) not in (4, 5):
        shape = f"{len(result)}-tuple" if isinstance(result, tuple) else type(result).__name__
        raise ContractError(
            f"step() must return (observation, reward, terminated, truncated, info), not a {shape}"
        )
    if len(result) == 5:
        return tuple(result)
    observation, reward, ended, info = result
    truncated = bool(isinstance(info, dict) and info.get("TimeLimit.truncated", False))
    return observation, reward, bool(ended) and not truncated, truncated, info


def _number(reward: Any) -> float:
    try:
        return float(reward)
    except (TypeError, ValueError):
        kind = type(reward).__name__
        raise ContractError(f"reward must be a number, not {kind}") from None


def _accepts_one(function: Any) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(0)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
