"""What can be said of a program without running it: it parses, what it imports, its class.

This is quality control, not protection: the sandbox protects. A program that hides an import
from these checks gains nothing.
"""

from __future__ import annotations

import ast
import hashlib

from designer.drafts import Reason

_STDLIB_TEXT = """
__future__ abc array ast base64 bisect calendar cmath collections colorsys contextlib copy
copyreg dataclasses datetime decimal difflib enum fractions functools graphlib hashlib heapq io
itertools json keyword math numbers operator pprint queue random re secrets statistics string
struct sys textwrap time traceback types typing unicodedata uuid warnings zlib
"""
# With the base class of tool-use programs, which the sandbox supplies to every runtime.
_STDLIB = frozenset([*_STDLIB_TEXT.split(), "spadework_env"])

# Modules a program may import, by runtime of the server; the empty name is its default.
ALLOWED_IMPORTS: dict[str, frozenset[str]] = {
    "": _STDLIB,
    "stdlib": _STDLIB,
    "scientific": _STDLIB | {"numpy", "scipy", "sympy", "networkx", "pandas"},
    "library": _STDLIB
    | {"numpy", "gymnasium", "minigrid", "reasoning_gym", "textarena", "textworld"},
}


class InspectionError(ValueError):
    """The program is refused unseen; `reason` says by which gate."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def inspect_program(source: str, runtime: str = "") -> None:
    """Gates 1 and 2, and of gate 3 what the text shows.

    Raises:
        InspectionError: PARSE, IMPORT or CONTRACT.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise InspectionError(Reason.PARSE, f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InspectionError(Reason.PARSE, f"{type(error).__name__}: {error}") from None
    allowed = ALLOWED_IMPORTS.get(runtime, _STDLIB)
    if refused := sorted(imported_modules(tree) - allowed):
        offered = runtime or "stdlib"
        message = f"imports {', '.join(refused)}, which the runtime {offered!r} does not offer"
        raise InspectionError(Reason.IMPORT, message)
    classes = environment_classes(tree)
    if len(classes) != 1:
        what = f"{len(classes)} ({', '.join(classes)})" if classes else "none"
        message = f"needs exactly one class whose name ends in Env; found {what}"
        raise InspectionError(Reason.CONTRACT, message)


def imported_modules(tree: ast.AST) -> set[str]:
    """Top-level names of all modules imported anywhere in the program.

    A relative import counts as ".", an import by computed name as "?".
    """
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add("." if node.level else (node.module or ".").split(".")[0])
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in ("__import__", "import_module"):
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    modules.add(first.value.split(".")[0])
                else:
                    modules.add("?")
    return modules


def environment_classes(tree: ast.Module) -> list[str]:
    """Names of the top-level classes ending in Env that no other of them builds on."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    bases = {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)}
    return [node.name for node in classes if node.name.endswith("Env") and node.name not in bases]


def program_hash(source: str) -> str:
    """Hash of the program's syntax tree: layout, comments and docstrings do not count.

    Raises:
        SyntaxError: If the source does not parse.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body
            if ast.get_docstring(node, clean=False) is not None:
                node.body = body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()
