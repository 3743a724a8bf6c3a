"""OpenAI-format schemas of tools, from signature and docstring."""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_ARRAYS = (list, tuple, set, frozenset, Sequence, AbstractSet)
_PARAMETER = re.compile(r"^\s*(?::param\s+(?:\w+\s+)?)?(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+)$")
_ARGUMENTS = re.compile(r"^\s*(?:args|arguments|parameters)\s*:\s*$", re.IGNORECASE)
_SECTION = re.compile(r"^\s*(?:returns?|raises|yields|examples?|notes?)\s*:", re.IGNORECASE)


def schema(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The schema of one tool.

    Args:
        name: Of the tool.
        function: What it does. Types come from annotations (or the default's type; text if
            there is neither), descriptions from its docstring or from `Annotated`.
    """
    about, told = _described(inspect.getdoc(function) or "")
    annotations = _annotations(function)
    properties: dict[str, Any] = {}
    required = []
    extra = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = True
            continue
        annotation = annotations.get(parameter.name, parameter.annotation)
        if annotation is parameter.empty:
            given = parameter.default
            annotation = str if given is parameter.empty or given is None else type(given)
        described = _type(annotation)
        if parameter.name in told:
            described.setdefault("description", told[parameter.name])
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif isinstance(parameter.default, str | int | float | bool):
            described["default"] = parameter.default
        properties[parameter.name] = described
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": required,
    }
    if extra:
        parameters["additionalProperties"] = True
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": parameters},
    }


def json_type_problem(tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """What is wrong with the types of a call's arguments, in a sentence; empty if nothing."""
    properties = tool["function"]["parameters"]["properties"]
    for name, value in arguments.items():
        wanted = properties.get(name, {})
        if "enum" in wanted and value not in wanted["enum"]:
            return f"{name} must be one of {', '.join(map(str, wanted['enum']))}"
        kinds = [one.get("type") for one in wanted.get("anyOf", [wanted])]
        if None not in kinds and not any(_is(value, kind) for kind in kinds):
            return f"{name} must be {' or '.join(map(str, kinds))}"
    return ""


def _is(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    kinds: dict[Any, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "array": list,
        "object": dict,
        "null": type(None),
    }
    return isinstance(value, kinds.get(kind, ()))


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Annotations by parameter; those that name nothing known are left out."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:
        # One of them names nothing that is known here; the others are good.
        bare = getattr(function, "__func__", function)
        names = getattr(bare, "__globals__", {})
        found: dict[str, Any] = {}
        for name, annotation in getattr(bare, "__annotations__", {}).items():
            try:
                holder = types.SimpleNamespace(__annotations__={name: annotation})
                found |= typing.get_type_hints(holder, names, include_extras=True)
            except Exception:
                found[name] = Any
        return found


def _type(annotation: Any) -> dict[str, Any]:
    """JSON schema of an annotation; empty, which allows anything, for what JSON has not."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        described = _type(arguments[0])
        for more in arguments[1:]:
            if isinstance(more, str):
                described["description"] = more
        return described
    if origin is typing.Literal:
        return _enumeration(arguments)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enumeration([member.value for member in annotation])
    if origin in (typing.Union, types.UnionType):
        return _union([_type(argument) for argument in arguments])
    if annotation in _SIMPLE:
        return {"type": _SIMPLE[annotation]}
    bare = origin or annotation
    if isinstance(bare, type) and issubclass(bare, _ARRAYS):
        return _array(bare, arguments)
    if isinstance(bare, type) and issubclass(bare, Mapping):
        values = _type(arguments[1]) if len(arguments) == 2 else {}
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    return {}


def _enumeration(values: Sequence[Any]) -> dict[str, Any]:
    kinds = {_SIMPLE.get(type(value)) for value in values}
    kind = {"type": kinds.pop()} if len(kinds) == 1 and None not in kinds else {}
    return {**kind, "enum": list(values)}


def _union(branches: list[dict[str, Any]]) -> dict[str, Any]:
    if {} in branches:
        return {}
    without_null = [branch for branch in branches if branch != {"type": "null"}]
    if len(without_null) == 1 and "enum" in without_null[0]:
        # An enumeration is closed: null has to stand in it.
        return {"enum": [*without_null[0]["enum"], None]}
    return {"anyOf": branches}


def _array(bare: type, arguments: tuple[Any, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "array"}
    if issubclass(bare, AbstractSet):
        found["uniqueItems"] = True
    kinds = [argument for argument in arguments if argument is not Ellipsis]
    items = [_type(kind) for kind in kinds]
    if items and all(item == items[0] for item in items):
        found["items"] = items[0]
    return found


def _described(docstring: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the tool, and of each of its parameters."""
    about, told = [], {}
    inside, last = False, ""
    for line in docstring.splitlines():
        if _ARGUMENTS.match(line):
            inside = True
            continue
        found = _PARAMETER.match(line)
        if _SECTION.match(line):
            break
        if found and (inside or line.lstrip().startswith(":param")):
            last = found[1]
            told[last] = found[2].strip()
        elif inside and last and line.strip():
            told[last] += " " + line.strip()
        elif not inside:
            about.append(line)
    return "\n".join(about).strip(), told
