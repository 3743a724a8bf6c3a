"""What a completion may look like, enforced while it is sampled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import xgrammar
from transformers import PreTrainedTokenizerBase

from trainer.models import CHARACTERS


@dataclass(frozen=True)
class Grammar:
    """A JSON schema, or a choice of whole texts; exactly one is set."""

    json_schema: str = ""
    choices: tuple[str, ...] = ()

    def ebnf(self) -> str:
        """The same in xgrammar's notation, for a server that samples under it.

        Raises:
            ValueError: If the schema cannot be a grammar.
        """
        if not self.json_schema:
            return "root ::= " + " | ".join(json.dumps(choice) for choice in self.choices)
        try:
            # One spelling only: spaces are not decisions worth learning about.
            grammar = xgrammar.Grammar.from_json_schema(
                self.json_schema, any_whitespace=False, separators=(",", ":")
            )
        except RuntimeError as error:
            raise ValueError(f"the grammar does not compile: {error}") from error
        return str(grammar)


class GrammarCompiler:
    """Compiles grammars for one tokenizer, each once.

    Attributes:
        known_masks: Token ids by bitmask: places where the same tokens are allowed share
            one tuple.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, vocab_size: int, stop_ids: list[int]
    ) -> None:
        self._info = _tokenizer_info(tokenizer, vocab_size, stop_ids)
        self._compiler = xgrammar.GrammarCompiler(self._info, max_threads=1)
        self._compiled: dict[Grammar, xgrammar.CompiledGrammar] = {}
        self.known_masks: dict[bytes, tuple[int, ...]] = {}

    def matcher(self, grammar: Grammar) -> xgrammar.GrammarMatcher:
        """A fresh matcher at the start of the grammar.

        Raises:
            ValueError: If the grammar cannot be compiled.
        """
        if grammar not in self._compiled:
            self._compiled[grammar] = self._compile(grammar)
        return xgrammar.GrammarMatcher(self._compiled[grammar])

    def _compile(self, grammar: Grammar) -> xgrammar.CompiledGrammar:
        try:
            return self._compiler.compile_grammar(grammar.ebnf())
        except RuntimeError as error:
            raise ValueError(f"the grammar does not compile: {error}") from error

    def allowed(self, grammar: Grammar, token_ids: Sequence[int]) -> list[AllowedTokens]:
        """By token of a completion sampled elsewhere, what its grammar allowed there.

        Raises:
            ValueError: If the grammar does not compile, or a token is not among what it allowed.
        """
        matcher = self.matcher(grammar)
        places: list[AllowedTokens] = []
        for token_id in token_ids:
            logits = torch.zeros(1, self._info.vocab_size)
            places += constrain(logits, [matcher], self.known_masks)
            if not matcher.is_terminated() and not matcher.accept_token(token_id):
                raise ValueError(f"token {token_id} is not among what its grammar allowed")
        return places


AllowedTokens = tuple[int, ...] | None
"""The tokens that a grammar allowed at one place; None for all of them."""


def constrain(
    logits: torch.Tensor,
    matchers: Sequence[xgrammar.GrammarMatcher | None],
    known_masks: dict[bytes, tuple[int, ...]],
) -> list[AllowedTokens]:
    """Rule out what the rows' grammars forbid, in place.

    Args:
        logits: (rows, vocabulary), float32.
        matchers: By row, where its grammar stands; None for a row without.
        known_masks: Of the grammars' compiler.

    Returns:
        By row, what was allowed.
    """
    allowed: list[AllowedTokens] = [None] * len(matchers)
    places = [(r, m) for r, m in enumerate(matchers) if m is not None and not m.is_terminated()]
    if not places:
        return allowed
    bitmask = xgrammar.allocate_token_bitmask(*logits.shape)
    for row, matcher in places:
        matcher.fill_next_token_bitmask(bitmask, row)
    rows = [row for row, _ in places]
    xgrammar.apply_token_bitmask_inplace(logits, bitmask, indices=rows)
    for row in rows:
        key = bitmask[row].numpy().tobytes()
        if key not in known_masks:
            known_masks[key] = tuple(torch.isfinite(logits[row]).nonzero()[:, 0].tolist())
        allowed[row] = known_masks[key]
    return allowed


def _tokenizer_info(
    tokenizer: PreTrainedTokenizerBase, vocab_size: int, stop_ids: list[int]
) -> xgrammar.TokenizerInfo:
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    if all(character in tokenizer.get_vocab() for character in CHARACTERS):
        specials = set(tokenizer.all_special_tokens)
        # An empty text is what xgrammar takes for a token that no grammar may produce.
        encoded = ["" if token in specials else token for token in tokens]
        return xgrammar.TokenizerInfo(
            encoded, xgrammar.VocabType.RAW, vocab_size=vocab_size, stop_token_ids=stop_ids
        )
    return xgrammar.TokenizerInfo.from_huggingface(
        tokenizer, vocab_size=vocab_size, stop_token_ids=stop_ids
    )
