"""A round of writing: completions, hints, gates and repairs, whoever the model is.

The one flow that training and `spadework design` share. It draws nothing by chance itself:
the same requests and answers give the same outcome, and what was remembered of a step is
forgotten when the step is asked for anew.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from designer.drafts import DesignRequest, Draft, GateReport, Reason
from designer.opinions import OPINION_TOKENS, opinion_request, read_opinion

if TYPE_CHECKING:
    from designer.designer import Designer


class Answer(Protocol):
    """What a model wrote: see `trainer.protocols.Answer`."""

    @property
    def text(self) -> str: ...
    @property
    def sample(self) -> Any: ...
    @property
    def error(self) -> str: ...


class Writer(Protocol):
    """Anything that completes the designer's requests."""

    async def complete(
        self,
        requests: Sequence[DesignRequest],
        max_tokens: int,
        done: Callable[[], None] | None = None,
    ) -> Sequence[Answer | None]:
        """One answer a request, in order; None for what there is no budget for."""


class Progress(Protocol):
    """Shows how far long work has come."""

    def begin(self, description: str, total: int) -> None:
        """A new part of the work, of so many steps."""

    def advance(self) -> None:
        """One step of it is done."""


@dataclass(frozen=True)
class WritingSettings:
    """How a round of writing goes.

    Attributes:
        max_tokens: Longest completion that writes an environment.
        hint_max_tokens: Longest completion that writes a hint.
        repair_rounds: Times that a refused draft is given back to be mended.
        opinions: Whether the model is asked if what it wrote can be solved; it decides nothing.
    """

    max_tokens: int = 4096
    hint_max_tokens: int = 400
    repair_rounds: int = 0
    opinions: bool = False


@dataclass
class Written:
    """One slot's last draft.

    Attributes:
        report: The verdict on it.
        samples: What training needs of its completions, the first draft's in front; None
            where a completion cannot train.
    """

    report: GateReport
    samples: list[Any]


@dataclass
class WritingOutcome:
    """What a round of writing gave.

    Attributes:
        written: Each slot's last draft, in order.
        reports: Every verdict, those on mended drafts too, in the order of the archive.
        mended: Slots that passed after a repair.
        unanswered: Requests for which the budget did not reach. A draft whose hint is among
            them has no verdict: its step can be taken up again.
    """

    written: list[Written] = field(default_factory=list)
    reports: list[GateReport] = field(default_factory=list)
    mended: int = 0
    unanswered: int = 0

    @property
    def reasons(self) -> Counter[str]:
        """Drafts by reason code, repairs included."""
        return Counter(str(report.reason) for report in self.reports)


class Silence:
    """Shows nothing."""

    def begin(self, description: str, total: int) -> None:
        """Nothing."""

    def advance(self) -> None:
        """Nothing."""


@dataclass
class _Slot:
    """A slot on its way: its draft, and what was sampled for it."""

    draft: Draft
    samples: list[Any]
    report: GateReport | None = None
    env_id: str = ""

    @property
    def reason(self) -> str:
        """Of the last verdict."""
        return self.report.reason if self.report else ""


