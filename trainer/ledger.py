"""What an endpoint answered, kept: a run that goes on pays for nothing twice.

One JSON line an answer, written when it arrives. The key is a hash of the request, its seed
included, so that the same request of a resumed run is answered from here. Texts stay on the
disk: a long run has hundreds of megabytes of them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.budget import Usage

LEDGER_FILE = "endpoint.jsonl"


class LedgerError(RuntimeError):
    """The file is no ledger; the message names the line."""


@dataclass(frozen=True)
class KeptAnswer:
    """An answer of an earlier run.

    Attributes:
        text: As it was.
        tokens_out: Tokens that it had.
    """

    text: str
    tokens_out: int


class Ledger:
    """Usage, and the answers of earlier runs.

    Args:
        path: The file, made with its folder when the first answer comes; None for none.

    Raises:
        LedgerError: If the file holds something else.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        # Where the lines of answers begin, by key.
        self._places: dict[str, int] = {}
        self.usage = Usage()
        if path is not None and path.is_file():
            self._read(path)

    @staticmethod
    def key(body: dict[str, Any]) -> str:
        """Name of a request."""
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]

    def answer(self, key: str) -> KeptAnswer | None:
        """What an earlier run got for the request; None if none did."""
        if self._path is None or key not in self._places:
            return None
        with self._path.open("rb") as file:
            file.seek(self._places[key])
            row = json.loads(file.readline())
        return KeptAnswer(str(row["text"]), row["tokens_out"])

    def record(self, key: str, text: str | None, usage: Usage) -> None:
        """Keep an answer, or (None) a request that was paid for in vain."""
        self.usage += usage
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        row = {"key": key, "text": text, "tokens_in": usage.tokens_in}
        row |= {"tokens_out": usage.tokens_out, "assumed": usage.assumed}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _read(self, path: Path) -> None:
        place = 0
        with path.open("r+b") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    break
                self._take(path, number, line, place)
                place += len(line)
            # Killed while it wrote: that answer is asked for again.
            file.truncate(place)

    def _take(self, path: Path, number: int, line: bytes, place: int) -> None:
        try:
            row = json.loads(line)
            usage = Usage(1, row["tokens_in"], row["tokens_out"], row["assumed"])
            key, text = row["key"], row["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerError(
                f"{path}, line {number} is no answer of an endpoint ({error!r}); move the "
                "file away, and its answers are asked for again"
            ) from error
        self.usage += usage
        if text is not None:
            self._places[key] = place
