"""Which subject runs which program with how many episodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from spadework.benchmark import subjects
from spadework.benchmark.case import Case
from spadework.benchmark.programs import PROGRAMS

TRIVIAL = "trivial"
HANGING = 0.01

Sizes = Mapping[str, tuple[int, ...]]

# Episodes by subject, of the trivial program: what the goals compare, and the nearest others.
_SIZES: Sizes = {
    subjects.FLOOR: (64, 1_000),
    subjects.EXEC: (64,),
    subjects.SYNC_VECTOR: (64,),
    subjects.ASYNC_VECTOR: (64,),
    subjects.OPENENV: (1, 64, 1_000),
    subjects.FRESH_JAIL: (64,),
    subjects.SANDBOX: (1, 64, 1_000, 5_000),
    subjects.GROUPED: (1_000,),
    subjects.DIRECT: (64,),
}
# With some of the episodes hanging.
_HANGING_SIZES: Sizes = {subjects.SANDBOX: (1_000,)}
# The whole matrix. Competitors stop where more of them say nothing new, or where a measurement
# takes minutes.
_FULL_SIZES: Sizes = {
    subjects.FLOOR: (1, 64, 1_000),
    subjects.EXEC: (1, 64, 1_000),
    subjects.SYNC_VECTOR: (64, 1_000),
    subjects.ASYNC_VECTOR: (1, 64, 256),
    subjects.OPENENV: (1, 64, 1_000),
    subjects.FRESH_JAIL: (1, 64),
    subjects.SANDBOX: (1, 64, 256, 1_000, 5_000),
    subjects.GROUPED: (1, 64, 256, 1_000, 5_000),
    subjects.SHARDED: (64, 1_000),
    subjects.DIRECT: (1, 64, 256, 1_000),
    subjects.UNPROTECTED: (64, 1_000),
}
_FULL_HANGING_SIZES: Sizes = {
    subjects.ASYNC_VECTOR: (64,),
    subjects.OPENENV: (64,),
    subjects.SANDBOX: (64, 1_000),
    subjects.GROUPED: (64, 1_000),
}
# With programs that do more.
_WORKERS = (
    subjects.EXEC,
    subjects.ASYNC_VECTOR,
    subjects.OPENENV,
    subjects.SANDBOX,
    subjects.GROUPED,
)
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
        full: The whole matrix, and not only what the goals need; so it is as well where
            subjects or programs are named.
    """

    subjects: Collection[str] = ()
    programs: Collection[str] = ()
    episodes: Sequence[int] = ()
    quick: bool = False
    full: bool = False

    @property
    def whole(self) -> bool:
        return self.full or self.quick or bool(self.subjects or self.programs)


def cases(wanted: Selection, seconds: float, settings: dict[str, str]) -> list[Case]:
    """The cases of one round, in order: those that are compared stand beside each other.

    Args:
        wanted: What to measure.
        seconds: Length of one measurement.
        settings: For all subjects.
    """
    names = wanted.programs or (PROGRAMS if wanted.whole else [TRIVIAL])
    programs = {name: make() for name, make in PROGRAMS.items() if name in names}
    plain = _FULL_SIZES if wanted.whole else _SIZES
    hanging_too = _FULL_HANGING_SIZES if wanted.whole else _HANGING_SIZES
    found: list[tuple[str, str, int, float]] = []
    for program in programs:
        for subject in subjects.SUBJECTS:
            if wanted.subjects and subject not in wanted.subjects:
                continue
            if program == TRIVIAL:
                found += [(subject, program, n, 0.0) for n in _sizes(subject, plain, wanted)]
                hanging = _QUICK_HANGING if wanted.quick else HANGING
                found += [
                    (subject, program, n, hanging) for n in _sizes(subject, hanging_too, wanted)
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


def estimated_s(case: Case) -> float:
    """About how long a trial takes on an idle machine, seconds."""
    entry = subjects.SUBJECTS[case.subject]
    batch_s = case.episodes * entry.step_s
    # One to warm up, and two measurements that end with a whole batch.
    stepping_s = batch_s + 2 * max(case.seconds, batch_s)
    introductions = 2 if case.new_program else 1
    return introductions * entry.open_s + case.episodes * entry.start_s + stepping_s


def needs_peers(case: Case) -> bool:
    """Whether it runs with the competitors' Python: there are the packages of runtimes, too."""
    return subjects.SUBJECTS[case.subject].peers or (
        case.subject == subjects.EXEC and bool(case.program.runtime)
    )


def _sizes(subject: str, sizes: Sizes, wanted: Selection) -> Sequence[int]:
    if subject not in sizes:
        return ()
    return wanted.episodes or ((_QUICK_SIZE,) if wanted.quick else sizes[subject])
