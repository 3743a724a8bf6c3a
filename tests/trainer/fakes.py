"""A sandbox and a designer in this process, for tests of what lies between them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox_api.errors import EpisodeNotFoundError
from sandbox_api.types import (
    Episode,
    Limits,
    OracleResult,
    Outcome,
    Program,
    ResetItem,
    StepItem,
    StepResult,
    Verdict,
)

from trainer.generation import Completion, GenerationRequest, Generator


def completions(generator: Generator, requests: Sequence[GenerationRequest]) -> list[Completion]:
    """What a generator samples for requests that are there at once."""

    async def ask() -> list[Completion]:
        return list(await asyncio.gather(*map(generator.generate, requests)))

    return asyncio.run(ask())


GRID_SOURCE = '''
import random

class GridEnv:
    """Walk to the goal on a {size} by {size} grid."""

    def __init__(self, max_turns=8):
        self.max_turns = max_turns

    def reset(self, seed=None):
        rng = random.Random(seed)
        self.at = [rng.randrange({size}), rng.randrange({size})]
        self.goal = list(self.at)
        while abs(self.goal[0] - self.at[0]) + abs(self.goal[1] - self.at[1]) < 2:
            self.goal = [rng.randrange({size}), rng.randrange({size})]
        self.turn = 0
        return self.look(), {{"actions": list("NSEW")}}

    def look(self):
        x, y = self.goal[0] - self.at[0], self.goal[1] - self.at[1]
        return "W-E"[1 + (x > 0) - (x < 0)] + "S-N"[1 + (y > 0) - (y < 0)]

    def step(self, action):
        self.turn += 1
        dx, dy = {{"N": (0, 1), "S": (0, -1), "E": (1, 0), "W": (-1, 0)}}.get(action, (0, 0))
        before = abs(self.goal[0] - self.at[0]) + abs(self.goal[1] - self.at[1])
        x, y = self.at[0] + dx, self.at[1] + dy
        self.at = [min({size} - 1, max(0, x)), min({size} - 1, max(0, y))]
        after = abs(self.goal[0] - self.at[0]) + abs(self.goal[1] - self.at[1])
        won = after == 0
        reward = 1.0 if won else 0.1 if after < before else -0.1
        return self.look(), reward, won, self.turn >= self.max_turns, {{}}

    def solution(self):
        x, y = self.goal[0] - self.at[0], self.goal[1] - self.at[1]
        return ["E" if x > 0 else "W"] * abs(x) + ["N" if y > 0 else "S"] * abs(y)
'''


def grid_source(size: int = 4) -> str:
    return GRID_SOURCE.format(size=size)


@dataclass
class _Live:
    environment: Any
    max_turns: int
    turn: int = 0


@dataclass
class FakeSandboxClient:
    """Runs programs with exec in this process, through the client's methods.

    Attributes:
        fail_steps: (seed, step_index) of steps that end as PROGRAM_ERROR.
        step_batches: Size of every call that steps, in order.
    """

    fail_steps: set[tuple[int, int]] = field(default_factory=set)
    step_batches: list[int] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    live: dict[str, _Live] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    started: int = 0

    async def register_program(
        self, source: str, *, entry: str = "", runtime: str = "", limits: Limits | None = None
    ) -> Program:
        program_id = hashlib.sha256(source.encode()).hexdigest()[:16]
        self.sources[program_id] = source
        return Program(program_id, Outcome.COMPLETED, has_solution=True)

    def _make(self, program_id: str, max_turns: int, options: dict[str, Any]) -> Any:
        space: dict[str, Any] = {"__name__": "program"}
        exec(self.sources[program_id], space)
        classes = [v for k, v in space.items() if k.endswith("Env") and isinstance(v, type)]
        return classes[-1](max_turns=max_turns or 8, **options)

    async def reset(self, items: Sequence[ResetItem]) -> list[Episode]:
        return [episode async for _, episode in self.reset_stream(items)]

    async def reset_stream(self, items: Sequence[ResetItem]) -> AsyncIterator[tuple[int, Episode]]:
        for index, item in enumerate(items):
            environment = self._make(item.program_id, item.max_turns, item.options)
            observation, info = environment.reset(seed=item.seed)
            episode_id = f"e{self.started}"
            self.started += 1
            self.live[episode_id] = _Live(environment, item.max_turns)
            self.seeds[episode_id] = item.seed
            yield (
                index,
                Episode(
                    episode_id,
                    Outcome.COMPLETED,
                    observation=observation,
                    info_json=json.dumps(info).encode(),
                ),
            )

    async def step_stream(self, items: Sequence[StepItem]) -> AsyncIterator[StepResult]:
        self.step_batches.append(len(items))
        for item in items:
            yield self._step(item)

    def _step(self, item: StepItem) -> StepResult:
        live = self.live.get(item.episode_id)
        if live is None:
            error = EpisodeNotFoundError(item.episode_id)
            return StepResult(item.episode_id, item.step_index, None, error=error)
        assert item.step_index == live.turn
        if (self.seeds[item.episode_id], item.step_index) in self.fail_steps:
            del self.live[item.episode_id]
            return StepResult(item.episode_id, item.step_index, Outcome.PROGRAM_ERROR)
        live.turn += 1
        observation, reward, terminated, truncated, info = live.environment.step(item.action)
        return StepResult(
            item.episode_id,
            item.step_index,
            Outcome.COMPLETED,
            observation=observation,
            reward=reward,
            terminated=terminated,
            truncated=truncated or bool(live.max_turns and live.turn >= live.max_turns),
            info_json=json.dumps(info).encode(),
        )

    async def verify(
        self, episode_ids: Sequence[str], *, run_oracle: bool = False, timeout_s: float = 0.0
    ) -> list[Verdict]:
        verdicts = []
        for episode_id in episode_ids:
            environment = self.live[episode_id].environment
            result: tuple[Any, ...] = ()
            actions = list(environment.solution())
            for action in actions:
                result = environment.step(action)
            oracle = OracleResult(
                Outcome.COMPLETED, tuple(actions), result[1], result[2], result[3]
            )
            verdicts.append(Verdict(episode_id, reproduced=True, oracle=oracle))
        return verdicts

    async def close_episodes(self, episode_ids: Sequence[str]) -> int:
        return sum(self.live.pop(i, None) is not None for i in episode_ids)


@dataclass(frozen=True)
class FakeRequest:
    slot: int
    skill: str
    messages: list[dict[str, Any]]
    json_schema: str | None
    max_turns: int
    seed: int = 0


@dataclass
class FakeDraft:
    request: FakeRequest
    completion: str
    source: str | None
    hint: str | None
    family: str
    reason: str | None


@dataclass
class FakeReport:
    draft: FakeDraft
    reason: str
    program: Program | None
    env_id: str

    @property
    def passed(self) -> bool:
        return self.reason == "OK"


@dataclass
class FakeWritten:
    report: FakeReport
    samples: list[Any]


@dataclass
class FakeOutcome:
    written: list[FakeWritten]
    mended: int = 0
    unanswered: int = 0

    @property
    def reasons(self) -> Counter[str]:
        return Counter(entry.report.reason for entry in self.written)


@dataclass
class FakeDesigner:
    """Grids of the size that the model writes; everything it is told, it keeps.

    Attributes:
        repairs: Completions that each slot takes after its first.
        capped: Turn caps that it was told, one a round of writing.
    """

    client: FakeSandboxClient
    repairs: int = 0
    max_turns: int = 8
    capped: list[int] = field(default_factory=list)
    remembered: list[tuple[str, int]] = field(default_factory=list)
    plays: list[tuple[str, int, list[dict[str, Any]]]] = field(default_factory=list)
    measurements: list[dict[str, Any]] = field(default_factory=list)
    rewound: list[int] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)

    schema = json.dumps(
        {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "enum": [3, 4, 5]},
                "k": {"enum": [0, 1, 2, 3]},
            },
            "required": ["n", "k"],
            "additionalProperties": False,
        }
    )

    def requests(self, n: int, step: int) -> list[FakeRequest]:
        message = {"role": "user", "content": "design"}
        return [FakeRequest(i, "spatial", [message], self.schema, 8) for i in range(n)]

    def parse(self, request: FakeRequest, completion: str) -> FakeDraft:
        spec = json.loads(completion)
        source = grid_source(spec["n"]) + f"# variant {spec['k']}\n"
        return FakeDraft(request, completion, source, "go where the letters say", "grid", None)

    async def write(self, writer: Any, n: int, step: int, progress: Any = None) -> FakeOutcome:
        self.capped.append(self.max_turns)
        requests = self.requests(n, step)
        rounds = [await writer.complete(requests, 256) for _ in range(1 + self.repairs)]
        drafts = [
            self.parse(request, answer.text)
            for request, answer in zip(requests, rounds[-1], strict=True)
        ]
        reports = await self.validate(drafts)
        for report in reports:
            self.remembered.append((report.env_id, step))
        samples = [[answer.sample for answer in answers] for answers in zip(*rounds, strict=True)]
        return FakeOutcome([FakeWritten(r, s) for r, s in zip(reports, samples, strict=True)])

    async def validate(self, drafts: list[FakeDraft]) -> list[FakeReport]:
        reports = []
        for draft in drafts:
            program = await self.client.register_program(draft.source or "")
            reports.append(FakeReport(draft, "OK", program, program.program_id))
        return reports

    def remember_given(self, given: Any) -> str:
        self.given.append(given)
        return str(given.program.program_id)

    def record_plays(self, env_id: str, step: int, plays: list[dict[str, Any]]) -> None:
        self.plays.append((env_id, step, plays))

    def record_measurement(self, env_id: str, step: int, **values: Any) -> None:
        self.measurements.append({"env_id": env_id, "step": step, **values})

    def rewind(self, step: int) -> None:
        self.rewound.append(step)
