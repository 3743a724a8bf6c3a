"""Gates of tool-use programs: criteria that mean nothing, and values that no tool reveals.

They read what `ToolEnv` tells in the info of reset (docs/tool-use.md). A class of somebody else's
that has tools and tells nothing is not refused for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sandbox_api.types import ProgramKind

from designer.criterion_types import impossible_comparisons, impossible_declared, impossible_raised
from designer.drafts import Reason
from designer.findings import RefusedError, refusal
from designer.play_gates import OracleGate
from designer.plays import Play
from designer.probes import replayed
from designer.subjects import Subject
from designer.tool_values import Explorer, Need, needs_of, revealed_in, unrevealed

# Seeds on which the solution is played for what it needs to know.
NEED_SEEDS = 4
# A value that takes fewer forms over all seeds may be a word of the task: yes, no, a weekday.
MIN_DISTINCT = 8


class ToolOracleGate(OracleGate):
    """Gates 6 and 7; where the solution loses, a criterion that can never hold is named.

    Asked only then: a solution that wins shows that its criteria can hold.
    """

    async def judge(self, subject: Subject) -> None:
        try:
            await super().judge(subject)
        except RefusedError as refused:
            found = ("", 0)
            if refused.finding.reason is Reason.ORACLE:
                found = find_impossible(subject.source, [p.opening_info for p in subject.fuzzed])
            if not found[0]:
                raise
            told = refused.finding
            named = refusal(Reason.CRITERION, found[0], phase="solution", line=found[1])
            named.finding = replace(
                named.finding, seed=told.seed, opening=told.opening, transcript=told.transcript
            )
            raise named from refused


class ToolGate:
    """Of gate 9 that every criterion is false at reset; and that tools reveal what is needed."""

    name = "tools"

    async def judge(self, subject: Subject) -> None:
        assert subject.program is not None
        if subject.program.kind is not ProgramKind.TOOL_USE:
            return
        check_unmet(subject.fuzzed)
        await self._check_revealed(subject)

    async def _check_revealed(self, subject: Subject) -> None:
        assert subject.program is not None
        distinct = {
            key: len(values)
            for key, values in needs_of(o.actions for o in subject.oracles.values()).items()
        }
        if not any(count >= MIN_DISTINCT for count in distinct.values()):
            return
        seeds = list(subject.oracles)[:NEED_SEEDS]
        plays = await subject.play(
            [(seed, replayed(subject.oracles[seed].actions)) for seed in seeds]
        )
        tools = list(subject.program.tools)
        wanted = [
            need for need in unrevealed(plays, tools) if distinct.get(need.key, 0) >= MIN_DISTINCT
        ]
        await subject.close(plays)
        if wanted:
            await self._explore(subject, plays, tools, wanted)

    @staticmethod
    async def _explore(
        subject: Subject, plays: Sequence[Play], tools: list[dict[str, Any]], wanted: list[Need]
    ) -> None:
        """Call every tool with whatever is known before anything is held against the program."""
        seeds = [play.seed for play in plays]
        explorers = [Explorer(tools, play, bool(play.opening_info)) for play in plays]
        explored = await subject.play(
            [(seed, explorer.policy) for seed, explorer in zip(seeds, explorers, strict=True)]
        )
        await subject.close(explored)
        still = [need for need in wanted if not revealed_in(need, explored)]
        if still:
            need = still[0]
            shown = next(play for play in plays if play.seed == need.seed)
            message = (
                f"{need.what} is {need.value!r} on seed {need.seed}: no message, tool or schema"
            )
            raise refusal(
                Reason.UNREVEALED,
                f"{message} tells it, though every tool was called",
                phase="step",
                play=shown,
                steps=need.step + 1,
            )


def check_unmet(plays: Sequence[Play]) -> None:
    """Every criterion is false at reset.

    Raises:
        RefusedError: CRITERION.
    """
    for play in plays:
        for told in criteria_of(play.opening_info):
            if told.get("met") is True:
                what = (
                    f"criterion {told['path']} {told.get('op')}" if "path" in told else "criterion"
                )
                message = f"seed {play.seed}: the {what} of message {told.get('message', 0)} holds"
                raise refusal(
                    Reason.CRITERION,
                    f"{message} at reset, before anything was done",
                    advice="Let setup build a world in which the task is still to be done.",
                    phase="reset",
                    play=play,
                    steps=0,
                )


def criteria_of(info: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The criteria that a reset told of; none where the program has others than ours."""
    criteria = info.get("criteria")
    if not isinstance(criteria, list):
        return []
    return [told for told in criteria if isinstance(told, dict) and "met" in told]


def find_impossible(source: str, infos: Sequence[Mapping[str, Any]]) -> tuple[str, int]:
    """A criterion that no state can meet, by the types of what it compares.

    Args:
        source: Of the program.
        infos: Of its resets.

    Returns:
        What is wrong with it and its line, 0 where that is not known; "" for nothing.
    """
    by_criterion = list(zip(*(criteria_of(info) for info in infos), strict=False))
    for told in by_criterion:
        # The types of one seed may be chance.
        problems = [impossible_declared(one, source) or impossible_raised(one) for one in told]
        if problems and all(problems):
            return f"message {told[0].get('message', 0)}: {problems[0]}", 0
    states = [info["state"] for info in infos if isinstance(info.get("state"), dict)]
    if not states:
        return "", 0
    found = [impossible_comparisons(source, state) for state in states]
    common = set(found[0]).intersection(*found[1:])
    return min(common, key=lambda problem: problem[1]) if common else ("", 0)
