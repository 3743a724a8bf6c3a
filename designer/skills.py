"""The skills that games of free code exercise, and what games of each are made of.

The first six are those of the structured families; programs may be written for three more.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Skill:
    """One skill, as a prompt tells it.

    Attributes:
        name: In words.
        exercise: What the player must do, and what must not do in its place.
        mechanics: Kinds of game that call for it; a prompt names a few of them.
        insight: What a hint of such a game may tell, that holds on every seed.
    """

    name: str
    exercise: str
    mechanics: tuple[str, ...]
    insight: str


SKILLS: dict[str, Skill] = {
    "math": Skill(
        "Mathematical Reasoning",
        "The player computes with what it is told and chooses its next action by the result; "
        "reading numbers off the text must not be enough.",
        (
            "reach a number by operations whose effect has to be found out first",
            "share out a stock so that several remainders or ratios hold at once",
            "narrow down an unknown by questions that answer with a number",
            "weigh, fill or measure with vessels of awkward sizes",
            "bid or pay so that running totals meet a bound",
        ),
        "an invariant, such as what never changes modulo something",
    ),
    "logic": Skill(
        "Logical Deduction",
        "Each answer of the game excludes possibilities, and winning takes chaining several "
        "of them; no single observation may settle the question.",
        (
            "open a lock from answers that say how close a guess was",
            "find who lies from statements, some of which can be tested",
            "infer a hidden rule from cases that the player may choose",
            "place things so that a set of partly hidden constraints holds",
            "locate a fault in a network by probing nodes",
        ),
        "which kind of question excludes most, or a constraint that is always there",
    ),
    "spatial": Skill(
        "Spatial Reasoning",
        "The player keeps a map or an orientation in mind and plans movements in it; the map "
        "is told in words or letters and changes as the player acts.",
        (
            "move through rooms or cells that are seen only from close by",
            "turn or push pieces until they fit a shape",
            "route something past obstacles that move by a rule",
            "fold, rotate or mirror a figure into another",
            "carry things between places, some of which block each other",
        ),
        "how the space is laid out, such as on which side exits lie",
    ),
    "pattern": Skill(
        "Pattern Recognition",
        "A regularity runs through what the game shows; the player must find and extend it, "
        "and each step shows a little more of it.",
        (
            "continue a sequence whose rule mixes two simpler ones",
            "sort new items as earlier ones were sorted, without being told by what",
            "predict where something turns up next and be there",
            "translate in an invented code that earlier pairs reveal",
            "tell the odd one among things that share a hidden feature",
        ),
        "which feature of the items matters",
    ),
    "optim": Skill(
        "Optimization",
        "Many ways are open and the obvious one falls short of the goal; the player trades "
        "one cost against another within a budget.",
        (
            "schedule jobs with deadlines on few machines",
            "choose what to carry under two limits",
            "visit places at the least total cost, with a toll that grows",
            "buy and sell along a price that follows a rule",
            "invest moves now for cheaper moves later",
        ),
        "what to value above what, such as cost by unit of gain",
    ),
    "causal": Skill(
        "Causal Inference",
        "Actions have effects that the player must find out by intervening, telling cause "
        "from coincidence; then it uses them to reach a goal.",
        (
            "wire buttons to lamps, with one button that only seems to work",
            "find the ingredient that spoils a mixture",
            "steer a process with a delayed response",
            "learn which of two linked quantities drives the other, and set it",
            "repair a machine whose symptoms share causes",
        ),
        "which kinds of influence exist, such as that effects come one turn late",
    ),
    "planning": Skill(
        "Strategic Planning",
        "An early action decides what is possible late; the player must think several steps "
        "ahead, and a greedy player loses.",
        (
            "build things in an order in which each needs earlier ones",
            "cross with escorts who must not be left together",
            "spend a stock that later dangers will ask for",
            "beat an opponent who plays by a fixed rule",
            "clear a board on which each removal locks others",
        ),
        "what to keep for the end",
    ),
    "memory": Skill(
        "Memory Recall",
        "Something is shown once and asked for later, changed or out of order; it is not "
        "shown again, and between the two the player has other things to do.",
        (
            "run errands whose list is told at the start alone",
            "turn over hidden pairs with few looks",
            "answer about a room that was left some steps ago",
            "keep track of things that are swapped under covers",
            "give a message on, piece by piece, at the right doors",
        ),
        "in which order or form things will be asked for",
    ),
    "language": Skill(
        "Language Understanding",
        "What to do follows from reading closely: who is meant, what a word means here, what "
        "a condition leaves out; a keyword search must go wrong.",
        (
            "carry out instructions with exceptions and references",
            "take orders from people who speak of the same thing differently",
            "find the one notice that applies to a case",
            "learn words of an invented language from answers",
            "settle a quarrel from two tellings of what happened",
        ),
        "how to read an ambiguous phrase of this game",
    ),
}
