"""What a step's plays leave behind: metrics, rows of the archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.evaluation import WIN_RETURN
from trainer.generation import GenerationCount
from trainer.groups import Group
from trainer.rollouts import RolloutCount
from trainer.statistics import mean, std
from trainer.trajectories import Trajectory


def play_metrics(
    groups: Sequence[Group], count: RolloutCount, generated: GenerationCount
) -> dict[str, Any]:
    """What the plays of a step showed and cost, by the names of a run's metrics."""
    returns = _returns([t for g in groups if not g.rehearsed for t in g.plain])
    metrics = {
        "agent/mean_return": mean(returns),
        "agent/return_std": std(returns),
        "agent/return_n": len(returns),
        "agent/win_rate": mean([r >= WIN_RETURN for r in returns]),
        "sandbox/episodes": sum(len(g.plain) + len(g.hinted) for g in groups),
        "sandbox/steps_per_s": count.steps / max(count.sandbox_s, 1e-9),
        "sandbox/lost_plays": sum(count.faults.values()),
        "generation/tokens_per_s": generated.tokens / max(generated.seconds, 1e-9),
        **{f"sandbox/kills/{fault}": n for fault, n in count.faults.items()},
    }
    rehearsed = [t for g in groups if g.rehearsed for t in g.plain]
    if rehearsed:
        metrics["agent/mean_return_rehearsed"] = mean(_returns(rehearsed))
    hinted = [t for g in groups for t in g.hinted]
    if hinted:
        metrics["agent/mean_return_hinted"] = mean(_returns(hinted))
    return metrics


def archive_plays(groups: Sequence[Group]) -> dict[str, list[dict[str, Any]]]:
    """The plays by environment, as the archive stores them."""
    plays: dict[str, list[dict[str, Any]]] = {}
    for group in groups:
        kept = plays.setdefault(group.environment.env_id, [])
        kept += [_archive_play(t) for t in group.plain + group.hinted]
    return plays


def _returns(trajectories: Sequence[Trajectory]) -> list[float]:
    return [t.episode_return for t in trajectories if t.episode_return is not None]


def _archive_play(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "arm": trajectory.play.arm,
        "seed": trajectory.play.seed,
        "episode_return": trajectory.episode_return,
        "terminated": trajectory.terminated,
        "truncated": trajectory.truncated,
        "turns": len(trajectory.turns),
    }
