"""One cycle of designing: prompts, completions, hints, gates."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.chat import ChatFormat
from trainer.config import DesignConfig
from trainer.endpoint import EndpointDesigner
from trainer.environments import ActiveEnvironment, DesignSample
from trainer.generation import Completion, GenerationRequest, Generator
from trainer.grammar import Grammar
from trainer.protocols import Designer


@dataclass
class DesignOutcome:
    """What a cycle of designing gave.

    Attributes:
        gates: Drafts by reason code, `OK` included.
        drafts: Completions asked for.
    """

    environments: list[ActiveEnvironment] = field(default_factory=list)
    gates: Counter[str] = field(default_factory=Counter)
    drafts: int = 0


class DesignRound:
    """Asks a model for environments until enough have passed the gates."""

    def __init__(
        self,
        designer: Designer,
        generator: Generator,
        chat: ChatFormat,
        config: DesignConfig,
        *,
        temperature: float,
        context_tokens: int,
        endpoint: EndpointDesigner | None = None,
    ) -> None:
        self._designer = designer
        self._generator = generator
        self._chat = chat
        self._config = config
        self._temperature = temperature
        self._context_tokens = context_tokens
        self._endpoint = endpoint

    async def run(self, step: int) -> DesignOutcome:
        """Fill the cycle's slots, in at most `attempts` rounds.

        Args:
            step: Training step, from 1.
        """
        outcome = DesignOutcome()
        for _ in range(self._config.attempts):
            missing = self._config.environments - len(outcome.environments)
            if missing <= 0:
                break
            await self._attempt(missing, step, outcome)
        return outcome

    async def _attempt(self, n: int, step: int, outcome: DesignOutcome) -> None:
        requests = self._designer.requests(n, step)
        texts, samples = await self._complete(requests, self._config.max_tokens)
        drafts = [
            self._designer.parse(request, text)
            for request, text in zip(requests, texts, strict=True)
        ]
        drafts = await self._add_hints(drafts)
        reports = await self._designer.validate(drafts)
        taken = {environment.env_id for environment in outcome.environments}
        outcome.drafts += len(reports)
        for report, sample in zip(reports, samples, strict=True):
            outcome.gates[report.reason] += 1
            self._designer.remember(report, step)
            # The same program twice in a cycle is one environment: its plays would be pooled.
            if not report.passed or report.env_id in taken:
                continue
            taken.add(report.env_id)
            request = report.draft.request
            outcome.environments.append(
                ActiveEnvironment(
                    env_id=report.env_id,
                    slot=len(outcome.environments),
                    skill=request.skill,
                    family=report.draft.family,
                    source=report.draft.source,
                    hint=report.draft.hint or "",
                    max_turns=request.max_turns,
                    program_id=report.program.program_id,
                    limits=report.program.limits,
                    created_step=step,
                    sample=sample,
                )
            )

    async def _add_hints(self, drafts: list[Any]) -> list[Any]:
        wanted = [
            (i, request)
            for i, draft in enumerate(drafts)
            if draft.reason is None and (request := self._designer.hint_request(draft)) is not None
        ]
        if wanted:
            texts, _ = await self._complete([r for _, r in wanted], self._config.hint_max_tokens)
            for (i, _), text in zip(wanted, texts, strict=True):
                drafts[i] = self._designer.accept_hint(drafts[i], text)
        return drafts

    async def _complete(
        self, requests: Sequence[Any], max_tokens: int
    ) -> tuple[list[str], list[DesignSample | None]]:
        if self._endpoint is not None:
            prompts = [(r.messages, r.json_schema) for r in requests]
            texts = await self._endpoint.complete(prompts, max_tokens=max_tokens)
            return texts, [None] * len(texts)
        prompts_ids = [self._chat.prompt(r.messages) for r in requests]
        completions = await asyncio.to_thread(
            self._generator.generate,
            [
                GenerationRequest(
                    prompt_ids=ids,
                    max_new_tokens=max(1, min(max_tokens, self._context_tokens - len(ids))),
                    temperature=self._temperature,
                    explore=self._config.explore if r.json_schema else 0.0,
                    grammar=Grammar(json_schema=r.json_schema) if r.json_schema else None,
                )
                for ids, r in zip(prompts_ids, requests, strict=True)
            ],
        )
        texts = [self._chat.text(c.token_ids) for c in completions]
        samples = [_sample(ids, c) for ids, c in zip(prompts_ids, completions, strict=True)]
        return texts, samples


def _sample(prompt_ids: list[int], completion: Completion) -> DesignSample:
    return DesignSample(
        prompt_ids=prompt_ids,
        completion_ids=completion.token_ids,
        logprobs=completion.logprobs,
        decisions=[int(free) for free in completion.free],
        allowed=completion.allowed,
    )
