"""Playing many episodes at once.

All running episodes of a cohort generate together and act in one `Step`, while other cohorts
are stepped; a finished one frees its place for the next that waits, so there is no barrier a
turn. What the environment, not the agent,
got wrong makes a play lost: it has no return, and trains nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox_api.types import Episode, ResetItem, StepItem, StepResult

from trainer.chat import ChatFormat
from trainer.generation import Completion, GenerationRequest, Generator
from trainer.grammar import AllowedTokens, Grammar
from trainer.protocols import SandboxClient
from trainer.rewards import episode_return

PLAIN, HINTED = "plain", "hinted"


@dataclass(frozen=True)
class Play:
    """One episode to be played.

    Attributes:
        env_id: Environment in the archive.
        program_id: Program at the server.
        seed: Of the episode; both arms of a pair share it.
        arm: `plain` or `hinted`.
        hint: Appended to the first observation of a hinted play.
        max_turns: Turn cap.
        actions: Valid actions, where the environment itself lists none.
        options: Constructor arguments, or options of reset.
    """

    env_id: str
    program_id: str
    seed: int
    arm: str = PLAIN
    hint: str = ""
    max_turns: int = 8
    actions: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """One message of the agent and what it led to; reward None if the step was lost."""

    observation: str
    action: str
    reward: float | None


@dataclass
class Trajectory:
    """The record of a play.

    Attributes:
        prompt_ids: Tokens up to the first action.
        completion_ids: Everything after: sampled tokens as sampled, environment text between.
        logprobs: By completion token; 0 for environment text.
        decisions: By completion token, 1 where the agent chose it, 0 where the environment
            wrote it or only one token was allowed.
        allowed: By completion token, what the environment allowed; None for anything.
        spans: By turn, the half-open range of its tokens in `completion_ids`.
        turns: What was seen, done and earned.
        episode_return: None for a lost play.
        fault: Why a lost play was lost: an outcome's name, or the error's.
    """

    play: Play
    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    decisions: list[int] = field(default_factory=list)
    allowed: list[AllowedTokens] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    episode_return: float | None = None
    terminated: bool = False
    truncated: bool = False
    fault: str = ""

    @property
    def lost(self) -> bool:
        """Whether a fault, not the agent, ended it."""
        return bool(self.fault)

    @property
    def context_ids(self) -> list[int]:
        """All tokens so far."""
        return self.prompt_ids + self.completion_ids

    def decided(self) -> list[int]:
        """By turn, how many of its tokens the agent chose."""
        return [sum(self.decisions[start:end]) for start, end in self.spans]

    def add_completion(self, completion: Completion) -> None:
        """Append an action as it was sampled."""
        start = len(self.completion_ids)
        self.completion_ids += completion.token_ids
        self.logprobs += completion.logprobs
        self.decisions += [int(free) for free in completion.free]
        self.allowed += completion.allowed
        self.spans.append((start, len(self.completion_ids)))

    def add_environment_text(self, token_ids: list[int]) -> None:
        """Append what the environment wrote."""
        self.completion_ids += token_ids
        self.logprobs += [0.0] * len(token_ids)
        self.decisions += [0] * len(token_ids)
        self.allowed += [None] * len(token_ids)

    def to_json(self, step: int) -> dict[str, Any]:
        """One line of the trajectory files."""
        return {
            "env_id": self.play.env_id,
            "step": step,
            "arm": self.play.arm,
            "seed": self.play.seed,
            "episode_return": self.episode_return,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "lost": self.lost,
            "fault": self.fault,
            "turns": [
                {"observation": t.observation, "action": t.action, "reward": t.reward}
                for t in self.turns
            ],
        }


@dataclass
class RolloutCount:
    """What a batch of plays cost.

    Attributes:
        steps: Environment steps, resets not counted.
        sandbox_s: Wall seconds spent waiting for the sandbox.
        faults: Lost plays by cause.
    """

    steps: int = 0
    sandbox_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)


@dataclass
class RunningEpisode:
    """An episode in flight.

    Attributes:
        actions: Valid actions as the environment last listed them.
        ended_turn: Whether the model closed its last turn with the end token.
        tools: Schemas that the environment publishes.
        called: Whether its last turn called a tool in the chat template's own way.
    """

    trajectory: Trajectory
    episode_id: str
    observation: str
    actions: tuple[str, ...]
    ended_turn: bool = False
    tools: list[dict[str, Any]] = field(default_factory=list)
    called: bool = False


class Policy:
    """Chooses the next action of every running episode."""

    async def start(self, episode: RunningEpisode, tools: list[dict[str, Any]]) -> None:
        """Take in an episode's first observation."""

    async def act(self, episodes: Sequence[RunningEpisode]) -> list[str]:
        """One action an episode, in order."""
        raise NotImplementedError

    def observe(self, episode: RunningEpisode, observation: str) -> bool:
        """Take in an observation; False if there is no room for another turn."""
        return True


