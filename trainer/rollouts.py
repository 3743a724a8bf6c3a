"""Playing many episodes at once.

Each episode is a coroutine that generates, acts and observes at its own pace: there is no barrier
a turn, none waits for a slower one, and one that ends frees its place for the next. Requests for
completions meet in the generator, calls of the sandbox in `SandboxCalls`. What the environment,
not the agent, got wrong makes a play lost: it has no return, and trains nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sandbox_api.types import Episode, ResetItem, StepItem, StepResult

from trainer.generation import Batch, GenerationError
from trainer.policies import Policy, RunningEpisode
from trainer.protocols import Progress, SandboxClient
from trainer.rewards import episode_return
from trainer.sandbox_calls import SandboxCalls
from trainer.trajectories import HINTED, Play, Trajectory, Turn


@dataclass
class RolloutCount:
    """What a batch of plays cost.

    Attributes:
        steps: Environment steps, resets not counted.
        sandbox_s: Wall seconds during which the sandbox had something to do.
        faults: Lost plays by cause.
    """

    steps: int = 0
    sandbox_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)


class _Cohort:
    """Episodes that act at the same time: each waits until all of them have come to its turn.

    Args:
        members: Who is waited for.
    """

    def __init__(self, members: int) -> None:
        self._members = members
        self._asked: list[asyncio.Future[Batch]] = []

    async def turn(self) -> Batch:
        """Wait for the others; the same batch for all."""
        asked: asyncio.Future[Batch] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self._go_on()
        return await asked

    def leave(self) -> None:
        """Be waited for no more."""
        self._members -= 1
        self._go_on()

    def _go_on(self) -> None:
        if self._asked and len(self._asked) == self._members:
            batch, asked = Batch(self._members), self._asked
            self._asked = []
            for future in asked:
                if not future.done():
                    future.set_result(batch)


async def play_all(
    client: SandboxClient,
    policy: Policy,
    plays: Iterable[Play],
    *,
    max_concurrent: int,
    cohorts: int = 1,
    progress: Progress | None = None,
) -> tuple[list[Trajectory], RolloutCount]:
    """Play every episode to its end.

    Args:
        client: The sandbox.
        policy: Who acts.
        plays: What to play.
        max_concurrent: Episodes in flight.
        progress: Told of each play that has ended.
        cohorts: 0 lets each episode act as soon as it can. With n, the episodes are divided into
            n parts, and those of a part act together: what shares a batch of the model in this
            process then depends on the seeds alone, and the same seed samples the same actions
            again, to the last digit. While one part generates, the others are stepped.

    Returns:
        One trajectory a play, in order, and what they cost.

    Raises:
        Whatever the policy raises but `GenerationError`; no episode is left open.
    """
    trajectories = [Trajectory(play) for play in plays]
    streams = _streams(trajectories)
    playing = _Playing(SandboxCalls(client), policy, progress)
    if progress is not None:
        progress.begin("playing", len(trajectories))
    parts = max(1, cohorts)
    limit = max(1, max_concurrent // parts)
    places: list[asyncio.Task[None]] = []
    for part in range(parts):
        waiting = deque(zip(streams[part::parts], trajectories[part::parts], strict=True))
        number = min(limit, len(waiting))
        cohort = _Cohort(number) if cohorts else None
        places += [asyncio.create_task(playing.fill(waiting, cohort)) for _ in range(number)]
    try:
        await asyncio.gather(*places)
    finally:
        for place in places:
            place.cancel()
        await asyncio.gather(*places, return_exceptions=True)
        await playing.calls.aclose()
    playing.count.sandbox_s = playing.calls.clock.seconds
    return trajectories, playing.count


class _Playing:
    """What the places of one `play_all` share."""

    def __init__(self, calls: SandboxCalls, policy: Policy, progress: Progress | None) -> None:
        self.calls = calls
        self._progress = progress
        self.count = RolloutCount()
        self._policy = policy

    async def fill(self, waiting: deque[tuple[str, Trajectory]], cohort: _Cohort | None) -> None:
        """One place: an episode after the other, until none waits."""
        try:
            while waiting:
                stream, trajectory = waiting.popleft()
                await self._play(stream, trajectory, cohort)
                if self._progress is not None:
                    self._progress.advance()
        finally:
            if cohort is not None:
                cohort.leave()

    async def _play(self, stream: str, trajectory: Trajectory, cohort: _Cohort | None) -> None:
        play = trajectory.play
        started = await self.calls.reset(
            ResetItem(
                play.program_id, seed=play.seed, options=play.options, max_turns=play.max_turns
            )
        )
        if not started.ok:
            self._lose(trajectory, _cause(started))
            return
        episode = RunningEpisode(
            trajectory,
            started.episode_id,
            first_observation(started.observation, play),
            listed_actions(started) or play.actions,
            stream,
            started.tools,
        )
        try:
            await self._policy.start(episode)
            while await self._turn(episode, cohort):
                pass
        except GenerationError as error:
            self._lose(trajectory, type(error).__name__)
        finally:
            self._policy.end(episode)
        await self.calls.close(episode.episode_id)

    async def _turn(self, episode: RunningEpisode, cohort: _Cohort | None) -> bool:
        """One action and what it leads to; whether the episode goes on."""
        episode.batch = await cohort.turn() if cohort is not None else None
        action = await self._policy.act(episode)
        index = len(episode.trajectory.turns)
        result = await self.calls.step(StepItem(episode.episode_id, index, action))
        self.count.steps += 1
        return self._take_in(episode, action, result)

    def _take_in(self, episode: RunningEpisode, action: str, result: StepResult) -> bool:
        trajectory = episode.trajectory
        reward = result.reward if result.ok else None
        trajectory.turns.append(Turn(episode.observation, action, reward))
        if reward is None:
            self._lose(trajectory, _cause(result))
            return False
        episode.observation = result.observation
        trajectory.terminated = result.terminated
        trajectory.truncated = not result.terminated and (
            result.truncated
            or len(trajectory.turns) >= trajectory.play.max_turns
            or not self._policy.observe(episode, result.observation)
        )
        if trajectory.terminated or trajectory.truncated:
            trajectory.episode_return = episode_return(reward, terminated=trajectory.terminated)
            return False
        episode.actions = listed_actions(result) or episode.actions
        return True

    def _lose(self, trajectory: Trajectory, fault: str) -> None:
        trajectory.fault = fault
        self.count.faults[fault] += 1


def _streams(trajectories: Sequence[Trajectory]) -> list[str]:
    """A name of each play's own, whatever order they come in."""
    seen: Counter[str] = Counter()
    names = []
    for trajectory in trajectories:
        play = trajectory.play
        name = f"{play.arm}/{play.env_id}/{play.seed}"
        names.append(f"{name}/{seen[name]}")
        seen[name] += 1
    return names


def _cause(what: Episode | StepResult) -> str:
    return what.outcome.name if what.outcome else type(what.error).__name__


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


def listed_actions(what: Episode | StepResult) -> tuple[str, ...]:
    """Valid actions that an environment lists in `info["actions"]`; empty if it lists none."""
    if b'"actions"' not in what.info_json:
        return ()
    actions = what.info.get("actions")
    if isinstance(actions, list) and all(isinstance(a, str) and a for a in actions):
        return tuple(actions)
    return ()
