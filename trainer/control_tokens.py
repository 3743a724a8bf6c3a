"""Keeping text that others wrote from becoming control tokens.

A chat template marks whose turn it is by special tokens, and a tokenizer takes the text of
one, wherever it stands, for the token itself. So an observation or a hint that holds
"<|im_end|>" and "<|im_start|>system" would end its own turn and speak as somebody else.
Here such text gets a blank after its first character: it reads the same, and is no token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Shapes of control tokens of well-known models, for a server whose tokenizer is not here.
_KNOWN = (
    r"<[|\uff5c][^<>|\uff5c\s]{1,64}[|\uff5c]>",
    r"</?s>",
    r"<(?:bos|eos|pad|unk|mask)>",
    r"<(?:start|end)_of_(?:turn|image)>",
    r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]",
    r"<</?SYS>>",
)


class ControlTokens:
    """The texts that stand for control tokens, and how to write them as plain text.

    Args:
        patterns: Regular expressions of those texts, each of at least two characters, the
            first and last of them no blanks: one more blank must make another text of it.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._pattern = re.compile("|".join(patterns))

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, template: str = "") -> ControlTokens:
        """Those of one tokenizer: the special ones, and any other that its template writes.

        Args:
            tokenizer: The tokenizer.
            template: What its chat template writes around messages.
        """
        added = {token.content: token.special for token in tokenizer.added_tokens_decoder.values()}
        texts = {text for text, special in added.items() if special or text in template}
        texts |= set(tokenizer.all_special_tokens)
        # Runs of blanks, which some tokenizers have tokens for, control nothing.
        texts = {text.strip() for text in texts}
        # The longest first, or one that begins another would hide it.
        ordered = sorted((text for text in texts if len(text) > 1), key=len, reverse=True)
        return cls(map(re.escape, ordered)) if ordered else cls(["(?!)"])

    @classmethod
    def known(cls) -> ControlTokens:
        """Those of well-known models."""
        return cls(_KNOWN)

    def plain(self, text: str) -> str:
        """The text, with a blank in each control token."""
        while True:
            changed = self._pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
            if changed == text:
                return text
            text = changed

    def plain_everywhere(self, value: Any) -> Any:
        """A JSON value, every text in it made plain, keys as well."""
        if isinstance(value, str):
            return self.plain(value)
        if isinstance(value, dict):
            return {self.plain(str(k)): self.plain_everywhere(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain_everywhere(item) for item in value]
        return value
