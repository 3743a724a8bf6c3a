"""The records that pass between the designer and whoever runs it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from sandbox_api.types import Program


class Operator(enum.StrEnum):
    """How an environment came to be."""

    # Written without a parent.
    NEW = "new"
    # Mutations of one parent.
    EASIER = "easier"
    HARDER = "harder"
    THEME = "theme"
    # Made of two parents.
    CROSSOVER = "crossover"


class Reason(enum.StrEnum):
    """Why a draft was refused, in the order in which it is asked; OK means it was not."""

    OK = "OK"
    # No specification or no Python could be read from the completion.
    PARSE = "PARSE"
    # JSON was read, but it is not a valid specification.
    SPEC = "SPEC"
    # A world kept for evaluation.
    HELD_OUT = "HELD_OUT"
    # The same program stands in this batch already, or in the memory where that is asked for.
    DUPLICATE = "DUPLICATE"
    # Imports something that the runtime does not offer.
    IMPORT = "IMPORT"
    # Does not load inside its limits.
    LOAD = "LOAD"
    # Not exactly one environment class, a wrong type, a reward outside [-1, 1], an
    # observation over its cap.
    CONTRACT = "CONTRACT"
    # Some action made it raise, hang or die.
    FUZZ = "FUZZ"
    # A replay in a fresh process under another PYTHONHASHSEED differed.
    NONDETERMINISTIC = "NONDETERMINISTIC"
    # Fewer than two distinct starts in eight seeds.
    SAME_START = "SAME_START"
    # Its own solution does not win, or is too short to be a game.
    ORACLE = "ORACLE"
    # A tool-use program's criterion holds at reset, or compares what can never agree.
    CRITERION = "CRITERION"
    # A tool-use program's solution uses a value that no message, tool or schema tells.
    UNREVEALED = "UNREVEALED"
    # Doing nothing, one action over and over, or random actions win too often.
    BLIND_WIN = "BLIND_WIN"
    # Half of the solution, another seed's, or a changed one wins as well.
    PERTURBED_WIN = "PERTURBED_WIN"
    # verify() and the reward are at odds.
    VERIFY = "VERIFY"
    # The first observation gives the answer.
    LEAK = "LEAK"
    # The hint is too long, is code, or gives the answer.
    HINT = "HINT"
    # The sandbox service failed: no verdict on the program.
    UNJUDGED = "UNJUDGED"


@dataclass(frozen=True)
class DesignRequest:
    """One completion that the designer asks the model for.

    Attributes:
        slot: Position in the step's batch of environments.
        skill: Key of `designer.families.SKILLS` or, for free code, of `designer.skills.SKILLS`.
        method: "structured" or "free_code".
        messages: Chat messages, `role` and `content`.
        json_schema: Schema for constrained decoding, with no white space between tokens and
            "," and ":" as separators; None for free text.
        max_turns: Turn cap that the environment is written for.
        seed: For the sampling of this completion, where the backend takes one.
        kind: "game" or "tool_use".
        difficulty: Name of the difficulty asked for; empty where the prompt names none.
        operator: How it came to be; a value of `Operator`.
        parents: env_ids of the remembered environments that it is made of.
        document: Id of the document that its setting is drawn from; empty for none.
        repair_of: env_id of the refused draft that this one mends; empty for a first draft.
        round: 0 for a first draft, then the number of the repair.
    """

    slot: int
    skill: str
    method: str
    messages: list[dict[str, Any]]
    json_schema: str | None
    max_turns: int
    seed: int
    kind: str = "game"
    difficulty: str = ""
    operator: str = Operator.NEW
    parents: tuple[str, ...] = ()
    document: str = ""
    repair_of: str = ""
    round: int = 0


@dataclass(frozen=True)
class Draft:
    """What was read from a completion.

    Attributes:
        source: The program after repair; None when nothing could be read.
        hint: The hint; None where the model still has to write it.
        family: Family of a structured draft, else empty.
        spec: Specification of a structured draft.
        reason: Why the draft is refused already; None when the gates may judge it.
        detail: What happened, for people.
    """

    request: DesignRequest
    completion: str
    source: str | None = None
    hint: str | None = None
    family: str = ""
    spec: dict[str, Any] | None = None
    reason: str | None = None
    detail: str = ""


@dataclass(frozen=True)
class Exchange:
    """One step of the transcript that shows a finding.

    Attributes:
        reward: None where the step gave none.
    """

    action: str
    observation: str
    reward: float | None
    terminated: bool = False
    truncated: bool = False


@dataclass(frozen=True)
class Finding:
    """What a gate has against a program, for the model that mends it and for people.

    Attributes:
        reason: Code of the gate.
        message: What was found, in a sentence or two; the report's `detail`.
        advice: What to change.
        phase: "parse", "load", "reset", "step", "verify" or "solution"; empty where it is no
            call of the program that shows it.
        line: Line of the source, from 1; 0 where it is not known.
        seed: Of the episode that shows it; None where no episode does.
        opening: That episode's first observation.
        transcript: Its steps, up to the one that shows it.
    """

    reason: Reason
    message: str
    advice: str = ""
    phase: str = ""
    line: int = 0
    seed: int | None = None
    opening: str = ""
    transcript: tuple[Exchange, ...] = ()


@dataclass(frozen=True)
class GateReport:
    """The gates' verdict on a draft.

    Attributes:
        reason: A value of `Reason`; "OK" when all gates were passed.
        detail: What happened, for people.
        program: The registered program; None when it did not get that far.
        cost_s: Wall seconds by gate. A batched call's time is shared out by items.
        env_id: The program's id; empty when there is none.
        counts: What was done: "episodes", "steps", "trials", "verdicts", "retries".
        oracle_steps: Length of the shortest oracle play; 0 when none was played.
        finding: What the gates have against it; None where they have nothing.
    """

    draft: Draft
    reason: str
    detail: str = ""
    program: Program | None = None
    cost_s: dict[str, float] = field(default_factory=dict)
    env_id: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    oracle_steps: int = 0
    finding: Finding | None = None

    @property
    def passed(self) -> bool:
        """Whether the environment may be played."""
        return self.reason == Reason.OK
