"""Criteria that compare what can never be equal, or never be compared, by the types alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

_NUMBERS = frozenset({"int", "float", "bool"})
_SETS = frozenset({"set", "frozenset"})
_PLAIN = _NUMBERS | _SETS | {"str", "list", "tuple", "dict", "bytes"}
_CONTAINERS = _SETS | {"str", "list", "tuple", "dict"}
_RETURNS = {
    "len": "int",
    "int": "int",
    "sum": "int",
    "round": "int",
    "float": "float",
    "str": "str",
    "sorted": "list",
    "list": "list",
    "dict": "dict",
    "set": "set",
    "tuple": "tuple",
    "bool": "bool",
}
_SIGNS = {ast.Eq: "==", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
# A type that is not known, or may become any: nothing is said of it.
_ANY = "?"

Problem = tuple[str, int]


def impossible_declared(told: Mapping[str, Any], source: str) -> str:
    """What is wrong with the types of a declared criterion; empty if nothing is.

    Args:
        told: What the reset told of it.
        source: Of the program.
    """
    if "path" not in told:
        return ""
    path, op, expected = str(told["path"]), str(told.get("op")), str(told.get("expected"))
    found = told.get("found")
    if found is None:
        return _impossible_path(path, str(told.get("error", "")), source)
    members = told.get("members")
    if op in ("in", "contains"):
        container, value = (expected, found) if op == "in" else (found, expected)
        if container in _PLAIN and container not in _CONTAINERS:
            return f"{path} {op}: a value of type {container} contains nothing"
        if container == "str" and value in _PLAIN - {"str"}:
            return f"{path} {op}: a text never contains a value of type {value}"
        if members and all(not _comparable(str(member), str(value)) for member in members):
            kinds = " and ".join(members)
            return f"{path} {op}: the values are of type {kinds}, and {value} is looked for"
        return ""
    if _comparable(str(found), expected) or op == "!=":
        return ""
    return f"{path} is of type {found}, and never {op} a value of type {expected}"


def _impossible_path(path: str, error: str, source: str) -> str:
    root = path.split(".")[0]
    if f"has no attribute '{root}'" in error and not re.search(rf"\.{re.escape(root)}\b", source):
        return f"{path}: nothing in the program sets self.{root}"
    inside = re.search(r"AttributeError: '(\w+)' object", error)
    if inside and inside[1] in _PLAIN:
        return f"{path} goes into a value of type {inside[1]}, which has nothing inside ({error})"
    if error.startswith("ValueError"):
        return f"{path} names a place in a list that is no number ({error})"
    return ""


def impossible_raised(told: Mapping[str, Any]) -> str:
    """What a criterion's error says of it; empty where it may pass as the state changes."""
    error = str(told.get("error", ""))
    if "path" in told or "NoneType" in error:
        return ""
    if error.startswith(("NameError", "TypeError")):
        return f"the criterion raises {error}"
    return ""


def impossible_comparisons(source: str, state: Mapping[str, Any]) -> list[Problem]:
    """Comparisons in criteria, written as functions, that no state can make true.

    Args:
        source: Of the program.
        state: Types of the world after a reset: nested by key, the names of types as leaves.

    Returns:
        What is wrong, and the line, of each.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [
        problem
        for criterion in _criteria(tree)
        for node in ast.walk(criterion)
        if isinstance(node, ast.Compare) and (problem := _problem(node, state))
    ]


def _criteria(tree: ast.Module) -> Iterator[ast.AST]:
    """The functions that are given as criteria of messages."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and _name(node.func) == "Message"):
            continue
        given = [k.value for k in node.keywords if k.arg == "criterion"] + node.args[2:3]
        for one in [part for whole in given for part in _parts(whole)]:
            if isinstance(one, ast.Lambda):
                yield one
            elif _name(one) in functions:
                yield functions[_name(one)]


def _parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.List | ast.Tuple) else [node]


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _problem(node: ast.Compare, state: Mapping[str, Any]) -> Problem | None:
    sign = _SIGNS.get(type(node.ops[0]))
    if len(node.ops) != 1 or sign is None:
        return None
    left, right = (_kind(_shape(side, state)) for side in (node.left, node.comparators[0]))
    if _comparable(left, right):
        return None
    said = ast.unparse(node)[:200]
    return f"{said}: {left} {sign} {right} never holds", node.lineno


def _kind(shape: Any) -> str:
    return "dict" if isinstance(shape, Mapping) else str(shape)


def _shape(node: ast.AST, state: Mapping[str, Any]) -> Any:
    """Types of an expression's value, as far as they can be read."""
    if isinstance(node, ast.Constant):
        return type(node.value).__name__
    if isinstance(node, ast.List | ast.ListComp):
        return "list"
    if isinstance(node, ast.Dict | ast.DictComp):
        return "dict"
    if isinstance(node, ast.Tuple | ast.Set | ast.SetComp):
        return "tuple" if isinstance(node, ast.Tuple) else "set"
    if isinstance(node, ast.JoinedStr):
        return "str"
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return state.get(node.attr, _ANY) if node.value.id == "self" else _ANY
    if isinstance(node, ast.Subscript):
        return _inner(_shape(node.value, state), node.slice)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            return _inner(_shape(node.func.value, state), node.args[0])
        return _RETURNS.get(node.func.id, _ANY) if isinstance(node.func, ast.Name) else _ANY
    return _ANY


def _inner(shape: Any, key: ast.AST) -> Any:
    """What a mapping holds at a key; where that is not known, what it holds at all of them."""
    if not isinstance(shape, Mapping):
        return _ANY
    if isinstance(key, ast.Constant):
        return shape.get(str(key.value), _ANY)
    inner = list(shape.values())
    return inner[0] if inner and all(_kind(one) == _kind(inner[0]) for one in inner) else _ANY


def _comparable(left: str, right: str) -> bool:
    """Whether values of these types can be equal, or stand before one another."""
    if left not in _PLAIN or right not in _PLAIN:
        return True
    return left == right or {left, right} <= _NUMBERS or {left, right} <= _SETS
