"""Documents to draw an environment's setting from: what keeps a designer from writing one game.

A corpus is a JSON Lines file, one document a line, its text under `text` or `orig_doc`; an
`id` names it, else a hash of the text does. All lines are checked when it is opened; texts
stay on the disk until they are drawn.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

MAX_WORDS = 6_000
# Bounds what one line of a file may take of the memory: far above 6,000 words.
MAX_LINE_BYTES = 16 * 2**20
TEXT_KEYS = ("text", "orig_doc")
# The name that stands for the corpus of this package.
EMBEDDED = "embedded"
_WORD = re.compile(r"\S+")
_ID_CHARACTERS = 80


class CorpusError(ValueError):
    """A file is no corpus; the message names it, the line, and what is wrong with it."""


@dataclass(frozen=True)
class Document:
    """A document as a prompt shows it: cut after so many words.

    Attributes:
        document_id: Its `id`, or the first 16 digits of its text's SHA-256.
    """

    document_id: str
    text: str


class Corpus:
    """The documents of one file, drawn uniformly.

    Args:
        path: A JSON Lines file.
        max_words: Words of a document that a prompt gets.

    Raises:
        CorpusError: If the file cannot be read, has no document, or a line is no document.
    """

    def __init__(self, path: Path, max_words: int = MAX_WORDS) -> None:
        self._path = path
        self._max_words = max_words
        self._starts = array("Q")
        self._ids: list[str] = []
        try:
            self._scan()
        except OSError as error:
            raise CorpusError(f"the corpus {path} cannot be read: {error.strerror}") from error
        if not self._ids:
            raise CorpusError(f"the corpus {path} holds no document")

    @classmethod
    def named(cls, name: str, max_words: int = MAX_WORDS) -> Corpus:
        """The corpus of this package ("embedded"), or of a file.

        Raises:
            CorpusError: See the class.
        """
        if name != EMBEDDED:
            return cls(Path(name), max_words)
        place = resources.files("designer") / "documents" / "embedded.jsonl"
        with resources.as_file(place) as path:
            return cls(path, max_words)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> Document:
        with self._path.open("rb") as file:
            file.seek(self._starts[index])
            text = _text(json.loads(file.readline()))
        # JSON can hold halves of characters, which no request could carry.
        whole = _cut(text, self._max_words).encode("utf-8", "replace").decode("utf-8")
        return Document(self._ids[index], whole)

    def draw(
        self, rng: random.Random, used: Mapping[str, int] | None = None, quota: int = 0
    ) -> Document:
        """Draw a document, each with the same chance.

        Args:
            rng: Source of chance.
            used: How often each document, by its id, was drawn before.
            quota: Draws of a document until all others had as many: when all have reached
                it, the next round begins. 0 for no quota.
        """
        if not quota:
            return self[rng.randrange(len(self))]
        counts = [(used or {}).get(document_id, 0) for document_id in self._ids]
        bound = (min(counts) // quota + 1) * quota
        return self[rng.choice([index for index, count in enumerate(counts) if count < bound])]

    def _scan(self) -> None:
        with self._path.open("rb") as file:
            number = start = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    self._fail(number, f"is longer than {MAX_LINE_BYTES:,} bytes")
                if line.strip():
                    self._starts.append(start)
                    self._ids.append(self._document_id(number, line))
                start += len(line)

    def _document_id(self, number: int, line: bytes) -> str:
        try:
            row = json.loads(line)
        except UnicodeDecodeError:
            self._fail(number, "is not UTF-8")
        except ValueError as error:
            self._fail(number, f"is not JSON: {error}")
        if not isinstance(row, dict):
            self._fail(number, f"is {type(row).__name__} and not an object with 'text'")
        text = _text(row)
        if not isinstance(text, str):
            held = ", ".join(map(repr, list(row)[:8])) or "nothing"
            self._fail(number, f"has no text under 'text' or 'orig_doc'; it has {held}")
        if not text.strip():
            self._fail(number, "has an empty text")
        given = row.get("id")
        if isinstance(given, str | int) and str(given):
            return str(given)[:_ID_CHARACTERS]
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def _fail(self, number: int, what: str) -> NoReturn:
        raise CorpusError(f"{self._path}, line {number} {what}")


def _text(row: Mapping[str, Any]) -> Any:
    return next((row[key] for key in TEXT_KEYS if isinstance(row.get(key), str)), None)


def _cut(text: str, words: int) -> str:
    """The first so many words, white space between them as it was."""
    end = 0
    for number, match in enumerate(_WORD.finditer(text)):
        if number == words:
            return text[:end]
        end = match.end()
    return text
