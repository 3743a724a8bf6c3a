"""The designer: asks for environments, reads what came back, has it judged, remembers it."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Limits, Program

from designer import families
from designer import skills as code_skills
from designer.archive import Archive, Remembered
from designer.completions import CompletionError, read_code, read_hint, read_spec
from designer.corpus import Corpus, Document
from designer.drafts import DesignRequest, Draft, Finding, GateReport, Operator, Reason
from designer.findings import RefusedError
from designer.game_prompts import GAME
from designer.gates import Gates
from designer.hints import HintError, check_hint_text
from designer.inspection import inspect_program
from designer.lineage import CANDIDATES, Descent, LineageShares, descend
from designer.program_prompts import DIFFICULTIES
from designer.prompts import PROMPT_STYLES, hint_messages, structured_messages
from designer.repair import repair_braces
from designer.repair_prompts import hint_repair_messages, repair_messages
from designer.settings import GateSettings
from designer.tool_prompts import TOOL_SKILLS, TOOL_USE
from designer.twins import Trees, Twins
from designer.writing import Progress, Writer, Writing, WritingOutcome, WritingSettings

# The method of what nobody designs here.
GIVEN = "given"
METHODS = ("structured", "free_code")
KINDS = ("game", "tool_use")

# A game answers in milliseconds. What hangs would hold up all drafts of its batch, so these
# are tighter than the server's defaults, and wide enough for a machine ten times overbooked.
DEFAULT_LIMITS = Limits(step_timeout_s=5.0, load_timeout_s=10.0)

# Verdicts that say nothing of a fault that could be mended.
_UNMENDABLE = frozenset({Reason.HELD_OUT, Reason.DUPLICATE, Reason.UNJUDGED})


class Given(Protocol):
    """An environment of a pool; see `trainer.protocols.GivenEnvironment`."""

    @property
    def origin(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def skill(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def program(self) -> Program: ...


def skills_of(method: str, kind: str = "game") -> dict[str, str]:
    """Skills that a kind of environment can be designed for by a method, and their names."""
    if method == "structured":
        return families.SKILLS if kind == "game" else families.TOOL_SKILLS
    skills = code_skills.SKILLS if kind == "game" else TOOL_SKILLS
    return {key: skill.name for key, skill in skills.items()}


class Designer:
    """Turns completions of a model into judged environments.

    The model is not here: whoever runs the designer answers its requests.

    Args:
        client: Connected to the sandbox that judges.
        archive: Where everything is remembered.
        method: "structured" or "free_code".
        kind: "game" or "tool_use".
        skills: Keys of `skills_of(method, kind)`; empty for all of them.
        max_turns: Turn cap that environments are written for; `max_turns` may be set anew
            when a horizon stage moves it.
        seed: For skills, memory, and the seeds in requests.
        prompt_style: "compact" or "chat"; free code is always asked for in chat.
        skills_per_step: Skills among which one step's slots are shared out; few, so that
            several designs of a skill can be compared with each other. All take turns.
        steps_per_cycle: Training steps from one step that designs to the next.
        memory_size: Remembered environments in a chat prompt.
        allow_held_out: Accept worlds kept for evaluation; for use without training only.
        twin_similarity: Programs whose trees are at least as similar are twins; above 1, only the
            same program under other names is. Structured ones are told apart by their constants.
        refuse_remembered: Refuse what an earlier step designed already. Twins in one step
            are always refused.
        corpus: Documents that the settings of programs are drawn from; None for none.
        document_quota: Environments of a document before all others had as many; 0 for no
            quota.
        lineage: Shares of requests that start from remembered environments.
        writing: How a round of writing goes.
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
        kind: str = "game",
        skills: Sequence[str] = (),
        max_turns: int = 8,
        seed: int = 0,
        prompt_style: str = "chat",
        skills_per_step: int = 3,
        steps_per_cycle: int = 1,
        memory_size: int = 3,
        allow_held_out: bool = False,
        twin_similarity: float = 0.9,
        refuse_remembered: bool = False,
        corpus: Corpus | None = None,
        document_quota: int = 0,
        lineage: LineageShares | None = None,
        writing: WritingSettings | None = None,
        limits: Limits | None = DEFAULT_LIMITS,
        runtime: str = "",
        settings: GateSettings | None = None,
    ) -> None:
        _check_choice("method", method, METHODS)
        _check_choice("prompt style", prompt_style, PROMPT_STYLES)
        _check_choice("kind", kind, KINDS)
        for skill in skills:
            _check_choice("skill", skill, tuple(skills_of(method, kind)))
        self.archive = archive
        self.method = method
        self.kind = kind
        self.skills = tuple(skills) or tuple(skills_of(method, kind))
        self.max_turns = max_turns
        self._seed = seed
        self._prompt_style = prompt_style
        self._skills_per_step = skills_per_step
        self._steps_per_cycle = steps_per_cycle
        self._memory_size = memory_size
        self._allow_held_out = allow_held_out
        self._twin_similarity = twin_similarity
        self._trees = Trees()
        self._refuse_remembered = refuse_remembered
        self._corpus = corpus
        self._document_quota = document_quota
        self._lineage = lineage or LineageShares()
        self._writing = writing or WritingSettings()
        self._runtime = runtime
        self._gates = Gates(client, settings=settings, limits=limits, runtime=runtime, seed=seed)
        self._step = -1
        self._asked = 0
        self._recorded = 0
        self._documents: Counter[str] = Counter()
        # Those of this step that passed: repairs and further rounds may write twins.
        self._passed: list[Draft] = []

    async def write(
        self, writer: Writer, n: int, step: int, progress: Progress | None = None
    ) -> WritingOutcome:
        """Have n environments written, judged, mended and remembered; see `Writing`."""
        return await Writing(self, writer, self._writing, progress).run(n, step)

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
            self._passed.clear()
            if self._corpus is not None:
                self._documents = Counter(self.archive.document_counts(before_step=step))
        chosen = self._skills_of(step)
        requests = []
        for _ in range(n):
            slot = self._asked
            self._asked += 1
            requests.append(self._request(slot, chosen[slot % len(chosen)], step))
        return requests

    def _skills_of(self, step: int) -> list[str]:
        """The skills whose turn it is, in an order that the seed gives."""
        order = random.Random(f"{self._seed} skills").sample(self.skills, len(self.skills))
        count = min(self._skills_per_step, len(order))
        first = step // self._steps_per_cycle * count
        return [order[(first + index) % len(order)] for index in range(count)]

    def _request(self, slot: int, skill: str, step: int) -> DesignRequest:
        rng = random.Random(f"{self._seed} design {step} {slot}")
        structured = self.method == "structured"
        memory, refused = [], None
        if not structured or self._prompt_style == "chat":
            memory = self.archive.sample_memory(skill, self._memory_size, rng, before_step=step)
            chance = random.Random(f"{self._seed} refused {step} {slot}")
            refused = self.archive.sample_refused(skill, chance, before_step=step)
        descent = self._descent(skill, rng, step)
        document = None if structured else self._document(rng)
        difficulty = ""
        schema = None
        if structured:
            messages = structured_messages(
                self._prompt_style, skill, self.max_turns, memory, descent, refused
            )
            wanted = descent.schema if descent and descent.schema else families.spec_schema(skill)
            schema = json.dumps(wanted)
        else:
            if descent is None or descent.operator in (Operator.THEME, Operator.CROSSOVER):
                difficulty = rng.choice(DIFFICULTIES)
            ask = (GAME if self.kind == "game" else TOOL_USE).messages
            messages = ask(
                skill,
                difficulty,
                self.max_turns,
                memory,
                rng,
                document=document,
                descent=descent,
                refused=refused,
            )
        return DesignRequest(
            slot=slot,
            skill=skill,
            method=self.method,
            kind=self.kind,
            messages=messages,
            json_schema=schema,
            max_turns=self.max_turns,
            seed=rng.getrandbits(31),
            difficulty=difficulty,
            operator=descent.operator if descent else Operator.NEW,
            parents=tuple(parent.env_id for parent in descent.parents) if descent else (),
            document=document.document_id if document else "",
        )

    def _descent(self, skill: str, rng: random.Random, step: int) -> Descent | None:
        if not self._lineage.total:
            return None
        operator = self._lineage.draw(rng)
        if operator == Operator.NEW:
            return None
        memory: list[Remembered] = self.archive.sample_memory(
            skill, CANDIDATES, rng, before_step=step
        )
        return descend(operator, memory, rng, structured=self.method == "structured")

    def _document(self, rng: random.Random) -> Document | None:
        if self._corpus is None:
            return None
        document = self._corpus.draw(rng, self._documents, self._document_quota)
        self._documents[document.document_id] += 1
        return document

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
        """Ask the model for the hint, the source shown; None where there is one, or no use.

        A program that its text alone refuses gets none: the gates will say why.
        """
        if draft.source is None or draft.hint is not None or draft.reason is not None:
            return None
        try:
            inspect_program(draft.source, self._runtime)
        except RefusedError:
            return None
        return dataclasses.replace(
            draft.request,
            messages=hint_messages(draft.source, draft.request.kind),
            json_schema=None,
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

    def repair_request(self, report: GateReport, env_id: str) -> DesignRequest | None:
        """Ask the model to mend a refused draft; None where there is nothing to mend.

        Where the hint alone was at fault, a hint is asked for.

        Args:
            report: The verdict.
            env_id: What the archive calls the refused draft.
        """
        draft = report.draft
        if report.passed or report.reason in _UNMENDABLE:
            return None
        finding = report.finding or Finding(Reason(report.reason), report.detail)
        mended = dataclasses.replace(
            draft.request,
            seed=random.Random(f"{draft.request.seed} mended").getrandbits(31),
            repair_of=env_id,
            round=draft.request.round + 1,
        )
        if report.reason != Reason.HINT:
            style = self._prompt_style if draft.request.method == "structured" else "chat"
            return dataclasses.replace(mended, messages=repair_messages(draft, finding, style))
        if draft.request.method == "structured":
            return None  # the hint is ours
        return dataclasses.replace(mended, messages=hint_repair_messages(draft, finding))

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
        seen = Twins(self._trees, self._twin_similarity)
        if self._refuse_remembered:
            for env_id, structured, source in self.archive.programs():
                seen.add(source, env_id, by_shape=not structured)
        for passed in self._passed:
            assert passed.source is not None
            seen.add(passed.source, _slot_of(passed), by_shape=passed.spec is None)
        return [self._unless_twin(draft, seen) for draft in drafts]

    @staticmethod
    def _unless_twin(draft: Draft, seen: Twins) -> Draft:
        source = draft.source
        if draft.reason is not None or source is None:
            return draft
        free = draft.spec is None
        twin = seen.find(source, by_shape=free, except_for=draft.request.parents)
        if twin is None:
            seen.add(source, _slot_of(draft), by_shape=free)
            return draft
        where = twin.name if twin.name.startswith("slot ") else f"the memory ({twin.name[:12]})"
        detail = f"the same program is in {where}"
        if twin.similarity < 1:
            detail = f"nearly the program in {where}, {twin.similarity:.0%} the same"
        return dataclasses.replace(draft, reason=Reason.DUPLICATE, detail=detail)

    def remember(self, report: GateReport, step: int) -> str:
        """Store a verdict, refused drafts too; returns what the archive calls it."""
        env_id = self.archive.record_design(report, step, self._recorded)
        self._recorded += 1
        if report.passed and report.draft.source is not None:
            self._passed.append(report.draft)
        return env_id

    def remember_given(self, given: Given) -> str:
        """Store an environment of a pool that a run trains on; returns what the archive calls it.

        No gate has seen it, and the archive says so.
        """
        request = DesignRequest(
            slot=0,
            skill=given.skill,
            method=GIVEN,
            messages=[],
            json_schema=None,
            max_turns=0,
            seed=0,
        )
        report = GateReport(
            Draft(request, completion="", source=given.source, family=given.family),
            Reason.UNJUDGED,
            detail=f"given, from {given.origin}",
            program=given.program,
            env_id=given.program.program_id,
        )
        return self.archive.record_given(report, given.program.program_id)

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


def _slot_of(draft: Draft) -> str:
    return f"slot {draft.request.slot}"


def _check_choice(what: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {what} {value!r}; one of {', '.join(allowed)}")
