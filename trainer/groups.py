"""What a step plays, and what came of it: groups of plays that are held against each other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.environments import ActiveEnvironment
from trainer.policies import Policy
from trainer.protocols import SandboxClient
from trainer.rollouts import RolloutCount, play_all, void_lost_pairs
from trainer.trajectories import HINTED, PLAIN, Play, Trajectory

TRAINING_SEEDS = 1_000_000


@dataclass
class Group:
    """The plays of one environment in a step.

    Attributes:
        key: Seeds its episodes; unique in a step.
        compared: Whether it is played with the hint, too.
        rehearsed: Whether the environment is of an earlier cycle.
        options: Constructor arguments, or options of reset, of its episodes.
        plain: Its plays, once they are played.
        hinted: Those with the hint; empty if not `compared`.
    """

    environment: ActiveEnvironment
    key: str
    compared: bool = False
    rehearsed: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    plain: list[Trajectory] = field(default_factory=list)
    hinted: list[Trajectory] = field(default_factory=list)

    def plays(self, size: int, max_turns: int, rng: random.Random, paired: bool) -> list[Play]:
        """Its plays: all of the plain arm, then all of the hinted one."""
        environment = self.environment
        drawn = rng.sample(range(TRAINING_SEEDS), size if paired else 2 * size)
        # Paired, the slice of the second arm is the same as that of the first.
        seeds = {PLAIN: drawn[:size], HINTED: drawn[-size:]}
        return [
            Play(
                env_id=environment.env_id,
                program_id=environment.program_id,
                seed=seed,
                arm=arm,
                hint=environment.hint,
                # An environment keeps the turns it was written for while it is replayed: its
                # returns are compared over its replays, and mean nothing across caps.
                max_turns=min(max_turns, environment.max_turns or max_turns),
                options=self.options,
            )
            for arm in ((PLAIN, HINTED) if self.compared else (PLAIN,))
            for seed in seeds[arm]
        ]


async def play_groups(
    client: SandboxClient,
    policy: Policy,
    groups: Sequence[Group],
    *,
    size: int,
    max_turns: int,
    seed: str,
    paired: bool,
    **limits: Any,
) -> RolloutCount:
    """Play all groups at once, and fill in their plays.

    Args:
        client: The sandbox.
        policy: Who acts.
        groups: What to play.
        size: Plays of a group and arm (G).
        max_turns: Turn cap in force.
        seed: Of the episodes' seeds, together with each group's key.
        paired: Whether both arms play the same seeds.
        limits: As `play_all` takes them.
    """
    plays: list[Play] = []
    for group in groups:
        # Seeded by text, so that neither the order nor the number of environments counts.
        rng = random.Random(f"{seed}/{group.key}")
        plays += group.plays(size, max_turns, rng, paired)
    trajectories, count = await play_all(client, policy, plays, **limits)
    done = iter(trajectories)
    for group in groups:
        group.plain = [next(done) for _ in range(size)]
        group.hinted = [next(done) for _ in range(size)] if group.compared else []
        if group.compared:
            void_lost_pairs(group.plain, group.hinted)
    return count