class Writing:
    """Runs rounds of writing for one designer and one model.

    Args:
        designer: Asks, reads, judges and remembers.
        writer: Answers.
        settings: How it goes.
        progress: Shows how far it is.
    """

    def __init__(
        self,
        designer: Designer,
        writer: Writer,
        settings: WritingSettings,
        progress: Progress | None = None,
    ) -> None:
        self._designer = designer
        self._writer = writer
        self._settings = settings
        self._progress = progress or Silence()

    async def run(self, n: int, step: int) -> WritingOutcome:
        """Have n environments written, judged, mended and remembered.

        Args:
            n: Slots; each gives one draft, and its repairs.
            step: Training step.
        """
        outcome = WritingOutcome()
        requests = self._designer.requests(n, step)
        answers = await self._complete("writing", requests, self._settings.max_tokens)
        slots = []
        for request, answer in zip(requests, answers, strict=True):
            if answer is None:
                outcome.unanswered += 1
            else:
                slots.append(_Slot(self._read(request, answer), [answer.sample]))
        await self._judge(slots, step, outcome)
        for _ in range(self._settings.repair_rounds):
            mended = await self._repair(slots, outcome)
            if not mended:
                break
            await self._judge(mended, step, outcome)
        for slot in slots:
            if slot.report is not None:
                outcome.written.append(Written(slot.report, slot.samples))
                outcome.mended += slot.report.passed and slot.report.draft.request.round > 0
        return outcome

    async def _judge(self, slots: list[_Slot], step: int, outcome: WritingOutcome) -> None:
        """Get hints where they are missing, then verdicts; remember them."""
        slots = await self._with_hints(slots, outcome)
        self._progress.begin("validating", len(slots))
        reports = await self._designer.validate(
            [slot.draft for slot in slots], lambda _: self._progress.advance()
        )
        for slot, report in zip(slots, reports, strict=True):
            slot.report = report
            slot.env_id = self._designer.remember(report, step)
            outcome.reports.append(report)
        if self._settings.opinions:
            await self._ask_opinions(slots)

    async def _ask_opinions(self, slots: list[_Slot]) -> None:
        wanted = [
            (slot.env_id, request)
            for slot in slots
            if slot.report is not None and (request := opinion_request(slot.report)) is not None
        ]
        requests = [request for _, request in wanted]
        answers = await self._complete(
            "asking whether they can be solved", requests, OPINION_TOKENS
        )
        for (env_id, _), answer in zip(wanted, answers, strict=True):
            if answer is not None and not answer.error:
                opinion = read_opinion(answer.text)
                archive = self._designer.archive
                archive.record_opinion(env_id, opinion.solvable, opinion.reason)

    async def _with_hints(self, slots: list[_Slot], outcome: WritingOutcome) -> list[_Slot]:
        """Ask for all missing hints in one batch; an endpoint answers them side by side.

        Returns:
            The slots that may be judged.
        """
        wanted = [
            (slot, request)
            for slot in slots
            if (request := self._designer.hint_request(slot.draft)) is not None
        ]
        requests = [request for _, request in wanted]
        answers = await self._complete("hinting", requests, self._settings.hint_max_tokens)
        unhinted = []
        for (slot, _), answer in zip(wanted, answers, strict=True):
            if answer is None:
                unhinted.append(id(slot))
            else:
                slot.draft = self._hinted(slot.draft, answer)
        outcome.unanswered += len(unhinted)
        return [slot for slot in slots if id(slot) not in unhinted]

    def _hinted(self, draft: Draft, answer: Answer) -> Draft:
        if answer.error:
            return dataclasses.replace(draft, reason=Reason.HINT, detail=answer.error)
        return self._designer.accept_hint(draft, answer.text)

    async def _repair(self, slots: list[_Slot], outcome: WritingOutcome) -> list[_Slot]:
        """Give refused drafts back; returns the slots that have a new draft."""
        wanted: list[tuple[_Slot, DesignRequest]] = []
        for slot in slots:
            if slot.report is None:
                continue
            request = self._designer.repair_request(slot.report, slot.env_id)
            if request is not None:
                wanted.append((slot, request))
        mended: list[_Slot] = []
        for what, max_tokens, hint in (
            ("mending", self._settings.max_tokens, False),
            ("mending hints", self._settings.hint_max_tokens, True),
        ):
            asked = [(s, r) for s, r in wanted if (s.reason == Reason.HINT) == hint]
            answers = await self._complete(what, [r for _, r in asked], max_tokens)
            for (slot, request), answer in zip(asked, answers, strict=True):
                if answer is None:
                    outcome.unanswered += 1
                    continue
                if hint:
                    slot.draft = self._hinted(_with_program_of(slot.draft, request), answer)
                else:
                    slot.draft = self._read(request, answer)
                    slot.samples.append(answer.sample)
                mended.append(slot)
        return mended

    def _read(self, request: DesignRequest, answer: Answer) -> Draft:
        if answer.error:
            return Draft(request, answer.text, reason=Reason.PARSE, detail=answer.error)
        return self._designer.parse(request, answer.text)

    async def _complete(
        self, what: str, requests: Sequence[DesignRequest], max_tokens: int
    ) -> Sequence[Answer | None]:
        if not requests:
            return []
        self._progress.begin(what, len(requests))
        return await self._writer.complete(requests, max_tokens, self._progress.advance)


def _with_program_of(draft: Draft, request: DesignRequest) -> Draft:
    """A draft that waits for another hint; its row tells who wrote the program, as before."""
    mended = dataclasses.replace(draft.request, repair_of=request.repair_of, round=request.round)
    return dataclasses.replace(draft, request=mended, hint=None, reason=None, detail="")
