"""Repair of the slip that breaks most generated programs: single braces in an f-string.

Models write f"Answer as \\boxed{number}" or f"send {"x": 1}" and mean the braces. Each field
of each f-string is looked at alone: one that is no expression, is an ellipsis, or uses a name
that the program binds nowhere gets its braces doubled. All else is left as it stands. The
source is read and never run.
"""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass

_PREFIX = re.compile(r"(?<![\w\"'])([fF][rR]?|[rR][fF])(\"\"\"|'''|\"|')")
_STRING = re.compile(r"(?<!\w)([bBrRuU]{0,2})(\"\"\"|'''|\"|')")

# What the sandbox binds for programs that forget to import it.
_GIVEN_TEXT = """
abc collections copy dataclasses enum functools heapq itertools json math operator random re
string sys time typing np numpy ABC abstractmethod Counter OrderedDict defaultdict deque
namedtuple dataclass field Enum lru_cache reduce combinations permutations product deepcopy
Any Callable Dict Iterable Iterator List Literal NamedTuple Optional Sequence Set
SupportsFloat Tuple Type TypeVar Union self
"""
_GIVEN_NAMES = frozenset(dir(builtins)) | frozenset(_GIVEN_TEXT.split())


@dataclass(frozen=True)
class Repair:
    """A repaired source and how many fields were changed."""

    source: str
    fields: int


def repair_braces(source: str) -> Repair:
    """Double the braces that an f-string cannot mean as a field.

    A source that parses is only changed where a field names something that is bound nowhere
    or is an ellipsis: it would raise, or print "Ellipsis", in any case.
    """
    fixed, count = _rewrite(source, known=None)
    try:
        tree = ast.parse(fixed)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Repair(fixed, count)
    fixed, more = _rewrite(fixed, known=_bound_names(tree) | _GIVEN_NAMES)
    return Repair(fixed, count + more)


def _bound_names(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
    return names


def _rewrite(source: str, known: set[str] | frozenset[str] | None) -> tuple[str, int]:
    """Rewrite every f-string; `known` None means only what cannot be parsed."""
    pieces: list[str] = []
    place = changed = 0
    while place < len(source):
        if source[place] == "#":
            end = source.find("\n", place)
            end = len(source) if end < 0 else end
            pieces.append(source[place:end])
            place = end
            continue
        match = _PREFIX.match(source, place) or _STRING.match(source, place)
        if match is None:
            pieces.append(source[place])
            place += 1
            continue
        quote = match.group(2)
        is_format = "f" in match.group(1).lower()
        end = _string_end(source, match.end(), quote, is_format)
        body = source[match.end() : end]
        if is_format:
            body, count = _rewrite_body(body, known, quote)
            changed += count
        pieces += [match.group(0), body, quote if end < len(source) else ""]
        place = end + len(quote)
    return "".join(pieces), changed


def _string_end(source: str, place: int, quote: str, is_format: bool) -> int:
    """Find where a string's closing quote starts.

    Inside the braces of an f-string in single quotes the same quote may stand as text
    (f"{"x": 1}"): the end is then the quote after the brace closed, if it closes on the line.
    """
    start = place
    while place < len(source):
        if source[place] == "\\":
            place += 2
            continue
        if source.startswith(quote, place):
            if is_format and len(quote) == 1:
                inside = source[start:place]
                if inside.count("{") > inside.count("}"):
                    line_end = source.find("\n", place)
                    rest = source[place : line_end if line_end >= 0 else len(source)]
                    if "}" in rest and quote in rest[rest.index("}") :]:
                        place += 1
                        continue
            return place
        if source[place] == "\n" and len(quote) == 1:
            return place
        place += 1
    return len(source)


def _rewrite_body(
    body: str, known: set[str] | frozenset[str] | None, quote: str
) -> tuple[str, int]:
    pieces: list[str] = []
    place = changed = 0
    while place < len(body):
        char = body[place]
        if body.startswith(("{{", "}}"), place):
            pieces.append(body[place : place + 2])
            place += 2
        elif char == "}":
            pieces.append("}}")
            changed += 1
            place += 1
        elif char != "{":
            pieces.append(char)
            place += 1
        else:
            end = _field_end(body, place)
            if end < 0:
                pieces.append("{{")
                changed += 1
                place += 1
            elif _is_field(body[place + 1 : end], known, quote):
                pieces.append(body[place : end + 1])
                place = end + 1
            else:
                inner, more = _rewrite_body(body[place + 1 : end], known, quote)
                pieces += ["{{", _escape_quotes(inner, quote), "}}"]
                changed += 1 + more
                place = end + 1
    return "".join(pieces), changed


def _escape_quotes(text: str, quote: str) -> str:
    if len(quote) > 1:
        return text
    return re.sub(r"(?<!\\)" + quote, "\\\\" + quote, text)


def _field_end(body: str, start: int) -> int:
    """Index of the brace that closes the field opened at `start`; -1 if none does."""
    depth = 0
    for place in range(start, len(body)):
        if body[place] == "{":
            depth += 1
        elif body[place] == "}":
            depth -= 1
            if depth == 0:
                return place
    return -1


def _is_field(inner: str, known: set[str] | frozenset[str] | None, quote: str) -> bool:
    if not inner.strip():
        return False
    try:
        joined = ast.parse(f"f{quote}{{{inner}}}{quote}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(joined))
    values = [n for n in nodes if isinstance(n, ast.FormattedValue)]
    # {"key": value} reads as a text constant with a format.
    if any(_is_text(n.value) and n.format_spec is not None for n in values):
        return False
    if known is None:
        return True
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    used = {n.id for n in nodes if isinstance(n, ast.Name)}
    if used - bound - known:
        return False
    return not any(isinstance(n.value, ast.Constant) and n.value.value is ... for n in values)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
