"""The asynchronous client: batches split, retried and bounded, lost episodes rebuilt.

A caller sees one id for an episode from reset to close, even if
the server lost it in between and it lives on under another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeVar

import grpc

from sandbox_api import _convert
from sandbox_api._batches import Deadlines, ResetBatch, StepBatch, VerifyBatch, rebuild_item
from sandbox_api._dispatch import Batch, Dispatcher, is_worth_waiting
from sandbox_api._ledger import EpisodeRecord, Ledger, ProgramRecord
from sandbox_api._pipeline import MAX_PIPELINE_ITEMS, AsyncStepPipeline
from sandbox_api._play import PlayingStub
from sandbox_api._router import Router
from sandbox_api._shards import Shards
from sandbox_api.access import Access
from sandbox_api.errors import (
    DeadlineExceededError,
    EpisodeLostError,
    EpisodeNotFoundError,
    ProgramNotFoundError,
    SandboxError,
)
from sandbox_api.types import (
    Episode,
    Limits,
    Outcome,
    Program,
    ResetItem,
    ServerInfo,
    StepItem,
    StepResult,
    Trial,
    Verdict,
)
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc as pb_grpc

Result = TypeVar("Result")

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# Text of one request: below the above even at four UTF-8 bytes a character.
MAX_CALL_CHARACTERS = 12 * 1024 * 1024
# What an action counts for beside its text: servers bound how many come in one request.
_ACTION_CHARACTERS = 128

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Notice a server that vanished without closing its connection.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Retries are ours: gRPC's cannot tell a step from a reset.
    ("grpc.enable_retries", 0),
    # A restarted server is back within seconds; the default waits for up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class AsyncSandboxClient:
    """Talks to one sandbox server, or to all shards of one, from one event loop.

    Batched calls never raise for an item: each result carries its own `error`, results
    keep the order of the items, and what arrived before a failure is kept. A batch larger
    than the server's `max_batch_items` is split. Single calls raise `SandboxError`.

    Args:
        address: "host:port" of the server, or of the book of a sharded one, or "unix:/path".
        timeout_margin_s: Seconds that a call may take beyond the longest of its items.
        max_in_flight_items: Items of all calls together that may be on the server at once;
            more of them wait here.
        max_retries: Rounds without any progress after which a call gives up.
        rebuild_lost: Rebuild an episode that the server lost, by replaying its actions in
            a new one, and check that it saw the same as before.
        access: Token and certificates; None takes them from the environment, see
            `Access.from_environment`.

    Attributes:
        ledger: What it remembers of its programs and episodes.
    """

    def __init__(
        self,
        address: str,
        *,
        access: Access | None = None,
        timeout_margin_s: float = 30.0,
        max_in_flight_items: int = 8192,
        max_retries: int = 5,
        rebuild_lost: bool = True,
    ) -> None:
        self.address = address
        self._access = access or Access.from_environment()
        self._timeout_margin_s = timeout_margin_s
        self._rebuild_lost = rebuild_lost
        self._dispatcher = Dispatcher(max_in_flight_items, max_retries)
        self.ledger = Ledger()
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None
        self._router: Router | None = None
        self._deadlines: Deadlines | None = None
        self._max_batch_items = 0
        self._info_lock = asyncio.Lock()
        self._rebuild_lock = asyncio.Lock()

    async def __aenter__(self) -> AsyncSandboxClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection. Episodes still open end by the server's idle timeout."""
        if self._router is not None:
            await self._router.aclose()
            self._router = None
        if self._channel is not None:
            await self._stub.aclose()
            await self._channel.close()
            self._channel = None
            self._stub = None

    def _connected(self) -> Any:
        # Not in __init__: a channel belongs to the event loop that runs when it is made.
        if self._stub is None:
            self._channel = self._access.channel(self.address, CHANNEL_OPTIONS)
            stub = pb_grpc.SandboxServiceStub(self._channel)
            self._stub = PlayingStub(self._access.authorized(stub))
        return self._router or self._stub

    async def register_program(
        self,
        source: str,
        *,
        entry: str = "",
        runtime: str = "",
        limits: Limits | None = None,
        group_mode: bool = False,
    ) -> Program:
        """Register a program; the same program again gives the same `program_id`.

        Args:
            source: Python source.
            entry: Class or function to construct; empty lets the server find it.
            runtime: Name of a server runtime; empty means "stdlib".
            limits: Limits of its episodes; None or zeros mean the server's defaults.
            group_mode: Let its episodes share processes, where the server allows it: faster,
                but they are not isolated from each other. For programs that passed validation.

        Returns:
            The program. One that does not load is not an error: look at `outcome`.

        Raises:
            SandboxError: If the server refused or could not be reached.
        """
        request = pb.RegisterProgramRequest(
            source=source,
            entry=entry,
            runtime=runtime,
            limits=limits.to_proto() if limits else None,
            group_mode=group_mode,
        )
        return await self._register(request)

    async def _register(self, request: pb.RegisterProgramRequest) -> Program:
        deadlines = await self._prepared()
        load_s = request.limits.load_timeout_s or deadlines.limits(None).load_timeout_s
        stub = self._connected()
        timeout_s = deadlines.call_s(load_s, 1)
        message = await self._dispatcher.run_call(
            partial(stub.RegisterProgram, request, timeout=timeout_s)
        )
        program = _convert.program(message)
        if program.outcome is Outcome.COMPLETED:
            self.ledger.programs[program.program_id] = ProgramRecord(request, program)
        return program

    async def reset(self, items: Sequence[ResetItem]) -> list[Episode]:
        """Start one episode an item; see `Episode` for how each may fail."""
        results: list[Any] = [None] * len(items)
        await self._start(items, results.__setitem__)
        return results

    async def reset_stream(self, items: Sequence[ResetItem]) -> AsyncIterator[tuple[int, Episode]]:
        """As `reset`, but yields each episode as soon as it is ready, with its item's index."""
        async with aclosing(_as_delivered(partial(self._start, items))) as started:
            async for index, episode in started:
                yield index, episode

    async def _start(
        self, items: Sequence[ResetItem], deliver: Callable[[int, Episode], None]
    ) -> None:
        default = (await self._prepared()).limits(None)

        def started(index: int, episode: Episode) -> None:
            if episode.ok:
                limits = self.ledger.limits_of(items[index].program_id) or default
                self.ledger.start(items[index], episode, limits)
            deliver(index, episode)

        await self._reset(items, started)

    async def _reset(
        self, items: Sequence[ResetItem], deliver: Callable[[int, Episode], None]
    ) -> None:
        deadlines = await self._prepared()
        batch = ResetBatch(
            items,
            deliver,
            stub=self._connected(),
            ledger=self.ledger,
            deadlines=deadlines,
            reregister=self._reregister if self._rebuild_lost else None,
        )
        sizes = [
            sum(map(len, item.prefix_actions)) + _ACTION_CHARACTERS * len(item.prefix_actions)
            for item in items
        ]
        await self._run(batch, sizes)

    async def step(self, items: Sequence[StepItem]) -> list[StepResult]:
        """Advance each item's episode by one action; results in the order of `items`.

        At most one item an episode. A step is safe to send again: the server answers a
        repeat of the last step from its record.
        """
        results: list[Any] = [None] * len(items)
        await self._step(items, results.__setitem__)
        return results

    async def step_stream(self, items: Sequence[StepItem]) -> AsyncIterator[StepResult]:
        """As `step`, but yields each result as soon as it is ready, in any order."""
        async with aclosing(_as_delivered(partial(self._step, items))) as results:
            async for _, result in results:
                yield result

    def pipeline(self, max_items: int = MAX_PIPELINE_ITEMS) -> AsyncStepPipeline:
        """Keep several batches of steps in flight; see `AsyncStepPipeline`.

        Args:
            max_items: Items in flight and results not taken, together, at most.
        """
        return AsyncStepPipeline(self.step_stream, max_items)

    async def _step(
        self, items: Sequence[StepItem], deliver: Callable[[int, StepResult], None]
    ) -> None:
        deadlines = await self._prepared()
        batch = StepBatch(
            items,
            deliver,
            stub=self._connected(),
            ledger=self.ledger,
            deadlines=deadlines,
            rebuild=self._rebuild if self._rebuild_lost else None,
        )
        await self._run(batch, [len(item.action) for item in items])

    async def verify(
        self,
        episode_ids: Sequence[str],
        *,
        run_oracle: bool = False,
        oracle_seeds: Sequence[int] = (),
        trials: Sequence[Trial] = (),
        timeout_s: float = 0.0,
    ) -> list[Verdict]:
        """Replay transcripts in fresh processes; verdicts in the order of `episode_ids`.

        Args:
            episode_ids: Episodes, running or ended, but not closed.
            run_oracle: Also play the program's own solution().
            oracle_seeds: More seeds to play it on, at most 100; they share a process, and the
                first that does not win, in fresh ones, ends them.
            trials: Plays to try with each episode's program, at most 100; they share a process.
            timeout_s: Wall seconds of each replayed call; 0 means the program's limit.
        """
        deadlines = await self._prepared()
        results: list[Any] = [None] * len(episode_ids)
        batch = VerifyBatch(
            episode_ids,
            results.__setitem__,
            run_oracle=run_oracle,
            oracle_seeds=oracle_seeds,
            trials=trials,
            timeout_s=timeout_s,
            stub=self._connected(),
            ledger=self.ledger,
            deadlines=deadlines,
            rebuild=self._rebuild if self._rebuild_lost else None,
        )
        size = sum(len(action) for trial in trials for action in trial.actions)
        await self._run(batch, [size] * len(episode_ids))
        return results

    async def fork(self, episode_id: str, copies: int) -> list[str]:
        """Copy a running episode, its state included; returns the copies' ids.

        Raises:
            SandboxError: If the server could not.
        """
        deadlines = await self._prepared()
        stub = self._connected()

        def is_repeatable(error: SandboxError) -> bool:
            # After a deadline there may be copies already that no one knows of.
            return is_worth_waiting(error) and not isinstance(error, DeadlineExceededError)

        for attempt in range(2):
            record = self.ledger.get(episode_id)
            server_id = record.server_id if record else episode_id
            actions = len(record.actions) if record else 0
            request = pb.ForkRequest(episode_id=server_id, copies=copies)
            fork = partial(stub.Fork, request, timeout=deadlines.call_s(0.0, copies))
            try:
                response = await self._dispatcher.run_call(fork, is_repeatable)
            except (EpisodeLostError, EpisodeNotFoundError):
                if record is None or attempt or not self._rebuild_lost:
                    raise
                errors = await self._rebuild({episode_id: server_id})
                if errors:
                    raise errors[episode_id] from None
                continue
            break
        copies_ids = list(response.episode_ids)
        if record is not None:
            for copy_id in copies_ids:
                self.ledger.fork(record, copy_id, actions)
        return copies_ids

    async def close_episodes(self, episode_ids: Sequence[str]) -> int:
        """End episodes and forget them; one that is gone already is fine.

        Returns:
            How many the server ended.

        Raises:
            SandboxError: If the server could not be reached.
        """
        deadlines = await self._prepared()
        stub = self._connected()
        server_ids = [self.ledger.close(episode_id) for episode_id in episode_ids]
        closed = 0
        for start in range(0, len(server_ids), self._max_batch_items):
            request = pb.CloseRequest(
                episode_ids=server_ids[start : start + self._max_batch_items]
            )
            timeout_s = deadlines.call_s(0.0, len(request.episode_ids))
            close = partial(stub.Close, request, timeout=timeout_s)
            closed += (await self._dispatcher.run_call(close)).closed
        return closed

    async def server_info(self) -> ServerInfo:
        """What the server is, allows and does at the moment.

        Raises:
            SandboxError: If the server could not be reached.
        """
        stub = self._connected()
        request = pb.GetServerInfoRequest()
        message = await self._dispatcher.run_call(
            partial(stub.GetServerInfo, request, timeout=self._timeout_margin_s)
        )
        if message.shards and self._router is None:
            shards = Shards(stub, self.address, self._access, CHANNEL_OPTIONS)
            self._router = Router(shards)
            return await self.server_info()
        info = _convert.server_info(message)
        self._max_batch_items = info.max_batch_items or self._dispatcher.budget.limit
        self._deadlines = Deadlines(self._timeout_margin_s, info.default_limits)
        return info

    async def _prepared(self) -> Deadlines:
        """Learn the server's bounds, once, before the first call that needs them."""
        if self._deadlines is None:
            async with self._info_lock:
                if self._deadlines is None:
                    await self.server_info()
        assert self._deadlines is not None
        return self._deadlines

    async def _run(self, batch: Batch, sizes: Sequence[int]) -> None:
        """Answer all items of a batch, in calls that the server and gRPC take.

        Args:
            batch: The items.
            sizes: Characters of text in each of them.
        """
        most = min(self._max_batch_items, self._dispatcher.budget.limit)
        calls = list(_split(sizes, most, MAX_CALL_CHARACTERS))
        if len(calls) == 1:
            await self._dispatcher.run_batch(batch, calls[0])
            return
        async with asyncio.TaskGroup() as group:
            for pending in calls:
                group.create_task(self._dispatcher.run_batch(batch, pending))

    async def _reregister(self, program_ids: set[str]) -> dict[str, SandboxError]:
        """Register programs that the server forgot; returns those it would not take."""
        errors: dict[str, SandboxError] = {}

        async def register(program_id: str) -> None:
            try:
                program = await self._register(self.ledger.programs[program_id].request)
            except SandboxError as error:
                errors[program_id] = error
                return
            if program.program_id != program_id or program.outcome is not Outcome.COMPLETED:
                errors[program_id] = ProgramNotFoundError(
                    f"the server no longer knows program {program_id}, and now its source "
                    f"gives {program.program_id} ({program.outcome.name}); register it again"
                )

        async with asyncio.TaskGroup() as group:
            for program_id in program_ids:
                group.create_task(register(program_id))
        return errors

    async def _rebuild(self, lost: dict[str, str]) -> dict[str, SandboxError]:
        """Rebuild episodes by replay, and check that they went as before.

        Args:
            lost: The server's id that was lost, by our id.

        Returns:
            Errors by our id, of those that could not be rebuilt.
        """
        errors: dict[str, SandboxError] = {}
        async with self._rebuild_lock:
            records: list[EpisodeRecord] = []
            for episode_id, server_id in lost.items():
                record = self.ledger.get(episode_id)
                if record is None:
                    errors[episode_id] = EpisodeNotFoundError(
                        f"episode {episode_id} was closed while it was stepped"
                    )
                elif record.server_id == server_id:  # else another call has rebuilt it
                    records.append(record)
            lengths = [len(record.actions) for record in records]
            episodes: list[Any] = [None] * len(records)
            resets = [rebuild_item(record) for record in records]
            await self._reset(resets, episodes.__setitem__)
            useless: list[str] = []
            for record, length, episode in zip(records, lengths, episodes, strict=True):
                if episode.error is not None:
                    errors[record.episode_id] = EpisodeLostError(
                        f"the server lost episode {record.episode_id}, and it could not be "
                        f"rebuilt: {episode.error}"
                    )
                    continue
                difference = record.difference(episode, length)
                if difference:
                    errors[record.episode_id] = EpisodeLostError(
                        f"the server lost episode {record.episode_id}, and it cannot be "
                        f"rebuilt: the program is not deterministic; replayed, {difference}"
                    )
                if episode.ok and (difference or record.closed):
                    useless.append(episode.episode_id)
                elif episode.ok:
                    record.server_id = episode.episode_id
            if useless:
                # Best effort: what stays open ends by the server's idle timeout.
                with suppress(SandboxError):
                    await self.close_episodes(useless)
        return errors


async def _as_delivered(
    call: Callable[[Callable[[int, Result], None]], Coroutine[Any, Any, None]],
) -> AsyncGenerator[tuple[int, Result], None]:
    """What a call delivers, while it goes on."""
    ready: asyncio.Queue[tuple[int, Result] | None] = asyncio.Queue()
    task = asyncio.create_task(call(lambda index, result: ready.put_nowait((index, result))))
    task.add_done_callback(lambda _: ready.put_nowait(None))
    try:
        while (result := await ready.get()) is not None:
            yield result
        await task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _split(sizes: Sequence[int], most: int, most_characters: int) -> Iterator[list[int]]:
    """Cut a batch into calls of at most `most` items and, if several, so much text."""
    start = characters = 0
    for index, size in enumerate(sizes):
        characters += size
        if index > start and (index - start == most or characters > most_characters):
            yield list(range(start, index))
            start, characters = index, size
    if sizes:
        yield list(range(start, len(sizes)))
