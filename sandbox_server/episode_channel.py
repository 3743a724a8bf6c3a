"""Steps by the thousand: an episode's channel that takes the usual answer by the shortest way."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from sandbox_server.channel import Channel
from sandbox_server.endpoint import Answer, Pending
from sandbox_server.episode import Episode
from sandbox_server.group_member import reply_of
from sandbox_server.worker import frames, group_frames

_log = logging.getLogger(__name__)

# A NamedTuple's own constructor takes twice as long.
_new = tuple.__new__
_pack_request = frames.FIRST.pack
_unpack_reply = frames.ONLY_REPLY.unpack_from
_MAX_ONLY_ACTION_BYTES = frames.MAX_FRAGMENT_BYTES - frames.REQUEST_HEADER_BYTES
_HEADER_BYTES = frames.ONLY_REPLY.size


class Arrivals:
    """Completed steps that one look at the sockets has brought, to be settled together.

    Each goes on in the middle of its episode, without an info and with nothing cut: what is
    usual. Everything else goes to the step's own callback as it comes.
    """

    def __init__(self, settle: Callable[[list[EpisodeChannel], group_frames.Chunk], None]) -> None:
        self._settle = settle
        self._channels: list[EpisodeChannel] = []
        self._rewards: list[float] = []
        self._observations: list[str] = []

    def add(self, channel: EpisodeChannel, reward: float, observation: str) -> None:
        self._channels.append(channel)
        self._rewards.append(reward)
        self._observations.append(observation)

    def settle(self) -> None:
        """Settle what there is; called when the sockets that were ready have been read."""
        if not self._channels:
            return
        channels, rewards, observations = self._channels, self._rewards, self._observations
        self._channels, self._rewards, self._observations = [], [], []
        zeros = bytes(len(channels))
        nothing = [b""] * len(channels)
        try:
            self._settle(
                channels, group_frames.Chunk(zeros, rewards, zeros, observations, nothing)
            )
        except Exception:
            _log.exception("settling steps failed")
            # Whoever still waits hears of its own step alone.
            for channel, reward, observation in zip(channels, rewards, observations, strict=True):
                if channel.episode is not None and channel.episode.waiters:
                    channel.answer(reply_of(0, reward, 0, observation, b""))


class EpisodeChannel(Channel):
    """A channel whose process plays an episode."""

    __slots__ = ("_arrivals", "_on_step", "episode")

    # Its step has no answer but the one at hand, or it would not be among the arrivals.
    steps_quickly = True

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """As a channel."""
        super().__init__(*arguments, **named)
        self.episode: Episode | None = None
        self._on_step: Callable[[Answer], None] | None = None

    def attach(
        self, episode: Episode, on_step: Callable[[Answer], None], arrivals: Arrivals
    ) -> None:
        """The episode has started.

        Args:
            episode: Its record.
            on_step: What takes the answer of any of its steps.
            arrivals: Where usual answers go instead.
        """
        self.episode = episode
        self._on_step = on_step
        self._arrivals: Arrivals = arrivals

    @property
    def is_free(self) -> bool:
        """Whether it can be asked for the next step of its episode."""
        return not (self._pending or self._outbox or self._cause or self.ended or self.closing)

    def step(self, action: str, timeout_s: float) -> None:
        """Ask for a step of its episode."""
        on_step = self._on_step
        assert on_step is not None
        body = action.encode()
        if len(body) > _MAX_ONLY_ACTION_BYTES or not self.is_free:
            self.request(frames.STEP, body, timeout_s, on_step)
            return
        self._next_id = request_id = self._next_id + 1
        deadline = self._time() + timeout_s
        self._pending.append(
            _new(Pending, (request_id, frames.STEP, on_step, deadline, timeout_s))
        )
        self._send(_pack_request(0, frames.STEP, request_id) + body)
        if deadline < self._next_check:
            self._check_at(deadline)

    def close(self) -> None:
        """End the process, as of any channel; its episode has ended."""
        super().close()
        # Deadlines that have not come yet hold the channel, and shall not hold the episode. What
        # has arrived is settled before.
        self._poller.call_at(self._time(), self._detach, None)

    def _detach(self, _: None) -> None:
        self.episode = self._on_step = None

    def answer(self, reply: frames.Reply) -> None:
        """Tell what came of a step that turned out to be none of the usual ones."""
        assert self._on_step is not None
        self._on_step(reply)

    def done(self) -> None:
        """Its step has been told of otherwise."""

    def _take_datagram(self, datagram: bytes) -> None:
        """Take a usual answer to a step; anything else goes the way of all others."""
        if len(self._pending) == 1 and len(datagram) >= _HEADER_BYTES:
            expected = self._pending[0]
            _, op, request_id, outcome, flags, reward, cut, size, info, extra = _unpack_reply(
                datagram
            )
            if (
                expected.callback is self._on_step
                and request_id == expected.request_id
                and op == frames.STEP
                and outcome == frames.COMPLETED
                and not (flags or cut or info or extra)
                and size == len(datagram) - _HEADER_BYTES
                and size <= self._max_observation_bytes
                and math.isfinite(reward)
            ):
                try:
                    observation = datagram[_HEADER_BYTES:].decode()
                except UnicodeDecodeError:
                    pass
                else:
                    self._pending.popleft()
                    self._arrivals.add(self, reward, observation)
                    return
        super()._take_datagram(datagram)
