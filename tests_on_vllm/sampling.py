"""What is asked of either vLLM, and how it is compared with the trainer's own model."""

from __future__ import annotations

import asyncio
from typing import Any

import torch

from trainer.chat import ChatFormat
from trainer.generation import Completion, GenerationRequest, Generator
from trainer.grammar import Grammar

SCHEMA = '{"type":"object","properties":{"a":{"enum":["x","y"]}},"required":["a"]}'


def requests_of(tokenizer: Any) -> list[GenerationRequest]:
    """Greedy, free, one of some texts, and under a schema."""
    prompt_ids = ChatFormat(tokenizer).first("Say hello.")
    kinds = [
        (0.0, None),
        (1.0, None),
        (0.7, Grammar(choices=("left", "right"))),
        (1.0, Grammar(json_schema=SCHEMA)),
    ]
    return [
        GenerationRequest(prompt_ids, 12, temperature, grammar, stream=f"{n}")
        for n, (temperature, grammar) in enumerate(kinds)
    ]


async def sample(generator: Generator, requests: list[GenerationRequest]) -> list[Completion]:
    return await asyncio.gather(*map(generator.generate, requests))


@torch.no_grad()
def own_logprobs(model: Any, request: GenerationRequest, completion: Completion) -> list[float]:
    """What the trainer's model gives the completion's tokens."""
    start = len(request.prompt_ids)
    logits = model(torch.tensor([[*request.prompt_ids, *completion.token_ids]])).logits[0]
    logits = logits.float() / (request.temperature or 1.0)
    found = []
    places = zip(completion.token_ids, completion.allowed, strict=True)
    for place, (token, allowed) in enumerate(places):
        here = logits[start - 1 + place]
        if allowed is not None:
            forbidden = torch.ones_like(here, dtype=torch.bool)
            forbidden[list(allowed)] = False
            here = here.masked_fill(forbidden, -torch.inf)
        found.append(here.log_softmax(-1)[token].item())
    return found


@torch.no_grad()
def disturb(model: Any, share: float) -> None:
    """Other weights: noise, as large as a share of them."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        parameter.add_(share * parameter.abs().mean() * torch.randn_like(parameter))


def greedy(model: Any, prompt_ids: list[int], n: int) -> list[int]:
    ids = torch.tensor([prompt_ids])
    return model.generate(ids, max_new_tokens=n, do_sample=False)[0][len(prompt_ids) :].tolist()


async def assert_samples_as_the_trainer_would(generator: Generator, model: Any, tokenizer: Any):
    requests = requests_of(tokenizer)
    generator.begin(0)
    completions = await sample(generator, requests)
    gaps = []
    for request, completion in zip(requests, completions, strict=True):
        own = own_logprobs(model, request, completion)
        gaps += [abs(a - b) for a, b in zip(own, completion.logprobs, strict=True)]
    print(f"\nlog-probabilities of {len(gaps)} tokens differ by {max(gaps):.1e} at most")
    assert max(gaps) < 1e-3
    texts = [ChatFormat(tokenizer).text(c.token_ids) for c in completions]
    assert texts[2] in ("left", "right")
    assert texts[3] in ('{"a":"x"}', '{"a":"y"}')
    assert [c.token_ids for c in await sample(generator, requests)] == [
        c.token_ids for c in completions
    ]


async def assert_new_weights_are_sampled_from(
    generator: Generator, model: Any, tokenizer: Any, *, share: float = 0.1
):
    (request, *_) = requests_of(tokenizer)
    generator.begin(0)
    (before,) = await sample(generator, [request])
    disturb(model, share)
    generator.begin(1)
    (after,) = await sample(generator, [request])
    assert after.token_ids == greedy(model, request.prompt_ids, len(after.token_ids))
    assert after.token_ids != before.token_ids