class ModelPolicy(Policy):
    """The model in the agent role; it keeps the tokens of what it plays."""

    def __init__(
        self,
        generator: Generator,
        chat: ChatFormat,
        *,
        max_action_tokens: int,
        context_tokens: int,
        temperature: float,
        constrain_actions: bool,
    ) -> None:
        self._generator = generator
        self._chat = chat
        self._max_action_tokens = max_action_tokens
        self._context_tokens = context_tokens
        self._temperature = temperature
        self._constrain_actions = constrain_actions

    async def start(self, episode: RunningEpisode, tools: list[dict[str, Any]]) -> None:
        episode.tools = tools
        episode.trajectory.prompt_ids = self._chat.first(episode.observation, tools)

    async def act(self, episodes: Sequence[RunningEpisode]) -> list[str]:
        requests = [
            GenerationRequest(
                prompt_ids=e.trajectory.context_ids,
                max_new_tokens=self._max_action_tokens,
                temperature=self._temperature,
                grammar=Grammar(choices=e.actions)
                if self._constrain_actions and e.actions
                else None,
                key=e.episode_id,
            )
            for e in episodes
        ]
        completions = await asyncio.to_thread(self._generator.generate, requests)
        actions = []
        for episode, completion in zip(episodes, completions, strict=True):
            actions.append(self._action(episode, completion))
            episode.trajectory.add_completion(completion)
            episode.ended_turn = self._chat.closed(completion.token_ids)
        return actions

    def _action(self, episode: RunningEpisode, completion: Completion) -> str:
        native = self._chat.tool_calls
        if native is None or not episode.tools:
            return self._chat.text(completion.token_ids)
        context_ids = episode.trajectory.context_ids
        action = native.action(completion.token_ids, context_ids, episode.tools)
        episode.called = action.calls
        return action.text

    def observe(self, episode: RunningEpisode, observation: str) -> bool:
        token_ids = self._chat.next(observation, ended=episode.ended_turn, called=episode.called)
        trajectory = episode.trajectory
        used = len(trajectory.prompt_ids) + len(trajectory.completion_ids)
        if used + len(token_ids) + self._max_action_tokens > self._context_tokens:
            return False
        trajectory.add_environment_text(token_ids)
        return True


@dataclass
class _Cohort:
    """Episodes that generate and act together.

    Attributes:
        limit: Episodes in flight at most.
        stepped: What makes it ready for its next turn.
    """

    waiting: deque[Trajectory]
    limit: int
    running: list[RunningEpisode] = field(default_factory=list)
    stepped: asyncio.Task[None] | None = None


