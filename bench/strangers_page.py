"""The page about environments that nobody here wrote, from the figures of bench/strangers.py."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

# Whose doing a refusal is.
THEIRS, OURS, TASTE, OUTSIDE = "theirs", "ours", "by design", "not installed"


@dataclass(frozen=True)
class Kind:
    """One kind of refusal that somebody has looked at.

    Attributes:
        pattern: Of the stage or reason, a colon, and the message.
        whose: THEIRS: the environment's fault. OURS: sound, and refused. TASTE: sound as what it
            is, and not what the gates look for. OUTSIDE: needs what the runtime does not have.
        said: What it is, in a sentence.
    """

    pattern: str
    whose: str
    said: str


KINDS = (
    Kind(
        r"^load:.*(MuJoCo is not installed|Box2D is not installed|jax|shimmy)",
        OUTSIDE,
        "Needs MuJoCo, Box2D, JAX or Shimmy; continuous control, or the same worlds for JAX.",
    ),
    Kind(
        r"^load:.*moved to the gymnasium-robotics",
        THEIRS,
        "Registered, and refuses to be made: moved to another package.",
    ),
    Kind(r"[Ss]tand-?[Ii]n", OUTSIDE, "Needs NLTK's word lists, which are on no package index."),
    Kind(
        r"WFC dependencies|imageio is missing|No module named 'pandas'",
        OUTSIDE,
        "Needs pandas, MiniGrid's WFC levels imageio.",
    ),
    Kind(
        r"^load:.*unsupported operand type.*NoneType",
        THEIRS,
        "Registered with a size of None, with which it cannot be made.",
    ),
    Kind(r"<program>, line|NameError|IndexError", THEIRS, "Is no Python, or fails as it starts."),
    Kind(
        r"\(env\.py, line",
        OUTSIDE,
        "Is written for Python 3.12 or later; the server runs on 3.11.",
    ),
    Kind(r"OpenAI package", OUTSIDE, "Asks a model behind OpenAI's protocol in the game."),
    Kind(
        r"no attribute 'observationStr'",
        THEIRS,
        "Keeps no observation where BYTESIZED32's own harness reads it too.",
    ),
    Kind(r"Population must be a sequence", THEIRS, "Samples from a set, which Python refuses."),
    Kind(r"^step:", THEIRS, "Raises at its first action, which makes no sense to it."),
    Kind(
        r"^reset:.*Must specify at least one dataset",
        THEIRS,
        "A data set made of others, which the caller has to name.",
    ),
    Kind(
        r"^reset:.*made no problem",
        THEIRS,
        "Its generator raises or gives up under the parameters of its own controller.",
    ),
    Kind(r"^ORACLE: the program has no solution", TASTE, "Has no solution of its own to check."),
    Kind(
        r"^CONTRACT:.*reward .* is outside",
        TASTE,
        "Pays more than 1 or less than -1; regret is not defined over such rewards.",
    ),
    Kind(
        r"^CONTRACT:.*reward must be a number, not str",
        THEIRS,
        "Says why a move is invalid in place of its reward: the arguments of `set_invalid_move` "
        "the wrong way round.",
    ),
    Kind(
        r"^CONTRACT: reset failed:.*TIME_LIMIT",
        THEIRS,
        "Sokoban: tries rooms at random until one can be solved, which may take minutes.",
    ),
    Kind(
        r"^CONTRACT:.*over its cap",
        TASTE,
        "Shows more text than fits in an observation.",
    ),
    Kind(
        r"^SAME_START:",
        THEIRS,
        "Eight seeds start alike: with these parameters there is but one world.",
    ),
    Kind(
        r"^FUZZ:",
        THEIRS,
        "Raises, or runs out of time, where an action makes no sense to it.",
    ),
    Kind(
        r"^NONDETERMINISTIC:",
        THEIRS,
        "The same seed gives another world in a fresh process: the order of a set, or a generator "
        "that takes no seed.",
    ),
    Kind(
        r"^BLIND_WIN:",
        THEIRS,
        "Yes or no, or one of few answers: guessing wins.",
    ),
    Kind(
        r"^ORACLE:.*does not win",
        THEIRS,
        "The answer that it calls right does not earn the whole reward on every seed.",
    ),
    Kind(r"^ORACLE:.*solution\(\) failed", THEIRS, "Has no answer on some seed."),
    Kind(
        r"^PERTURBED_WIN:",
        THEIRS,
        "The answer to another seed, or a changed one, wins as well: with these parameters the "
        "worlds are so few or so small, or the scorer does not ask for what the question asks.",
    ),
    Kind(r"^LEAK:", THEIRS, "The question holds the answer."),
)
UNKNOWN = Kind("", "", "not looked at yet")


def refusal_text(row: Row) -> str:
    """What the patterns of the kinds are matched with; empty if nothing was refused."""
    if not row["loads"]:
        return f"{row['stage']}: {row['why']}"
    return "" if row["reason"] == "OK" else f"{row['reason']}: {row['detail']}"


def kind_of(row: Row) -> Kind:
    """The first kind that a refusal is of; `UNKNOWN` if nobody has looked at such a one."""
    text = refusal_text(row)
    return next((kind for kind in KINDS if re.search(kind.pattern, text, re.DOTALL)), UNKNOWN)


def page(rows: list[Row]) -> str:
    """The page, in Markdown."""
    libraries = list(dict.fromkeys(row["library"] for row in rows))
    loaded = [row for row in rows if row["loads"]]
    playable = [row for row in rows if row["loads"] or kind_of(row).whose != OUTSIDE]
    passed = [row for row in loaded if row["reason"] == "OK"]
    refused = [row for row in rows if refusal_text(row)]
    ours = [row for row in refused if kind_of(row).whose == OURS]
    unknown = [row for row in refused if kind_of(row) is UNKNOWN]
    lines = [
        "# Environments that nobody here wrote",
        "",
        "<!-- written by bench/strangers.py -->",
        f"{len(loaded)} of {len(rows)} load in the real sandbox and take steps; of those that "
        f"need nothing that the runtime lacks, {len(loaded)} of {len(playable)} "
        f"({len(loaded) / len(playable):.1%}). {len(passed)} pass all gates. Refusals that are "
        f"our fault: {len(ours)}; of a kind that nobody has looked at: {len(unknown)}.",
        "",
        "Their files are unchanged. What has reset and step is given to the server as it is; a "
        "library with another interface gets one adapter, the same for all of it "
        "(tests/library/strangers.py): it calls the library, and adds nothing to the games. "
        "RLVE's Gym/environment.py imports torch only to seed it, and TextArena and GEM import "
        "network clients and NLTK: stand-ins take their place. RLVE's parameters come from its "
        "own controllers. A play is at most eight steps, a question and its answer one.",
        "",
        *_table(
            ("library", "tried", "load", "pass", "refused by"),
            (
                (
                    library,
                    sum(row["library"] == library for row in rows),
                    sum(row["library"] == library for row in loaded),
                    sum(row["library"] == library for row in passed),
                    _counts(r["reason"] for r in loaded if r["library"] == library),
                )
                for library in libraries
            ),
        ),
        "",
        "## Why the others do not load or pass",
        "",
        "Theirs: a fault of the environment. Ours: sound, and refused. By design: sound, and "
        "without what training asks for. Not installed: needs what the runtime lacks. Refusals "
        "are sorted by what they say (bench/strangers_page.py); below are those whose source was "
        "read.",
        "",
        *_table(("whose", "count", "kind", "of", "for example"), _kind_rows(refused)),
        "",
        "Read in the source:",
        "",
        *(f"- {text}" for text in READ),
        "",
        "## False refusals",
        "",
    ]
    if ours or unknown:
        lines += [
            f"- {row['library']} {row['name']}: {_short(refusal_text(row), 300)}"
            for row in ours + unknown
        ]
    else:
        lines.append("None left of those looked at.")
    lines += ["", "Found on the way, and mended:", "", *(f"- {text}" for text in MENDED), ""]
    lines += [_again(), ""]
    return "\n".join(lines)


# Refusals that were read in the environment's source.
READ = (
    "reasoning-gym puzzle24 (PERTURBED_WIN): the scorer asks for four numbers within the range "
    "and the sum 24, and never whether they are those of the question.",
    "reasoning-gym string_insertion (LEAK): few strings drawn have a pattern in them, so that the "
    "answer is mostly the string itself.",
    "RLVE PolyaModel (ORACLE): its scorer passes the whole output to `_process` and not to "
    "`processor`, so that an answer between its own tags never counts.",
    "Sokoban of GEM and TextArena (CONTRACT): a room is drawn up to a thousand times, and that up "
    "to fifty times; alone in a jail, with a limit of 280 s, twelve resets took 0.3 to 133 s "
    "(median 21 s) on the two busy cores of this run, and all came to an end.",
    "TextArena Countdown, Cryptarithm, Slitherlink, ThreeCardMonte (CONTRACT): they call "
    "`set_invalid_move(reward, reason)`, and it takes the reason first (textarena/state.py).",
    "RLVE OddVisitation (PERTURBED_WIN): on the small graphs that its controller begins with, one "
    "walk solves all.",
)

# False refusals of ours that these environments brought to light.
MENDED = (
    "An integer of 4,301 digits as an action raised in the server's reading of discrete actions: "
    "gate 4 refused every environment with a discrete action space.",
    "An environment with an `action_space` that is a list or a pattern was taken for one of "
    "Gymnasium, and raised at the first action (GEM's Sokoban).",
    "Gate 3 asked for a class whose name ends in Env, and refused programs with a `make_env` or "
    "with a class of another name, which the sandbox loads.",
)


def _again() -> str:
    return (
        "Again: `python bench/strangers.py --checkouts DIR`, where DIR/rlve is a checkout of "
        "Zhiyuan-Zeng/RLVE and DIR/bytesized32 one of cognitiveailab/BYTESIZED32; without "
        "--checkouts, those on PyPI alone. tests/library/test_strangers.py holds a sample to it."
    )


def _kind_rows(refused: list[Row]) -> Iterable[tuple[object, ...]]:
    by_kind: dict[Kind, list[Row]] = {}
    for row in refused:
        by_kind.setdefault(kind_of(row), []).append(row)
    for kind, rows in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        example = rows[0]
        yield (
            kind.whose or "?",
            len(rows),
            kind.said,
            _counts(row["library"] for row in rows),
            f"{example['name']}: {_short(refusal_text(example), 140)}",
        )


def _counts(values: Iterable[str]) -> str:
    counted = Counter(value for value in values if value != "OK")
    return ", ".join(f"{value} {count}" for value, count in counted.most_common())


def _short(text: str, characters: int) -> str:
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
    return line if len(line) <= characters else f"{line[:characters]}..."


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines]
