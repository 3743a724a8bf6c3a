"""The designer: asks for environments, reads what came back, has it judged, remembers it."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits

from designer import families
from designer.archive import Archive
from designer.completions import CompletionError, read_code, read_hint, read_spec
from designer.drafts import DesignRequest, Draft, GateReport, Reason
from designer.gates import Gates
from designer.hints import HintError, check_hint_text
from designer.inspection import program_hash
from designer.prompts import (
    DIFFICULTIES,
    PROMPT_STYLES,
    code_messages,
    hint_messages,
    structured_messages,
)
from designer.repair import repair_braces
from designer.settings import GateSettings

METHODS = ("structured", "free_code")

# A game answers in milliseconds. What hangs would hold up all drafts of its batch, so these
# are tighter than the server's defaults, and wide enough for a machine ten times overbooked.
DEFAULT_LIMITS = Limits(step_timeout_s=5.0, load_timeout_s=10.0)


class Designer:
    """Turns completions of a model into judged environments.

    The model is not here: whoever runs the designer answers its requests.

    Args:
        client: Connected to the sandbox that judges.
        archive: Where everything is remembered.
        method: "structured" or "free_code".
        skills: Keys of `designer.families.SKILLS`; empty for all of them.
        max_turns: Turn cap that environments are written for; `max_turns` may be set anew
            when a horizon stage moves it.
        seed: For skills, memory, and the seeds in requests.
        prompt_style: "compact" or "chat"; free code is always asked for in chat.
        skills_per_step: Skills among which one step's slots are shared out; few, so that
            several designs of a skill can be compared with each other.
        memory_size: Remembered environments in a chat prompt.
        allow_held_out: Accept worlds kept for evaluation; for use without training only.
        refuse_remembered: Refuse what an earlier step designed already. Twins in one batch
            are always refused.
        grounding: Called with (slot, step) for a document to draw a game from.
        limits: Limits of the programs' episodes, in the gates and in training.
        runtime: Runtime of the server; empty means its default.
        settings: How hard the gates look.

    Raises:
        ValueError: If the method, the style or a skill is unknown.
    """

    def __init__(
        self,
        client: AsyncSandboxClient,
        archive: Archive,
        *,
        method: str = "structured",
        skills: Sequence[str] = (),
        max_turns: int = 8,
        seed: int = 0,
        prompt_style: str = "chat",
        skills_per_step: int = 3,
        memory_size: int = 3,
        allow_held_out: bool = False,
        refuse_remembered: bool = False,
        grounding: Callable[[int, int], str] | None = None,
        limits: Limits | None = DEFAULT_LIMITS,
        runtime: str = "",
        settings: GateSettings | None = None,
    ) -> None:
        _check_choice("method", method, METHODS)
        _check_choice("prompt style", prompt_style, PROMPT_STYLES)
        for skill in skills:
            _check_choice("skill", skill, tuple(families.SKILLS))
        self.archive = archive
        self.method = method
        self.skills = tuple(skills) or tuple(families.SKILLS)
        self.max_turns = max_turns
        self._seed = seed
        self._prompt_style = prompt_style
        self._skills_per_step = skills_per_step
        self._memory_size = memory_size
        self._allow_held_out = allow_held_out
        self._refuse_remembered = refuse_remembered
        self._grounding = grounding
        self._gates = Gates(client, settings=settings, limits=limits, runtime=runtime, seed=seed)
        self._step = -1
        self._asked = 0
        self._recorded = 0

    def rewind(self, step: int) -> None:
        """Forget what was recorded after `step`: a resumed run does those steps again."""
        self.archive.discard_from(step + 1)
        self._step = -1

    def requests(self, n: int, step: int) -> list[DesignRequest]:
        """Ask for n environments.

        The first call for a step forgets what the archive holds of it: a run that was
        resumed writes it anew. Further calls for the same step ask for more.

        Args:
            n: Completions wanted.
            step: Training step; `Archive.next_step` gives a fresh one.
        """
        if step != self._step:
            self.archive.discard_step(step)
            self._step, self._asked, self._recorded = step, 0, 0
        rng = random.Random(f"{self._seed} skills {step}")
        chosen = rng.sample(self.skills, min(self._skills_per_step, len(self.skills)))
        requests = []
        for _ in range(n):
            slot = self._asked
            self._asked += 1
            requests.append(self._request(slot, chosen[slot % len(chosen)], step))
        return requests

    def _request(self, slot: int, skill: str, step: int) -> DesignRequest:
        rng = random.Random(f"{self._seed} design {step} {slot}")
        memory = []
        if self.method == "free_code" or self._prompt_style == "chat":
            memory = self.archive.sample_memory(skill, self._memory_size, rng, before_step=step)
        schema = None
        if self.method == "structured":
            messages = structured_messages(self._prompt_style, skill, self.max_turns, memory)
            schema = json.dumps(families.spec_schema(skill))
        else:
            document = self._grounding(slot, step) if self._grounding else ""
            difficulty = rng.choice(DIFFICULTIES)
            messages = code_messages(skill, difficulty, self.max_turns, memory, document)
        return DesignRequest(
            slot=slot,
            skill=skill,
            method=self.method,
            messages=messages,
            json_schema=schema,
            max_turns=self.max_turns,
            seed=rng.getrandbits(31),
        )

    def parse(self, request: DesignRequest, completion: str) -> Draft:
        """Read a completion; what cannot be used has a reason and never raises."""
        if request.method == "structured":
            return self._parse_spec(request, completion)
        try:
            repaired = repair_braces(read_code(completion))
        except CompletionError as error:
            return Draft(request, completion, reason=Reason.PARSE, detail=str(error))
        detail = f"{repaired.fields} f-string fields repaired" if repaired.fields else ""
        return Draft(request, completion, source=repaired.source, detail=detail)

    def _parse_spec(self, request: DesignRequest, completion: str) -> Draft:
        try:
            spec = read_spec(completion)
        except CompletionError as error:
            return Draft(request, completion, reason=Reason.PARSE, detail=str(error))
        try:
            compiled = families.compile_spec(spec)
        except families.SpecError as error:
            return Draft(request, completion, spec=spec, reason=Reason.SPEC, detail=str(error))
        draft = Draft(
            request,
            completion,
            source=compiled.source,
            hint=compiled.hint,
            family=compiled.family,
            spec=compiled.spec,
        )
        if compiled.held_out and not self._allow_held_out:
            detail = "this world is kept for evaluation"
            return dataclasses.replace(draft, reason=Reason.HELD_OUT, detail=detail)
        return draft

    def hint_request(self, draft: Draft) -> DesignRequest | None:
        """Ask the model for the hint, the source shown; None where there is one, or no use."""
        if draft.source is None or draft.hint is not None or draft.reason is not None:
            return None
        return dataclasses.replace(
            draft.request, messages=hint_messages(draft.source), json_schema=None
        )

    def accept_hint(self, draft: Draft, completion: str) -> Draft:
        """Put the model's hint into a draft; a hint against the rules refuses the draft.

        Whether the hint holds the answer is asked by the gates, which play the oracle.
        """
        hint = read_hint(completion)
        try:
            check_hint_text(hint)
        except HintError as error:
            return dataclasses.replace(draft, hint=hint, reason=Reason.HINT, detail=str(error))
        return dataclasses.replace(draft, hint=hint)

    async def validate(
        self, drafts: Sequence[Draft], on_report: Callable[[GateReport], None] | None = None
    ) -> list[GateReport]:
        """Run the gates on drafts; never raises for a draft.

        Args:
            drafts: What was read.
            on_report: Called with each report as it comes.

        Returns:
            Reports, in the drafts' order.
        """
        return await self._gates.judge(self._without_twins(drafts), on_report)

    def _without_twins(self, drafts: Sequence[Draft]) -> list[Draft]:
        seen: dict[str, str] = {}
        if self._refuse_remembered:
            seen = {program_hash(source): "the memory" for source in self.archive.sources()}
        kept = []
        for draft in drafts:
            if draft.reason is None and draft.source is not None:
                try:
                    key = program_hash(draft.source)
                except (SyntaxError, ValueError, RecursionError):
                    key = ""  # the gates say what is wrong with it
                if key and key in seen:
                    detail = f"the same program is in {seen[key]}"
                    draft = dataclasses.replace(draft, reason=Reason.DUPLICATE, detail=detail)
                elif key:
                    seen[key] = f"slot {draft.request.slot}"
            kept.append(draft)
        return kept

    def remember(self, report: GateReport, step: int) -> None:
        """Store a verdict, refused drafts too."""
        self.archive.record_design(report, step, self._recorded)
        self._recorded += 1

    def record_plays(self, env_id: str, step: int, plays: Sequence[Mapping[str, Any]]) -> None:
        """Store an environment's plays of a step; see `Archive.record_plays`."""
        self.archive.record_plays(env_id, step, plays)

    def record_measurement(
        self,
        env_id: str,
        step: int,
        *,
        win_plain: float,
        win_hinted: float,
        regret: float,
        regret_se: float,
        regime: str,
        designer_reward: float | None,
    ) -> None:
        """Store what an environment's plays showed.

        Args:
            win_plain: Mean return without the hint.
            win_hinted: Mean return with it.
            regret: Mean difference of the pairs, signed.
            regret_se: Its paired standard error.
            regime: Name of the regime.
            designer_reward: Reward of the designer, at the steps that have one.
        """
        self.archive.record_measurement(
            env_id,
            step,
            return_plain=win_plain,
            return_hinted=win_hinted,
            regret=regret,
            regret_se=regret_se,
            regime=regime,
            designer_reward=designer_reward,
        )


def _check_choice(what: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {what} {value!r}; one of {', '.join(allowed)}")