async def play_all(
    client: SandboxClient,
    policy: Policy,
    plays: Iterable[Play],
    *,
    max_concurrent: int,
    cohorts: int = 1,
) -> tuple[list[Trajectory], RolloutCount]:
    """Play every episode to its end.

    Cohorts take turns in a fixed order, and which episodes one has does not depend on how
    long anything takes: the same seed samples the same actions again.

    Args:
        client: The sandbox.
        policy: Who acts.
        plays: What to play.
        max_concurrent: Episodes in flight.
        cohorts: Into how many parts they are divided; while one generates, the others are
            stepped.

    Returns:
        One trajectory a play, in order, and what they cost.
    """
    count = RolloutCount()
    trajectories = [Trajectory(play) for play in plays]
    limit = max(1, max_concurrent // cohorts)
    every = [_Cohort(deque(trajectories[n::cohorts]), limit) for n in range(cohorts)]
    for cohort in every:
        cohort.stepped = asyncio.create_task(_fill(client, policy, cohort, count))
    turns = deque(every)
    try:
        while turns:
            cohort = turns.popleft()
            started_at = time.perf_counter()
            if cohort.stepped is not None:
                await cohort.stepped
            count.sandbox_s += time.perf_counter() - started_at
            if cohort.running:
                actions = await policy.act(cohort.running)
                cohort.stepped = asyncio.create_task(_turn(client, policy, cohort, actions, count))
                turns.append(cohort)
    finally:
        unfinished = [c.stepped for c in every if c.stepped is not None]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        await client.close_episodes([e.episode_id for c in every for e in c.running])
    return trajectories, count


def first_observation(observation: str, play: Play) -> str:
    """The first observation as the agent sees it: with the hint, in the hinted arm."""
    if play.arm == HINTED and play.hint:
        return f"{observation}\n\nHINT: {play.hint}"
    return observation


def void_lost_pairs(plain: Sequence[Trajectory], hinted: Sequence[Trajectory]) -> None:
    """Mark a play lost whose partner is: neither may move the regret."""
    for left, right in zip(plain, hinted, strict=True):
        if left.lost != right.lost:
            survivor = right if left.lost else left
            survivor.fault = "PARTNER_LOST"
            survivor.episode_return = None


async def _fill(
    client: SandboxClient, policy: Policy, cohort: _Cohort, count: RolloutCount
) -> None:
    """Start episodes in the places that are free."""
    while cohort.waiting and len(cohort.running) < cohort.limit:
        room = min(len(cohort.waiting), cohort.limit - len(cohort.running))
        batch = [cohort.waiting.popleft() for _ in range(room)]
        cohort.running += await _start(client, policy, batch, count)


async def _start(
    client: SandboxClient, policy: Policy, batch: list[Trajectory], count: RolloutCount
) -> list[RunningEpisode]:
    episodes = await client.reset(
        [
            ResetItem(
                t.play.program_id,
                seed=t.play.seed,
                options=t.play.options,
                max_turns=t.play.max_turns,
            )
            for t in batch
        ]
    )
    running = []
    for trajectory, episode in zip(batch, episodes, strict=True):
        if not episode.ok:
            _lose(trajectory, episode, count)
            continue
        observation = first_observation(episode.observation, trajectory.play)
        actions = listed_actions(episode) or trajectory.play.actions
        started = RunningEpisode(trajectory, episode.episode_id, observation, actions)
        await policy.start(started, episode.tools)
        running.append(started)
    return running


async def _turn(
    client: SandboxClient,
    policy: Policy,
    cohort: _Cohort,
    actions: Sequence[str],
    count: RolloutCount,
) -> None:
    """Step the running episodes, close those that have ended, and start others for them."""
    results = await client.step(
        [
            StepItem(e.episode_id, len(e.trajectory.turns), action)
            for e, action in zip(cohort.running, actions, strict=True)
        ]
    )
    count.steps += len(cohort.running)
    still, ended = [], []
    for episode, action, result in zip(cohort.running, actions, results, strict=True):
        goes_on = _take_in(policy, episode, action, result, count)
        (still if goes_on else ended).append(episode)
    if ended:
        await client.close_episodes([e.episode_id for e in ended])
    cohort.running = still
    await _fill(client, policy, cohort, count)


def _take_in(
    policy: Policy,
    episode: RunningEpisode,
    action: str,
    result: StepResult,
    count: RolloutCount,
) -> bool:
    trajectory = episode.trajectory
    reward = result.reward if result.ok else None
    trajectory.turns.append(Turn(episode.observation, action, reward))
    if reward is None:
        _lose(trajectory, result, count)
        return False
    episode.observation = result.observation
    trajectory.terminated = result.terminated
    trajectory.truncated = not result.terminated and (
        result.truncated
        or len(trajectory.turns) >= trajectory.play.max_turns
        or not policy.observe(episode, result.observation)
    )
    if trajectory.terminated or trajectory.truncated:
        trajectory.episode_return = episode_return(reward, terminated=trajectory.terminated)
        return False
    episode.actions = listed_actions(result) or episode.actions
    return True


def _lose(trajectory: Trajectory, what: Episode | StepResult, count: RolloutCount) -> None:
    trajectory.fault = what.outcome.name if what.outcome else type(what.error).__name__
    count.faults[trajectory.fault] += 1


def listed_actions(what: Episode | StepResult) -> tuple[str, ...]:
    """Valid actions that an environment lists in `info["actions"]`; empty if it lists none."""
    if b'"actions"' not in what.info_json:
        return ()
    actions = what.info.get("actions")
    if isinstance(actions, list) and all(isinstance(a, str) and a for a in actions):
        return tuple(actions)
    return ()
