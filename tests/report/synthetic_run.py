"""Writes a run folder that looks like a real run, from a seed.

`python tests/report/synthetic_run.py DIRECTORY` leaves one to look at, report included.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import random
import sqlite3
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAMILIES = {
    "combination lock": "Logical Deduction",
    "grid walk": "Spatial Reasoning",
    "water jugs": "Mathematical Reasoning",
    "switch panel": "Causal Inference",
    "supply route": "Optimization",
    "card sequence": "Pattern Recognition",
}
REFUSALS = ("PARSE", "LOAD", "FUZZ", "DETERMINISM", "ORACLE", "TRIVIAL", "DUPLICATE")
EPISODES = 8
REPLAY_STEPS = 4

_SOURCE = '''\
import random


class {name}Env:
    """Find the code: {width} digits from 0 to {top}. Feedback tells how many are in place."""

    def __init__(self, max_turns={turns}):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.code = [rng.randrange({top} + 1) for _ in range({width})]
        self.turns = 0
        return f"A lock with {width} wheels, 0 to {top}. Say \\\\boxed{{digits}}.", {{}}

    def step(self, action):
        self.turns += 1
        text = action.split("boxed{{")[-1].rstrip("}}")
        guess = [int(c) for c in text if c.isdigit()][: {width}]
        right = sum(a == b for a, b in zip(guess, self.code))
        won = right == {width}  # every wheel
        over = self.turns >= self.max_turns
        return f"{{right}} of {width} in place.", float(won), won, over and not won, {{}}

    def solution(self):
        return ["\\\\boxed{{" + "".join(map(str, self.code)) + "}}"]
'''
_HINT = (
    "Change one wheel at a time and watch whether the count of wheels in place rises; "
    "keep a digit once it counts."
)

_SCHEMA = """
CREATE TABLE environments(env_id TEXT PRIMARY KEY, created_step INTEGER, slot INTEGER, kind TEXT,
  method TEXT, skill TEXT, family TEXT, spec_json TEXT, source TEXT, hint TEXT, prompt TEXT,
  completion TEXT, gate_reason TEXT, gate_detail TEXT, gate_cost_json TEXT, designer_reward REAL);
CREATE TABLE plays(env_id TEXT, step INTEGER, arm TEXT, seed INTEGER, episode_return REAL,
  terminated INTEGER, truncated INTEGER, turns INTEGER);
CREATE TABLE measurements(env_id TEXT, step INTEGER, return_plain REAL, return_hinted REAL,
  regret REAL, regret_se REAL, regime TEXT, n_pairs INTEGER);
