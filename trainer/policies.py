"""Who acts in an episode."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainer.chat import ChatFormat
from trainer.generation import Batch, Completion, GenerationRequest, Generator
from trainer.grammar import Grammar
from trainer.trajectories import Trajectory


@dataclass
class RunningEpisode:
    """An episode in flight.

    Attributes:
        stream: Names its random numbers among those of the plays that run with it.
        actions: Valid actions as the environment last listed them.
        tools: Schemas that the environment publishes.
        batch: What its next action must be generated together with; None for anything.
        ended_turn: Whether the model closed its last turn with the end token.
        called: Whether its last turn called a tool in the chat template's own way.
    """

    trajectory: Trajectory
    episode_id: str
    observation: str
    actions: tuple[str, ...]
    stream: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)
    batch: Batch | None = None
    ended_turn: bool = False
    called: bool = False


class Policy:
    """Chooses the next action of each running episode; many are asked for at once."""

    async def start(self, episode: RunningEpisode) -> None:
        """Take in an episode's first observation."""

    async def act(self, episode: RunningEpisode) -> str:
        """The next action.

        Raises:
            GenerationError: If there is none, for no reason of the episode's.
        """
        raise NotImplementedError

    def observe(self, episode: RunningEpisode, observation: str) -> bool:
        """Take in an observation; False if there is no room for another turn."""
        return True

    def end(self, episode: RunningEpisode) -> None:
        """Let go of what is kept of an episode."""


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

    async def start(self, episode: RunningEpisode) -> None:
        episode.trajectory.prompt_ids = self._chat.first(episode.observation, episode.tools)

    async def act(self, episode: RunningEpisode) -> str:
        trajectory = episode.trajectory
        constrained = self._constrain_actions and episode.actions
        completion = await self._generator.generate(
            GenerationRequest(
                prompt_ids=trajectory.context_ids,
                max_new_tokens=self._max_action_tokens,
                temperature=self._temperature,
                grammar=Grammar(choices=episode.actions) if constrained else None,
                key=episode.episode_id,
                stream=f"{episode.stream}/{len(trajectory.turns)}",
                batch=episode.batch,
            )
        )
        action = self._action(episode, completion)
        trajectory.add_completion(completion)
        episode.ended_turn = self._chat.closed(completion.token_ids)
        return action

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

    def end(self, episode: RunningEpisode) -> None:
        self._generator.forget(episode.episode_id)
