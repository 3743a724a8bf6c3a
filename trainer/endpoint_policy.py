"""A server's model in the agent role, for playing and measuring; it cannot train."""

from __future__ import annotations

from trainer.conversations import Conversation, ConversationSettings
from trainer.endpoint import Endpoint
from trainer.policies import Policy, RunningEpisode


class EndpointPolicy(Policy):
    """Plays every episode as a conversation of its own.

    Args:
        endpoint: The model; whoever makes it closes it.
        settings: How it is asked.
    """

    def __init__(self, endpoint: Endpoint, settings: ConversationSettings) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._conversations: dict[str, Conversation] = {}

    async def start(self, episode: RunningEpisode) -> None:
        self._conversations[episode.episode_id] = Conversation(
            self._endpoint, self._settings, episode.observation, episode.tools, episode.stream
        )

    async def act(self, episode: RunningEpisode) -> str:
        """The next action.

        Raises:
            EndpointError: If the server fails, or the budget is spent: then nothing is measured.
        """
        conversation = self._conversations[episode.episode_id]
        action = await conversation.act(episode.actions)
        episode.trajectory.written_tokens = conversation.tokens
        return action

    def observe(self, episode: RunningEpisode, observation: str) -> bool:
        self._conversations[episode.episode_id].observe(observation)
        return True

    def end(self, episode: RunningEpisode) -> None:
        self._conversations.pop(episode.episode_id, None)