"""


@dataclass
class SyntheticRun:
    """The state of a run while it is made up."""

    path: Path
    rng: random.Random
    database: sqlite3.Connection
    steps: int
    slots: int
    extra_text: str = ""
    metrics: list[dict[str, Any]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def skill_at(self, step: float) -> float:
        return 4.2 / (1 + math.exp(-(step - self.steps * 0.4) / (self.steps * 0.13))) - 1.6

    def design(self, step: int) -> list[dict[str, Any]]:
        kept = []
        for slot in range(self.slots):
            family, skill = self.rng.choice(list(FAMILIES.items()))
            difficulty = self.rng.gauss(
                0.2 + 1.9 * step / self.steps, 1.0 - 0.4 * step / self.steps
            )
            width, turns = self.rng.randrange(2, 5), self.rng.randrange(6, 13)
            spec = {"family": family, "wheels": width, "top": 5, "turns": turns, "slot": slot}
            source = _SOURCE.format(
                name=family.title().replace(" ", ""), width=width, top=5, turns=turns
            )
            env_id = hashlib.sha256(f"{step}/{slot}/{self.rng.random()}".encode()).hexdigest()
            reason = "OK" if self.rng.random() < 0.72 else self.rng.choice(REFUSALS)
            if reason != "OK":
                env_id = f"refused:{env_id[:16]}"
            row = {
                "env_id": env_id,
                "created_step": step,
                "slot": slot,
                "kind": "game",
                "method": "structured",
                "skill": skill,
                "family": "" if reason == "PARSE" else family + self.extra_text,
                "spec_json": None if reason == "PARSE" else json.dumps(spec),
                "source": None if reason == "PARSE" else source + self.extra_text,
                "hint": None if reason == "PARSE" else _HINT + self.extra_text,
                "prompt": json.dumps(
                    [
                        {
                            "role": "system",
                            "content": "You design environments." + self.extra_text,
                        },
                        {"role": "user", "content": f"Skill: {skill}. At most {turns} turns."},
                    ]
                ),
                "completion": json.dumps(spec) + self.extra_text,
                "gate_reason": reason,
                "gate_detail": "" if reason == "OK" else f"gate {reason}: seed 3 failed",
                "gate_cost_json": json.dumps({"load": 0.012, "fuzz": 0.31, "oracle": 0.044}),
                "designer_reward": None,
                "difficulty": difficulty,
            }
            if reason == "OK":
                kept.append(row)
            stored = {k: v for k, v in row.items() if k != "difficulty"}
            marks = ",".join("?" * len(stored))
            self.database.execute(
                f"INSERT INTO environments VALUES ({marks})", tuple(stored.values())
            )
            self.reasons[reason] += 1
        return kept

    def play(self, row: dict[str, Any], step: int, lines: list[str]) -> dict[str, Any]:
        """Plays of one step; the hinted arm only where the environment is new."""
        arms = {"plain": 0.0}
        ability = self.skill_at(step) - row["difficulty"]
        if step == row["created_step"]:
            arms["hinted"] = 0.9 / (1 + math.exp(ability))
        returns: dict[str, list[float]] = {arm: [] for arm in arms}
        lost_plays = 0
        for seed in range(step * 100, step * 100 + EPISODES):
            luck = self.rng.gauss(0, 0.7)
            lost = self.rng.random() < 0.004
            lost_plays += lost
            for arm, bonus in arms.items():
                won = self.rng.random() < 1 / (1 + math.exp(-2 * (ability + bonus + luck)))
                value = None if lost else float(won)
                if value is not None:
                    returns[arm].append(value)
                turns = self._turns(won, arm)
                self.database.execute(
                    "INSERT INTO plays VALUES (?,?,?,?,?,?,?,?)",
                    (row["env_id"], step, arm, seed, value, won, not won, len(turns)),
                )
                record = {
                    "env_id": row["env_id"],
                    "step": step,
                    "arm": arm,
                    "seed": seed,
                    "episode_return": value,
                    "terminated": won,
                    "truncated": not won,
                    "lost": lost,
                    "fault": "TIME_LIMIT" if lost else None,
                    "turns": turns,
                }
                lines.append(json.dumps(record))
        row.setdefault("returns", []).extend(returns["plain"])
        if "hinted" in arms:
            differences = [h - p for p, h in zip(returns["plain"], returns["hinted"], strict=True)]
            row["regret"], row["pairs"] = _mean(differences), len(differences)
            row["regret_se"] = _std(differences) / math.sqrt(len(differences))
            row["hinted"] = _mean(returns["hinted"])
        return {**returns, "lost": lost_plays}

    def measure(self, row: dict[str, Any], step: int) -> None:
        plain, regret, se = _mean(row["returns"]), row["regret"], row["regret_se"]
        regime = "mastered" if plain > 0.95 else "intractable" if plain < 0.05 else "frontier"
        regime = "misleading_hint" if regret + 2 * se < 0 else regime
        if regime == "intractable" and regret - 2 * se > 0:
            regime = "password_only"
        self.database.execute(
            "INSERT INTO measurements VALUES (?,?,?,?,?,?,?,?)",
            (row["env_id"], step, plain, row["hinted"], regret, se, regime, row["pairs"]),
        )

    def _turns(self, won: bool, arm: str) -> list[dict[str, Any]]:
        start = "A lock with 3 wheels, 0 to 5. Say \\boxed{digits}." + self.extra_text
        if arm == "hinted":
            start += f"\n\nHINT: {_HINT}"
        turns = []
        for i in range(self.rng.randrange(2, 7)):
            action = f"\\boxed{{{self.rng.randrange(600):03d}}}" + self.extra_text
            turns.append({"observation": start, "action": action, "reward": 0.0})
            start = f"{self.rng.randrange(3)} of 3 in place. {7 - i} turns left."
        turns[-1]["reward"] = float(won)
        return turns


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _std(values: list[float]) -> float:
    mean = _mean(values)
    return math.sqrt(sum((v - mean) ** 2 for v in values) / max(1, len(values) - 1))


def write_synthetic_run(
    path: Path,
    *,
    seed: int = 1,
    steps: int = 60,
    slots: int = 8,
    killed: bool = False,
    extra_text: str = "",
) -> Path:
    """Make up a run.

    Args:
        killed: End in the middle of a step: no evaluation, no summary, torn files.
        extra_text: Appended to everything that a model or an environment wrote.
    """
    path.mkdir(parents=True)
    (path / "trajectories").mkdir()
    database = sqlite3.connect(path / "archive.sqlite")
    database.executescript(_SCHEMA)
    run = SyntheticRun(path, random.Random(seed), database, steps, slots, extra_text)
    config = {
        "model": {"name": "tiny", "hidden_size": 128, "layers": 4},
        "design": {"method": "structured", "environments": slots, "replay_steps": REPLAY_STEPS},
        "play": {"group_size": EPISODES, "max_turns": 12, "horizon_stages": []},
        "update": {"learning_rate": 1e-3, "loss": "dapo"},
        "evaluation": {"episodes": 240, "seed": 1_000_000},
        "run": {"name": path.name, "seed": seed, "steps": steps},
    }
    (path / "config.json").write_text(json.dumps(config, indent=2))
    live: list[dict[str, Any]] = []
    clock = 0.0
    for step in range(1, (steps * 3 // 5 if killed else steps) + 1):
        designing = step % REPLAY_STEPS == 1
        run.reasons = Counter()
        if designing:
            live = run.design(step)
        lines: list[str] = []
        played = [run.play(row, step, lines) for row in live]
        if designing:
            for row in live:
                run.measure(row, step)
        _write_metrics(run, step, designing, live, played)
        clock += sum(run.metrics[-1][f"time/{part}_s"] for part in ("design", "play", "update"))
        run.metrics[-1]["time_s"] = 1_700_000_000 + clock
        with gzip.open(path / "trajectories" / f"step_{step:06d}.jsonl.gz", "wt") as file:
            file.write("\n".join(lines) + "\n")
    database.commit()
    database.close()
    text = "".join(json.dumps(row) + "\n" for row in run.metrics)
    if killed:
        (path / "metrics.jsonl").write_text(text + '{"step": 36, "agent/mean_ret')
        last = max((path / "trajectories").iterdir())
        last.write_bytes(last.read_bytes()[:-900])
    else:
        (path / "metrics.jsonl").write_text(text)
        (path / "eval.json").write_text(json.dumps(_evaluation(run.rng)))
        (path / "summary.json").write_text(json.dumps({"steps": steps, "wall_s": round(clock)}))
    return path


def _write_metrics(
    run: SyntheticRun,
    step: int,
    designing: bool,
    live: list[dict[str, Any]],
    played: list[dict[str, Any]],
) -> None:
    rng = run.rng
    plain = [v for p in played for v in p["plain"]]
    lost = sum(p["lost"] for p in played)
    row = {
        "step": step,
        "stage": 0 if step < run.steps * 2 // 3 else 1,
        "agent/mean_return": _mean(plain),
        "agent/return_std": _std(plain),
        "agent/return_n": len(plain),
        "agent/win_rate": _mean(plain),
        "sandbox/steps_per_s": rng.gauss(9500, 900),
        "sandbox/lost_plays": lost,
        "generation/tokens_per_s": rng.gauss(2400, 150),
        "update/loss": rng.gauss(0, 0.02),
        "update/entropy": 1.7 * math.exp(-step / run.steps) + rng.gauss(0, 0.04),
        "update/grad_norm": abs(rng.gauss(0.6, 0.2)),
        "time/design_s": rng.gauss(3.1, 0.3) if designing else 0.0,
        "time/play_s": rng.gauss(2.4, 0.3),
        "time/update_s": rng.gauss(1.9, 0.2),
        "groups/no_variance_share": _mean([float(_std(p["plain"]) == 0) for p in played]),
    }
    if lost:
        row["sandbox/kills/TIME_LIMIT"] = lost
        row["sandbox/kills/MEMORY_LIMIT"] = rng.randrange(2)
    if designing:
        row["agent/mean_return_hinted"] = _mean([v for p in played for v in p["hinted"]])
        row["designer/valid_share"] = run.reasons["OK"] / run.reasons.total()
        row |= {f"gates/{reason}": n for reason, n in run.reasons.items()}
    if step % REPLAY_STEPS == 0:
        row |= _reward_designer(run, step, live)
    run.metrics.append(row)


def _reward_designer(run: SyntheticRun, step: int, live: list[dict[str, Any]]) -> dict[str, Any]:
    rewards = []
    for environment in live:
        run.measure(environment, step)
        off = max(0.0, abs(_mean(environment["returns"]) - 0.5) - 0.1)
        scaled = min(max(environment["regret"] / 0.15, 0.0), 1.0)
        reward = 0.4 * scaled + 0.6 * max(0.0, 1 - off / 0.25)
        rewards.append(reward)
        run.database.execute(
            "UPDATE environments SET designer_reward = ? WHERE env_id = ?",
            (reward, environment["env_id"]),
        )
    regrets = [environment["regret"] for environment in live]
    learnable = [0.2 <= _mean(environment["returns"]) <= 0.8 for environment in live]
    return {
        "designer/mean_reward": _mean(rewards),
        "designer/reward_std": _std(rewards),
        "designer/reward_n": len(rewards),
        "designer/rewards": rewards,
        "designer/learnable_share": _mean([float(value) for value in learnable]),
        "regret/mean": _mean(regrets),
        "regret/se": _std(regrets) / math.sqrt(len(regrets)),
    }


def _evaluation(rng: random.Random) -> dict[str, Any]:
    policies = {}
    for name, level in (("before", 0.09), ("after", 0.83), ("random", 0.05), ("oracle", 1.0)):
        returns = [float(rng.random() < level) for _ in range(240)]
        mean, half = _mean(returns), 1.96 * _std(returns) / math.sqrt(len(returns))
        families = {
            family: {
                "n": 40,
                "mean_return": _mean(returns[i * 40 : i * 40 + 40]),
                "ci95": [max(0.0, mean - 0.15), min(1.0, mean + 0.15)],
            }
            for i, family in enumerate(FAMILIES)
        }
        interval = [mean - half, mean + half]
        policies[name] = {
            "n": 240,
            "mean_return": mean,
            "ci95": interval,
            "win_rate": mean,
            "win_ci95": interval,
            "by_family": families,
            "returns": returns,
        }
    protocol = {"n": 240, "seeds": "900000 to 900239", "families": list(FAMILIES)}
    return {"protocol": protocol, "policies": policies}


if __name__ == "__main__":
    from spadework.report import write_report

    print(write_report(write_synthetic_run(Path(sys.argv[1]))))
