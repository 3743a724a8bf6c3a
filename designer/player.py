"""Playing the episodes of many drafts at once; their steps share batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_api.client import AsyncSandboxClient
from sandbox_api.errors import SandboxError
from sandbox_api.types import ResetItem, StepItem, StepResult, Trial, Verdict

from designer.plays import Play

# Steps are held back so long for others to join their batch; a fraction of what starting an
# episode takes.
LINGER_S = 0.002
# Steps in a batch at most: results come back in the order in which they are ready, but a
# message of them takes the event loop for as long as it is.
MAX_BATCH_STEPS = 512


@dataclass
class _Crew:
    """Plays that someone waits for together."""

    left: int
    done: asyncio.Future[None]

    def leave(self) -> None:
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Player:
    """Plays episodes through one client, for any number of callers at once.

    A caller's episodes start in one call. Steps of all callers are sent together, a few
    milliseconds' worth in a batch, and each episode goes on as soon as its own result is there.

    Args:
        client: Connected to the sandbox.
    """

    def __init__(self, client: AsyncSandboxClient) -> None:
        self._client = client
        self._waiting: list[tuple[StepItem, Play, _Crew]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._batches: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Player:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        batches = list(self._batches)
        for batch in batches:
            batch.cancel()
        await asyncio.gather(*batches, return_exceptions=True)

    async def play(self, plays: Sequence[Play]) -> None:
        """Play until each ended, failed or its policy stopped; `close` ends their episodes.

        Raises:
            SandboxError: If the server cannot be reached at all.
        """
        if not plays:
            return
        items = [ResetItem(p.program_id, p.seed, max_turns=p.max_turns) for p in plays]
        for play, episode in zip(plays, await self._client.reset(items), strict=True):
            play.begin(episode)
        started = [play for play in plays if play.episode_id]
        if not started:
            return
        crew = _Crew(len(started), asyncio.get_running_loop().create_future())
        for play in started:
            self._go_on(play, crew)
        await crew.done

    async def verify(
        self,
        plays: Sequence[Play],
        *,
        run_oracle: bool = False,
        oracle_seeds: Sequence[int] = (),
        trials: Sequence[Trial] = (),
    ) -> list[Verdict]:
        """Replay plays in fresh processes; see `AsyncSandboxClient.verify`.

        Raises:
            SandboxError: If the server cannot be reached at all.
        """
        return await self._client.verify(
            [play.episode_id for play in plays],
            run_oracle=run_oracle,
            oracle_seeds=oracle_seeds,
            trials=trials,
        )

    async def close(self, plays: Sequence[Play]) -> None:
        """End the episodes of plays, those that ended by themselves too.

        Raises:
            SandboxError: If the server cannot be reached.
        """
        if episode_ids := [play.episode_id for play in plays if play.episode_id]:
            await self._client.close_episodes(episode_ids)

    def _go_on(self, play: Play, crew: _Crew) -> None:
        action = play.next_action()
        if action is None:
            crew.leave()
            return
        self._waiting.append((StepItem(play.episode_id, play.steps, action), play, crew))
        if len(self._waiting) >= MAX_BATCH_STEPS:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._send)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        batch = asyncio.create_task(self._step(waiting))
        self._batches.add(batch)
        batch.add_done_callback(self._batches.discard)

    async def _step(self, waiting: list[tuple[StepItem, Play, _Crew]]) -> None:
        items = [item for item, _, _ in waiting]
        by_episode = {item.episode_id: (item, play, crew) for item, play, crew in waiting}
        try:
            async for result in self._client.step_stream(items):
                self._take(result, *by_episode.pop(result.episode_id))
        except SandboxError as error:
            for _, play, crew in by_episode.values():
                play.fault = error
                crew.leave()
        except Exception as error:
            # Whoever waits for these plays is told, and waits no more.
            for _, _, crew in by_episode.values():
                crew.fail(error)

    def _take(self, result: StepResult, item: StepItem, play: Play, crew: _Crew) -> None:
        try:
            play.take(item.action, result)
            self._go_on(play, crew)
        except Exception as error:
            crew.fail(error)
