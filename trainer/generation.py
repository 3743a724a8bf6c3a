"""What samples completions, as everything else sees it: one small interface.

Designing, hinting and playing ask one generator, each for one completion at a time. Whether
requests are gathered into batches is the generator's own affair: `GenerationQueue` does it for
a model in this process, a server does it itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainer.grammar import AllowedTokens, Grammar


class GenerationError(RuntimeError):
    """A back end gave no completion, for no reason of the request's: later, it may.

    A play that meets it is lost, as after a fault of the sandbox.
    """


@dataclass(eq=False)
class Batch:
    """Requests that are sampled together and with no others, when all of them are there.

    What a model in this process computes differs in the last digits with what shares a batch;
    with this, what shares one does not depend on how long anything takes. A server may ignore it.

    Attributes:
        size: Requests that will name it.
    """

    size: int


@dataclass(frozen=True)
class GenerationRequest:
    """One completion to sample.

    Attributes:
        prompt_ids: The whole context so far.
        max_new_tokens: Longest completion.
        temperature: 0 takes the likeliest token.
        grammar: What the completion may look like; None for anything.
        key: Names the row across calls, where its context grows; None for a single call.
        explore: Share of the choices that are drawn evenly from what the grammar allows.
        stream: Names the random numbers: after the same `begin`, the same stream draws the same
            ones, whatever else is sampled. Empty for the next of the unnamed ones.
        batch: What it must be sampled together with; None for whatever else waits.
    """

    prompt_ids: Sequence[int]
    max_new_tokens: int
    temperature: float = 1.0
    grammar: Grammar | None = None
    key: str | None = None
    explore: float = 0.0
    stream: str = ""
    batch: Batch | None = None


@dataclass
class Completion:
    """One sampled completion.

    Attributes:
        token_ids: As sampled, the end token included if there was one.
        logprobs: Of each token among those that its grammar allowed, at the request's
            temperature and with its exploration: the numbers that the update compares its
            own with.
        allowed: By token, what its grammar allowed; None for anything.
        ended: Whether the model closed it with the end token.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    allowed: list[AllowedTokens] = field(default_factory=list)
    ended: bool = False

    @property
    def free(self) -> list[bool]:
        """By token, whether more than one was allowed; the others decided nothing."""
        return [a is None or len(a) > 1 for a in self.allowed]


@dataclass
class GenerationCount:
    """Work done since it was last reset.

    Attributes:
        tokens: Sampled.
        seconds: During which something was being sampled.
    """

    tokens: int = 0
    seconds: float = 0.0


class Generator(Protocol):
    """Anything that samples completions, for any number of callers at once.

    Attributes:
        count: What it did.
        exact: Whether its log-probabilities are those that the trainer computes. If not, the
            update computes its own and weighs by their ratio.
    """

    count: GenerationCount
    exact: bool

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one completion.

        Raises:
            ValueError: If the request cannot be served, whenever it is asked.
            GenerationError: If it could not be served now.
        """
        ...

    def forget(self, key: str) -> None:
        """No request will name this key any more; whatever was kept for it can go."""
        ...

    def begin(self, seed: int) -> None:
        """Start afresh with the weights as they are now, and sampling seeded.

        Only while nobody waits for a completion.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...
