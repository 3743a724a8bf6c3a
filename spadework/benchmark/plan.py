"""Which subject runs which program with how many episodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spadework.benchmark import subjects
from spadework.benchmark.case import Case
from spadework.benchmark.programs import PROGRAMS

TRIVIAL = "trivial"
HANGING = 0.01

# Episodes by subject, of the trivial program. Competitors stop where more of them say nothing new,
# or where a measurement takes minutes.
_SIZES: dict[str, tuple[int, ...]] = {
    subjects.FLOOR: (1, 64, 1_000),
    subjects.EXEC: (1, 64, 1_000),
    subjects.SYNC_VECTOR: (64, 1_000),
    subjects.ASYNC_VECTOR: (1, 64, 256),
    subjects.OPENENV: (1, 64, 1_000),
    subjects.FRESH_JAIL: (1, 64),
    subjects.SANDBOX: (1, 64, 256, 1_000, 5_000),
    subjects.UNPROTECTED: (64, 1_000),
}
# With some of the episodes hanging.
_HANGING_SIZES: dict[str, tuple[int, ...]] = {
    subjects.ASYNC_VECTOR: (64,),
    subjects.OPENENV: (64,),
    subjects.SANDBOX: (64, 1_000),
}
# With programs that do more.
_WORKERS = (subjects.EXEC, subjects.ASYNC_VECTOR, subjects.OPENENV, subjects.SANDBOX)
_WORKING_SIZE = 64
# Enough to show that it runs.
_QUICK_SIZE = 4
_QUICK_HANGING = 0.25


@dataclass(frozen=True)
class Selection:
    """What is wanted of all that can be measured.

    Attributes:
        subjects: Names; all when empty.
        programs: Names; all when empty.
        episodes: Sizes instead of the subject's own.
        quick: So little of everything that it shows only that it runs.
    """

    subjects: Collection[str] = ()
    programs: Collection[str] = ()
    episodes: Sequence[int] = ()
    quick: bool = False


def cases(wanted: Selection, seconds: float, settings: dict[str, str]) -> list[Case]:
    """The cases of one round, in order: those that are compared stand beside each other.

    Args:
        wanted: What to measure.
        seconds: Length of one measurement.
        settings: For all subjects.
    """
    programs = {
        name: make()
        for name, make in PROGRAMS.items()
        if not wanted.programs or name in wanted.programs
    }
    found: list[tuple[str, str, int, float]] = []
    for program in programs:
        for subject in subjects.SUBJECTS:
            if wanted.subjects and subject not in wanted.subjects:
                continue
            if program == TRIVIAL:
                found += [(subject, program, n, 0.0) for n in _sizes(subject, _SIZES, wanted)]
                hanging = _QUICK_HANGING if wanted.quick else HANGING
                found += [
                    (subject, program, n, hanging) for n in _sizes(subject, _HANGING_SIZES, wanted)
                ]
            elif subject in _WORKERS:
                sizes = _sizes(subject, {subject: (_WORKING_SIZE,)}, wanted)
                found += [(subject, program, n, 0.0) for n in sizes]
    found.sort(key=lambda case: (list(programs).index(case[1]), case[3], case[2]))
    seen: set[tuple[str, str]] = set()
    made = []
    for subject, name, episodes, hanging in found:
        first = (subject, name) not in seen and not hanging
        seen.add((subject, name))
        made.append(
            Case(subject, programs[name], episodes, seconds, hanging, first, settings=settings)
        )
    return made


def needs_peers(case: Case) -> bool:
    """Whether it runs with the competitors' Python: there are the packages of runtimes, too."""
    return subjects.SUBJECTS[case.subject].peers or (
        case.subject == subjects.EXEC and bool(case.program.runtime)
    )


def _sizes(subject: str, sizes: dict[str, tuple[int, ...]], wanted: Selection) -> Sequence[int]:
    if subject not in sizes:
        return ()
    return wanted.episodes or ((_QUICK_SIZE,) if wanted.quick else sizes[subject])
