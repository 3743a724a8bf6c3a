"""Playing many episodes of many programs in lockstep, two kinds of rpc for all of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from sandbox_api.client import AsyncSandboxClient
from sandbox_api.types import Diagnostic, Outcome, ResetItem, StepItem

from designer.probes import Policy


@dataclass
class Play:
    """One episode of a gate, filled in while it is played.

    Attributes:
        observations: The first one, then one a step.
        listed: Valid actions that the reset's info lists under "actions".
        outcome: Of the last call; not COMPLETED if the program failed.
        fault: The service's failure; the play says nothing about the program then.
        cost_s: This play's share of the wall time of the calls it took part in.
        steps: Steps completed.
    """

    program_id: str
    seed: int
    max_turns: int
    policy: Policy
    episode_id: str = ""
    observations: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    listed: tuple[str, ...] = ()
    terminated: bool = False
    truncated: bool = False
    outcome: Outcome | None = None
    diagnostic: Diagnostic | None = None
    cut_bytes: int = 0
    failed_action: str = ""
    fault: Exception | None = None
    cost_s: float = 0.0

    @property
    def steps(self) -> int:
        return len(self.rewards)

    @property
    def failed(self) -> bool:
        """Whether the program failed; False where the service did."""
        return self.fault is None and self.outcome is not Outcome.COMPLETED

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated

    def failure(self) -> str:
        """What the program did wrong, for people."""
        outcome = self.outcome.name if self.outcome else "no outcome"
        what = f"{outcome} ({self.diagnostic})" if self.diagnostic else outcome
        where = (
            f" on action {self.failed_action[:40]!r}" if self.steps or self.failed_action else ""
        )
        return f"seed {self.seed}{where}: {what}"

    def won(self, win_reward: float) -> bool:
        """Whether the episode terminated with at least this reward."""
        return self.terminated and bool(self.rewards) and self.rewards[-1] >= win_reward


async def run_plays(client: AsyncSandboxClient, plays: Sequence[Play]) -> None:
    """Play all of them until each ended, failed or its policy stopped.

    One reset, then one step call a turn, whatever the number of programs. The episodes stay
    open for `verify`; `close_plays` ends them.

    Raises:
        SandboxError: If the server cannot be reached at all.
    """
    if not plays:
        return
    items = [ResetItem(p.program_id, p.seed, max_turns=p.max_turns) for p in plays]
    began = time.perf_counter()
    episodes = await client.reset(items)
    _share_cost(plays, began)
    for play, episode in zip(plays, episodes, strict=True):
        play.outcome, play.diagnostic, play.fault = (
            episode.outcome,
            episode.diagnostic,
            episode.error,
        )
        play.cut_bytes = episode.observation_cut_bytes
        if episode.ok and episode.error is None:
            play.episode_id = episode.episode_id
            play.observations.append(episode.observation)
            play.listed = _listed(episode.info)
    active = [play for play in plays if play.episode_id]
    while active:
        active = await _step(client, active)


async def _step(client: AsyncSandboxClient, plays: list[Play]) -> list[Play]:
    """Advance plays by one turn; returns those that go on."""
    acting: list[Play] = []
    items: list[StepItem] = []
    for play in plays:
        action = play.policy(play.observations[-1], play.steps)
        if action is not None:
            acting.append(play)
            items.append(StepItem(play.episode_id, play.steps, action))
    if not items:
        return []
    began = time.perf_counter()
    results = await client.step(items)
    _share_cost(acting, began)
    going: list[Play] = []
    for play, item, result in zip(acting, items, results, strict=True):
        play.outcome, play.diagnostic, play.fault = result.outcome, result.diagnostic, result.error
        if result.error is not None or not result.ok or result.reward is None:
            play.failed_action = item.action
            continue
        play.observations.append(result.observation)
        play.rewards.append(result.reward)
        play.cut_bytes = max(play.cut_bytes, result.observation_cut_bytes)
        play.terminated, play.truncated = result.terminated, result.truncated
        if not play.ended:
            going.append(play)
    return going


def _share_cost(plays: Sequence[Play], began: float) -> None:
    share_s = (time.perf_counter() - began) / len(plays)
    for play in plays:
        play.cost_s += share_s


def _listed(info: dict) -> tuple[str, ...]:
    actions = info.get("actions")
    if isinstance(actions, list) and all(isinstance(a, str) and a for a in actions):
        return tuple(actions)
    return ()


async def close_plays(client: AsyncSandboxClient, plays: Sequence[Play]) -> None:
    """End the episodes of plays, those that ended by themselves too."""
    if episode_ids := [play.episode_id for play in plays if play.episode_id]:
        await client.close_episodes(episode_ids)


def count_work(plays: Sequence[Play]) -> Counter[str]:
    """Episodes and steps of plays."""
    return Counter(
        episodes=sum(bool(play.episode_id) for play in plays),
        steps=sum(play.steps for play in plays),
    )
