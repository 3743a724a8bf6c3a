"""A frozen pool of environments: the agent alone is trained, on what somebody else made."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox_api.types import Program, ResetItem

from trainer.config import Config, DifficultyConfig
from trainer.difficulty import Window
from trainer.environments import ActiveEnvironment
from trainer.evaluation import WIN_RETURN
from trainer.groups import Group
from trainer.protocols import Designer, GivenEnvironment, PoolError, PoolItem, SandboxClient
from trainer.statistics import mean

REFUSALS_SHOWN = 20
REGISTERED_AT_ONCE = 16


@dataclass(frozen=True)
class _Member:
    """An environment of the pool, at the server: one program a difficulty."""

    item: PoolItem
    programs: tuple[Program, ...]


class Pool:
    """Environments that are registered at the server.

    Args:
        members: As `register` found them.
    """

    def __init__(self, members: Sequence[_Member]) -> None:
        self.members = list(members)

    @classmethod
    async def register(
        cls, client: SandboxClient, items: Sequence[PoolItem], held_out: Collection[str] = ()
    ) -> Pool:
        """Register every program, at every difficulty.

        Args:
            client: The sandbox.
            items: What the pool is made of.
            held_out: Programs that training must not see.

        Raises:
            PoolError: Listing all programs that do not load, or do not take their difficulty.
        """
        if not items:
            raise PoolError("the pool holds no environment; look at pool.sources")
        programs = await _registered(client, items)
        members, refused = [], []
        for item in items:
            if any(level.source in held_out for level in item.levels):
                refused.append(f"{item.name}: this world is kept for evaluation")
                continue
            by_source = {lv.source: programs[lv.source, item.runtime] for lv in item.levels}
            failed = [p for p in by_source.values() if p.outcome.name != "COMPLETED"]
            if failed:
                refused.append(f"{item.name}: {failed[0].outcome.name}, {failed[0].diagnostic}")
                continue
            members.append(_Member(item, tuple(by_source[lv.source] for lv in item.levels)))
        refused += await _untakeable(client, members)
        if refused:
            shown = "\n  ".join(refused[:REFUSALS_SHOWN])
            more = len(refused) - REFUSALS_SHOWN
            raise PoolError(
                f"{len(refused)} of {len(items)} environments of the pool cannot be played:"
                f"\n  {shown}" + (f"\n  and {more} more" if more > 0 else "")
            )
        return cls(members)


async def _registered(
    client: SandboxClient, items: Sequence[PoolItem]
) -> dict[tuple[str, str], Program]:
    """The programs by source and runtime, each registered once."""
    wanted = list(dict.fromkeys((lv.source, item.runtime) for item in items for lv in item.levels))
    places = asyncio.Semaphore(REGISTERED_AT_ONCE)

    async def register(source: str, runtime: str) -> Program:
        async with places:
            return await client.register_program(source, runtime=runtime)

    found = await asyncio.gather(*(register(*key) for key in wanted))
    return dict(zip(wanted, found, strict=True))


async def _untakeable(client: SandboxClient, members: Sequence[_Member]) -> list[str]:
    """Try the easiest and the hardest level of what is made harder by options."""
    tried = [
        (member, index)
        for member in members
        for index in sorted({0, len(member.item.levels) - 1})
        if member.item.levels[index].options
    ]
    refused = {}
    for member, index in tried:
        options = member.item.levels[index].options
        (episode,) = await client.reset(
            [ResetItem(member.programs[index].program_id, options=options)]
        )
        if episode.ok:
            await client.close_episodes([episode.episode_id])
        else:
            what = episode.diagnostic or episode.error
            refused[member.item.name] = f"{member.item.name}: with {options}: {what}"
    return list(refused.values())


class PoolCurriculum:
    """Deals out environments of a pool by weight, at difficulties in their windows.

    Args:
        config: The run.
        pool: What there is.
        designer: Remembers what is played.
    """

    def __init__(self, config: Config, pool: Pool, designer: Designer) -> None:
        self._config = config
        self._pool = pool
        self._designer = designer
        self._windows = {
            member.item.name: Window(
                len(member.item.levels), config.difficulty.width, config.difficulty.start
            )
            for member in pool.members
            if len(member.item.levels) > 1
        }
        # Program to what the archive calls it.
        self._remembered: dict[str, str] = {}
        self._drawn: list[tuple[str, int]] = []

    @property
    def earlier(self) -> list[ActiveEnvironment]:
        """None: nothing is designed."""
        return []

    def finished(self, step: int) -> list[ActiveEnvironment]:
        """None: nobody is rewarded for an environment."""
        return []

    async def deal(self, step: int, max_turns: int) -> tuple[list[Group], dict[str, Any]]:
        """Draw environments by their shares, each with a difficulty of its window.

        The plays of a group share its difficulty, since they are held against each other.
        """
        rng = random.Random(f"{self._config.run.seed}/{step}/pool")
        members = self._pool.members
        shares = [member.item.share for member in members]
        groups, self._drawn = [], []
        for slot in range(self._config.design.environments):
            (member,) = rng.choices(members, shares)
            window = self._windows.get(member.item.name)
            difficulty = window.draw(rng) if window else 0
            self._drawn.append((member.item.name, difficulty))
            groups.append(self._group(member, difficulty, slot))
        return groups, {"pool/environments": len({name for name, _ in self._drawn})}

    def _group(self, member: _Member, difficulty: int, slot: int) -> Group:
        item, program = member.item, member.programs[difficulty]
        level = item.levels[difficulty]
        if program.program_id not in self._remembered:
            given = GivenEnvironment(item.origin, level.source, item.skill, item.family, program)
            self._remembered[program.program_id] = self._designer.remember_given(given)
        env_id = self._remembered[program.program_id]
        environment = ActiveEnvironment(
            env_id=env_id,
            slot=slot,
            skill=item.skill,
            family=item.family,
            source=level.source,
            hint="",
            max_turns=item.max_turns,
            program_id=program.program_id,
            limits=program.limits,
            created_step=0,
        )
        return Group(environment, f"{env_id}/{slot}", options=level.options)

    def take_in(self, step: int, groups: Sequence[Group]) -> dict[str, Any]:
        """Let the windows see what was won."""
        settings = self._config.difficulty
        promoted = 0
        for (name, difficulty), group in zip(self._drawn, groups, strict=True):
            if name in self._windows:
                promoted += _see(self._windows[name], difficulty, group, settings)
        if not self._windows:
            return {}
        windows = self._windows.values()
        return {
            "difficulty/drawn": mean([d for name, d in self._drawn if name in self._windows]),
            "difficulty/top": mean([window.top for window in windows]),
            "difficulty/at_end_share": mean([w.top == w.size - 1 for w in windows]),
            "difficulty/promoted": promoted,
            "difficulty/tops": {name: window.top for name, window in self._windows.items()},
        }

    def state(self) -> dict[str, Any]:
        """The windows, and which programs there were."""
        return {
            "pool": self._programs(),
            "windows": {name: window.state() for name, window in self._windows.items()},
        }

    async def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            PoolError: If the pool is another one by now.
        """
        then, now = state["pool"], self._programs()
        if then != now:
            changed = sorted(n for n in then.keys() | now.keys() if then.get(n) != now.get(n))
            raise PoolError(
                f"the pool has changed since the checkpoint: {', '.join(changed[:5])}"
                f"{' and others' if len(changed) > 5 else ''}; put it back as it was, or start "
                "another run"
            )
        for name, window in self._windows.items():
            window.restore(state["windows"][name])

    def _programs(self) -> dict[str, list[str]]:
        return {m.item.name: [p.program_id for p in m.programs] for m in self._pool.members}


def _see(window: Window, difficulty: int, group: Group, settings: DifficultyConfig) -> bool:
    returns = [t.episode_return for t in group.plain if t.episode_return is not None]
    return window.take_in(
        difficulty,
        [value >= WIN_RETURN for value in returns],
        tries=settings.tries,
        promote_at=settings.promote_at,
    )
