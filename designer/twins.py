"""Gate 12: has this program been written before, under other names?

A program is reduced to what it does: its syntax tree, without layout, remarks and docstrings,
names replaced by the order in which they come. Equal trees are the same program. Trees that
hardly differ, texts left out, are the same program in another dress.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from rapidfuzz import process
from rapidfuzz.distance import Indel

# Names that the contract gives: what a method of that name does differs from another's.
_CONTRACT = frozenset(
    ["reset", "step", "solution", "verify", "close", "get_tools", "setup", "self", "__init__"]
)
# Letters for shapes: none of them half of a character, and all that there are.
_FIRST_CODE, _HALVES, _AFTER_HALVES, _LAST_CODE = 0x100, 0xD800, 0xE000, 0x10FFFF


@dataclass(frozen=True)
class Twin:
    """A program that another one repeats.

    Attributes:
        name: What it is called.
        similarity: Of the two trees, in [0, 1]; 1 of equal ones.
    """

    name: str
    similarity: float


class Trees:
    """Reads programs, each once."""

    def __init__(self) -> None:
        self._codes: dict[str, str] = {}
        self._read: dict[str, tuple[str, str] | None] = {}

    def read(self, source: str) -> tuple[str, str] | None:
        """The program's identity, and its shape: a letter for each node of its tree.

        None if it does not parse.
        """
        if source not in self._read:
            try:
                labels = list(_labels(_stripped(ast.parse(source))))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self._read[source] = None
            else:
                shape = "".join(self._letter(shape) for _, shape in labels)
                self._read[source] = _key(whole for whole, _ in labels), shape
        return self._read[source]

    def _letter(self, shape: str) -> str:
        if shape not in self._codes:
            code = _FIRST_CODE + len(self._codes)
            code += (_AFTER_HALVES - _HALVES) * (code >= _HALVES)
            # Whatever comes after a million kinds of node is alike.
            self._codes[shape] = chr(min(code, _LAST_CODE))
        return self._codes[shape]


class Twins:
    """Programs seen so far, and which of them another one repeats.

    Args:
        trees: Reads them.
        similarity: Trees at least as similar as that are twins; above 1, only equal ones are.
    """

    def __init__(self, trees: Trees, similarity: float) -> None:
        self._trees = trees
        self._similarity = similarity
        self._names: dict[str, str] = {}
        self._shapes: dict[str, str] = {}

    def add(self, source: str, name: str, *, by_shape: bool = True) -> None:
        """Remember a program; the first of equal ones keeps its name.

        Args:
            source: The program; one that does not parse is not remembered.
            name: Of it, in what is said of its twins.
            by_shape: Whether programs that are only similar to it are its twins, too. Those
                that our code compiles share most of it, and differ by a few constants.
        """
        if (read := self._trees.read(source)) is not None:
            key, shape = read
            self._names.setdefault(key, name)
            if by_shape:
                self._shapes.setdefault(name, shape)

    def find(
        self, source: str, *, by_shape: bool = True, except_for: Collection[str] = ()
    ) -> Twin | None:
        """The program that this one repeats; None if there is none, or it does not parse.

        Args:
            source: The program.
            by_shape: Whether similar ones count, too.
            except_for: Names of programs that it may be similar to, but not equal: its parents.
        """
        if (read := self._trees.read(source)) is None:
            return None
        key, shape = read
        if key in self._names:
            return Twin(self._names[key], 1.0)
        if not by_shape or self._similarity > 1:
            return None
        others = {name: other for name, other in self._shapes.items() if name not in except_for}
        found = process.extractOne(
            shape, others, scorer=Indel.normalized_similarity, score_cutoff=self._similarity
        )
        return Twin(found[2], found[1]) if found is not None else None


def program_key(source: str) -> str:
    """Identity of a program: layout, remarks, docstrings and the choice of names do not count.

    Raises:
        SyntaxError: If the source does not parse, or nests deeper than anything reads.
    """
    try:
        return _key(whole for whole, _ in _labels(_stripped(ast.parse(source))))
    except (RecursionError, MemoryError):
        raise SyntaxError("nested too deeply") from None


def _key(labels: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(labels).encode("utf-8", "surrogatepass")).hexdigest()


def _stripped(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


class _Given:
    """The names that the program gives, and might give otherwise.

    Names of builtins, modules and what they have say what is done: `min` is not `max`.

    Attributes:
        names: Of variables, arguments, functions, classes and imported modules.
        attributes: Of what it stores in objects, and of its methods.
    """

    def __init__(self, tree: ast.AST) -> None:
        names: set[str] = set()
        attributes: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
                attributes.add(node.name)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                attributes.add(node.attr)
            elif isinstance(node, ast.alias):
                names.add(node.asname or node.name.partition(".")[0])
            elif isinstance(node, ast.ExceptHandler) and node.name:
                names.add(node.name)
        self.names = names - _CONTRACT
        self.attributes = attributes - _CONTRACT


def _labels(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """For each node, in order: what it is, in full and without what only dresses it."""
    given = _Given(tree)
    numbers: dict[str, int] = {}

    def called(name: str, among: Collection[str] = given.names) -> str:
        return f"#{numbers.setdefault(name, len(numbers))}" if name in among else name

    def words_of(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.alias):
            # The module says what it is, whatever it is called here.
            yield node.name
            yield called(node.asname or node.name.partition(".")[0])
            return
        if isinstance(node, ast.Attribute):
            yield called(node.attr, given.attributes)
            return
        for field, value in ast.iter_fields(node):
            if isinstance(value, str) and field not in ("type_comment", "kind"):
                yield value if isinstance(node, ast.ImportFrom) else called(value)
            elif isinstance(value, list) and value and isinstance(value[0], str):
                yield from map(called, value)

    def visit(node: ast.AST) -> Iterator[tuple[str, str]]:
        kind = type(node).__name__
        if isinstance(node, ast.Constant):
            whole = f"{kind} {node.value!r}"
            yield whole, kind if isinstance(node.value, str | bytes) else whole
            return
        words = list(words_of(node))
        said = [word for word in words if not word.startswith("#")]
        yield " ".join([kind, *words]), " ".join([kind, *said])
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.Load | ast.Store | ast.Del):
                yield from visit(child)
        yield f"/{kind}", f"/{kind}"

    return visit(tree)
