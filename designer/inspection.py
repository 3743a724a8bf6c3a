"""What can be said of a program without running it: it parses, what it imports, its class.

This is quality control, not protection: the sandbox protects. A program that hides an import
from these checks gains nothing.
"""

from __future__ import annotations

import ast
import re
import sys

from designer.drafts import Reason
from designer.findings import refusal

_STDLIB_TEXT = """
__future__ abc array ast base64 bisect calendar cmath collections colorsys contextlib copy
copyreg dataclasses datetime decimal difflib enum fractions functools graphlib hashlib heapq io
itertools json keyword math numbers operator pprint queue random re secrets statistics string
struct sys textwrap time traceback types typing unicodedata uuid warnings zlib
"""
# With the base class of tool-use programs, which the sandbox supplies to every runtime.
ALLOWED_STDLIB = frozenset([*_STDLIB_TEXT.split(), "spadework_env"])

# What else a program may import, by runtime of the server: the packages that were put there to
# be played with. The empty name is the default runtime. Of a runtime that is not listed, loading
# the program tells which packages it has.
PACKAGES: dict[str, frozenset[str]] = {
    "": frozenset(),
    "stdlib": frozenset(),
    "library": frozenset(
        "gymnasium matplotlib minigrid mpmath networkx numpy reasoning_gym sympy".split()
    ),
}
_CLOCK = re.compile(
    r"\b(time|time_ns|now|utcnow|today|localtime|gmtime|ctime|asctime|strftime|monotonic"
    r"|perf_counter|process_time)(_ns)?\s*\("
)

# What an import that names no module is called.
_IMPORT_WORDS = {".": "a module relative to itself", "?": "a module by a computed name"}


def inspect_program(source: str, runtime: str = "") -> None:
    """Gates 1 and 2, and of gate 3 what the text shows.

    Raises:
        RefusedError: PARSE, IMPORT or CONTRACT.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        line = error.lineno or 0
        raise refusal(
            Reason.PARSE, f"line {line}: {error.msg}", phase="parse", line=line
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        message = f"{type(error).__name__}: {error}"
        raise refusal(Reason.PARSE, message, phase="parse") from None
    imported = imported_modules(tree)
    if refused := sorted(name for name in imported if not is_allowed(name, runtime)):
        allowed = ALLOWED_STDLIB | PACKAGES.get(runtime, frozenset())
        offered = runtime or "stdlib"
        names = ", ".join(_IMPORT_WORDS.get(name, name) for name in refused)
        raise refusal(
            Reason.IMPORT,
            f"imports {names}, which the runtime {offered!r} does not offer",
            advice=f"Import nothing but {', '.join(sorted(allowed))}; write the rest yourself.",
            phase="parse",
            line=min(imported[name] for name in refused),
        )
    classes = environment_classes(tree)
    if len(classes) > 1 or not (classes or _has_factory(tree)):
        found = ", ".join(f"{node.name} in line {node.lineno}" for node in classes)
        what = f"{len(classes)} ({found})" if classes else "none"
        message = f"needs exactly one class whose name ends in Env; found {what}"
        line = classes[1].lineno if classes else 0
        raise refusal(Reason.CONTRACT, message, phase="parse", line=line)


def is_allowed(module: str, runtime: str) -> bool:
    """Whether a program may import this top-level module in this runtime of the server."""
    if module in ALLOWED_STDLIB:
        return True
    packages = PACKAGES.get(runtime)
    if packages is None:
        return module not in sys.stdlib_module_names and module not in _IMPORT_WORDS
    return module in packages


def imported_modules(tree: ast.AST) -> dict[str, int]:
    """Top-level names of all modules imported anywhere in the program, each with a line.

    A relative import counts as ".", an import by computed name as "?".
    """
    modules: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." if node.level else (node.module or ".").split(".")[0]]
        elif isinstance(node, ast.Call) and _called(node) in ("__import__", "import_module"):
            first = node.args[0] if node.args else None
            known = isinstance(first, ast.Constant) and isinstance(first.value, str)
            names = [first.value.split(".")[0] if known else "?"]  # type: ignore[union-attr]
        else:
            continue
        for name in names:
            modules.setdefault(name, node.lineno)
    return modules


def _called(node: ast.Call) -> str:
    return str(getattr(node.func, "id", getattr(node.func, "attr", "")))


def environment_classes(tree: ast.Module) -> list[ast.ClassDef]:
    """The top-level classes that the sandbox would take for the environment.

    Those ending in Env that no other class builds on; where there is none, those that define
    reset and step.
    """
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    bases = {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)}
    leaves = [node for node in classes if node.name not in bases]
    named = [node for node in leaves if node.name.endswith("Env")]
    return named or [node for node in leaves if {"reset", "step"} <= _methods(node)]


def _methods(node: ast.ClassDef) -> set[str]:
    return {part.name for part in node.body if isinstance(part, ast.FunctionDef)}


def _has_factory(tree: ast.Module) -> bool:
    return any(isinstance(n, ast.FunctionDef) and n.name == "make_env" for n in tree.body)


def reads_clock(source: str) -> bool:
    """Whether a program seems to look at a clock; one that only times itself does, too."""
    return _CLOCK.search(source) is not None
