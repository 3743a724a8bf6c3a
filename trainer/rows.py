"""What an update is made of: sequences of both roles, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from trl.trainer.utils import pad

from trainer.grammar import AllowedTokens

AGENT, DESIGNER = "agent", "designer"


@dataclass
class Row:
    """One sequence of the update.

    Attributes:
        role: `agent` or `designer`.
        prompt_ids: Context that is never trained on.
        completion_ids: Sampled tokens, with environment text between them.
        mask: By completion token, 1 where the loss applies.
        advantages: By completion token, unitless.
        logprobs: By completion token, as sampled.
        allowed: By completion token, what its grammar allowed; None for anything.
        stale: Whether its log-probabilities are not those of the weights as they are: these have
            moved since it was sampled, or another engine computed them.
    """

    role: str
    prompt_ids: list[int]
    completion_ids: list[int]
    mask: list[int]
    advantages: list[float]
    logprobs: list[float]
    allowed: list[AllowedTokens]
    stale: bool = False

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


def inert_row(pad_id: int) -> Row:
    """A row that changes nothing, to fill a batch up."""
    return Row(AGENT, [pad_id], [pad_id], [0], [0.0], [0.0], [None])


NOT_DECIDED = -1


@dataclass
class TokenChoices:
    """What the agent could choose from at each place of a batch.

    A token that was sampled under a grammar was drawn from a renormalised distribution; the
    loss must see the same one, or its ratios and entropies are those of another policy.

    Attributes:
        index: (rows, completion tokens), place in `sets`; NOT_DECIDED where the loss does
            not look.
        sets: (sets, vocabulary) bool; the first allows everything.
    """

    index: torch.Tensor
    sets: torch.Tensor

    @classmethod
    def of(cls, rows: Sequence[Row], vocab_size: int, device: torch.device) -> TokenChoices:
        """Collect the choices of some rows."""
        places: dict[AllowedTokens, int] = {None: 0}
        index = [
            torch.tensor(
                [
                    places.setdefault(allowed, len(places)) if decided else NOT_DECIDED
                    for allowed, decided in zip(row.allowed, row.mask, strict=True)
                ]
            )
            for row in rows
        ]
        sets = torch.zeros(len(places), vocab_size, dtype=torch.bool)
        for allowed, place in places.items():
            sets[place, slice(None) if allowed is None else list(allowed)] = True
        return cls(pad(index, padding_value=NOT_DECIDED).to(device), sets.to(device))

    @property
    def constrained(self) -> bool:
        """Whether any place has less than the whole vocabulary."""
        return len(self.sets) > 1

    def score(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        index: torch.Tensor,
        temperature: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy of each decided token among what was allowed there.

        Args:
            model: Weights to score under.
            input_ids: (rows, prompt and completion tokens).
            attention_mask: Same shape.
            index: (rows, completion tokens) of these rows.
            temperature: Divides the logits.

        Returns:
            Log-probabilities and entropies, (rows, completion tokens); 0 where nothing was
            decided.
        """
        decided = index != NOT_DECIDED
        columns = decided.any(dim=0).nonzero()[:, 0]
        if not len(columns):
            columns = columns.new_zeros(1)
        first = input_ids.size(1) - index.size(1)
        output = model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            logits_to_keep=columns + first - 1,
        )
        allowed = self.sets[index[:, columns].clamp(min=0)]
        logits = (output.logits.float() / temperature).masked_fill(~allowed, -torch.inf)
        logps = logits.log_softmax(dim=-1)
        # 0 * -inf is NaN, where a probability of 0 adds nothing to the entropy.
        entropies = -(logps.exp() * logps.masked_fill(~allowed, 0.0)).sum(dim=-1)
        tokens = input_ids[:, columns + first]
        chosen = logps.gather(2, tokens[..., None])[..., 0]
        here = decided[:, columns]
        filled = [torch.zeros(index.shape, device=index.device) for _ in range(2)]
        return (
            filled[0].index_copy(1, columns, torch.where(here, chosen, 0.0)),
            filled[1].index_copy(1, columns, torch.where(here, entropies, 0.0)),
        )
