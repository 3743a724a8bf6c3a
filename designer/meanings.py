"""What each verdict of the gates means, for people who meet its code in a table."""

from __future__ import annotations

from designer.drafts import Reason

MEANINGS: dict[Reason, str] = {
    Reason.OK: "Every gate was passed.",
    Reason.PARSE: "The text is not a Python program, even after the usual slips were mended.",
    Reason.SPEC: "It is JSON, but not a specification that the families know.",
    Reason.HELD_OUT: "The world is one of those kept for evaluation; training must not see it.",
    Reason.DUPLICATE: "The same program stands in this batch or in the memory already; names, "
    "layout and comments do not count.",
    Reason.IMPORT: "It imports something that the runtime lacks; `--runtime` names another.",
    Reason.LOAD: "It does not load inside its limits of time, memory and processes.",
    Reason.CONTRACT: "It is not one environment class with reset and step, returns something of "
    "another type, pays a reward outside [-1, 1] or NaN, or shows more text than its limit.",
    Reason.FUZZ: "One of 50 odd actions (empty, huge, malformed, any Unicode) made it raise, hang "
    "or die.",
    Reason.NONDETERMINISTIC: "The same seed and actions gave something else in a fresh process: a "
    "clock, the order of a set, id(), or a generator without a seed.",
    Reason.SAME_START: "Eight seeds gave one and the same world.",
    Reason.ORACLE: "Its own solution() is missing, fails, does not win on every seed tried, or "
    "wins in fewer steps than a game takes.",
    Reason.CRITERION: "A criterion of a tool-use program holds before anything was done, or can "
    "never hold, by the types of what it compares.",
    Reason.UNREVEALED: "The solution of a tool-use program uses a value that nothing tells the "
    "player, though every tool was called.",
    Reason.BLIND_WIN: "A policy that understands nothing wins too often: no action, one action "
    "over and over, or random ones.",
    Reason.PERTURBED_WIN: "A solution that should not win does: half of one, another seed's, or a "
    "changed one.",
    Reason.VERIFY: "verify() and the reward disagree about who has won.",
    Reason.LEAK: "The first observation gives the answer away.",
    Reason.HINT: "The hint is too long, is code, or gives the answer.",
    Reason.UNJUDGED: "No verdict: the sandbox failed, not the program. Try again.",
}
