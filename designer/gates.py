"""The gates: is this program an environment that can teach?

Many drafts are judged side by side, each at its own pace: a draft goes from gate to gate, leaves
at the first that it fails, and holds up no other. Their calls are batched: the episodes of one
gate start in one call, and the steps of all drafts share calls. What the service gets wrong is
never held against a program: such drafts are judged again, and are UNJUDGED if the service keeps
failing. A time limit counts when it runs out twice, since a busy machine is slow, too. No program
runs in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from sandbox_api.client import AsyncSandboxClient
from sandbox_api.errors import SandboxError
from sandbox_api.types import Limits

from designer.answer_gates import HintGate, LeakGate, PerturbationGate, VerifyGate
from designer.drafts import Draft, GateReport
from designer.findings import RefusedError, finding_of
from designer.play_gates import (
    BlindGate,
    FuzzGate,
    InspectGate,
    LoadGate,
    ReplayGate,
)
from designer.player import Player
from designer.settings import GateSettings
from designer.subjects import ServiceFaultError, SharedClock, Subject, TooSlowError
from designer.tool_checks import ToolGate, ToolOracleGate


class Gate(Protocol):
    """One question, or a few that share plays.

    Attributes:
        name: What its cost is called in reports.
    """

    name: str

    async def judge(self, subject: Subject) -> None:
        """Let the draft pass, or refuse it.

        Raises:
            RefusedError: What the gate has against it.
            SandboxError, ServiceFaultError: If the service failed.
        """


class Gates:
    """Judges drafts through a sandbox.

    Args:
        client: Connected to the sandbox.
        settings: How hard to look.
        limits: Limits of the programs' episodes; None means the server's defaults.
        runtime: Runtime of the server to load them in; empty means its default.
        seed: For the random policies.
        more: Gates to pass after these, in their order.

    Attributes:
        gates: All of them, in the order in which they are asked.
    """

    def __init__(
        self,
        client: AsyncSandboxClient,
        *,
        settings: GateSettings | None = None,
        limits: Limits | None = None,
        runtime: str = "",
        seed: int = 0,
        more: Sequence[Gate] = (),
    ) -> None:
        self._client = client
        self._settings = settings or GateSettings()
        self._runtime = runtime
        self._seed = seed
        loading: tuple[Gate, ...] = (InspectGate(), LoadGate(client, limits))
        playing: tuple[Gate, ...] = (
            FuzzGate(),
            ReplayGate(),
            ToolOracleGate(),
            ToolGate(),
            BlindGate(),
            PerturbationGate(),
            VerifyGate(),
            LeakGate(),
            HintGate(),
            *more,
        )
        self.gates = loading if self._settings.only_load else loading + playing

    async def judge(
        self, drafts: Sequence[Draft], on_report: Callable[[GateReport], None] | None = None
    ) -> list[GateReport]:
        """Judge drafts; reports in the same order, and each as it comes to `on_report`.

        Drafts that come with a reason keep it. Nothing is raised for a program or for the
        service: the reports say UNJUDGED where the service kept failing.
        """
        clock = SharedClock()
        slots = asyncio.Semaphore(self._settings.drafts_at_once)

        async def judge_one(subject: Subject) -> GateReport:
            async with slots:
                await self._judge(subject, clock)
            report = subject.report()
            if on_report is not None:
                on_report(report)
            return report

        async with Player(self._client) as player, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(
                    judge_one(Subject(draft, player, self._settings, self._seed, self._runtime))
                )
                for draft in drafts
            ]
        return [task.result() for task in tasks]

    async def _judge(self, subject: Subject, clock: SharedClock) -> None:
        """Take a draft through all gates, again where it was the service that failed."""
        if subject.draft.reason is not None:
            subject.finding = finding_of(subject.draft)
            return
        retries = self._settings.service_retries
        for attempt in range(1 + retries):
            subject.counts["retries"] += bool(attempt)
            subject.begin_try(attempt < retries and not isinstance(subject.fault, TooSlowError))
            try:
                for gate in self.gates:
                    with clock.charge(subject.cost_s, gate.name):
                        await gate.judge(subject)
            except RefusedError as refused:
                if refused.timed_out and subject.patient:
                    subject.fault = TooSlowError(str(refused))
                else:
                    subject.finding = refused.finding
            except ServiceFaultError as error:
                subject.fault = error.fault
            except SandboxError as error:
                subject.fault = error
            finally:
                await self._close(subject)
            if subject.fault is None:
                return

    @staticmethod
    async def _close(subject: Subject) -> None:
        try:
            await subject.close()
        except SandboxError as error:
            # The server ends them by itself when they are idle; a verdict stands.
            if subject.finding is None and subject.fault is None:
                subject.fault = error
