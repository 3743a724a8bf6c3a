"""A sandbox server that misbehaves on request: what the client's tests talk to.

It knows one program, which counts. It runs in a thread with its own event loop, so that
synchronous clients can call it from a test.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from sandbox_api.errors import REASON_METADATA_KEY
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc as pb_grpc


@dataclass
class FakeEpisode:
    program_id: str
    seed: int
    salt: int
    actions: list[str] = field(default_factory=list)
    last: pb.StepResult | None = None
    lost: bool = False

    def step(self, action: str) -> pb.StepResult:
        self.actions.append(action)
        n = len(self.actions)
        self.last = pb.StepResult(
            step_index=n - 1,
            outcome=pb.OUTCOME_COMPLETED,
            observation=f"{self.seed}:{n}:{action}:{self.salt}",
            reward=n / 100,
            info_json=b'{"n": %d}' % n,
        )
        return self.last


class FakeServicer(pb_grpc.SandboxServiceServicer):
    """Answers the contract; each attribute below is a fault, consumed when it happens.

    Attributes:
        refuse_once: Step actions or reset seeds refused once with CAPACITY.
        retry_delay_s: The delay such a refusal asks for.
        abort_after: The next Step or Reset stream ends UNAVAILABLE after so many results.
        abort_count: How many streams do so.
        delays_s: Seconds to wait before answering a step with this action.
        reverse: Stream results in reverse order, one a message, each twice.
        skip: Positions of the next Reset call that get no answer.
        deterministic: Whether a replay sees what the first play saw.
        shard: Its name among several, at the end of its episodes' ids.
        max_episodes: What it says that it can have.
        messages: Items of each message of the streams.
        refuse_streams: A stream is refused.
        end_streams: So many times the next message of a stream ends it, unanswered.
    """

    def __init__(self) -> None:
        self.programs: set[str] = set()
        self.episodes: dict[str, FakeEpisode] = {}
        self.calls: Counter[str] = Counter()
        self.items: Counter[str] = Counter()
        self.executed = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self.deadlines_s: list[float] = []
        self.item_timeouts_s: list[float] = []
        self.closed_ids: list[str] = []
        self.messages: list[int] = []
        self.end_streams = 0
        self.refuse_streams = False
        self.max_batch_items = 4096
        self.refuse_once: set[str | int] = set()
        self.retry_delay_s = 0.05
        self.abort_after = 0
        self.abort_count = 0
        self.delays_s: dict[str, float] = {}
        self.reverse = False
        self.skip: set[int] = set()
        self.deterministic = True
        self.shard = ""
        self.max_episodes = 0

    def restart(self) -> None:
        self.programs.clear()
        self.episodes.clear()

    def lose(self, *episode_ids: str) -> None:
        for episode_id in episode_ids:
            self.episodes[episode_id].lost = True

    async def RegisterProgram(self, request, context):
        self.calls["RegisterProgram"] += 1
        program_id = hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
        response = pb.RegisterProgramResponse(program_id=program_id)
        if "syntax error" in request.source:
            response.outcome = pb.OUTCOME_PROGRAM_ERROR
            response.diagnostic.phase = pb.PHASE_COMPILE
            response.diagnostic.line = 3
            return response
        self.programs.add(program_id)
        response.outcome = pb.OUTCOME_COMPLETED
        response.limits.step_timeout_s = request.limits.step_timeout_s or 2.0
        response.limits.lifetime_s = 600.0
        response.tools_json = b'[{"type": "function"}]'
        return response

    async def Reset(self, request, context):
        self.calls["Reset"] += 1
        self.items["Reset"] += len(request.items)
        self._enter(len(request.items), context)
        skip, self.skip = self.skip, set()
        try:
            results = []
            for index, item in enumerate(request.items):
                if index in skip:
                    continue
                result = pb.ResetResult(index=index)
                if item.seed in self.refuse_once:
                    self.refuse_once.discard(item.seed)
                    self._refuse(result.error)
                elif item.program_id not in self.programs:
                    result.error.reason = pb.ERROR_REASON_PROGRAM_NOT_FOUND
                else:
                    self._start(item, result)
                results.append(result)
            async for response in self._stream(pb.ResetResponse, results, context):
                yield response
        finally:
            self.in_flight -= len(request.items)

    def _start(self, item: pb.ResetItem, result: pb.ResetResult) -> None:
        salt = 0 if self.deterministic else len(self.episodes)
        episode = FakeEpisode(item.program_id, item.seed, salt)
        result.episode_id = self._new_id()
        result.outcome = pb.OUTCOME_COMPLETED
        result.observation = f"start {item.seed} {salt}"
        for action in item.prefix_actions:
            step = episode.step(action)
            result.prefix_results.append(step)
            result.observation = step.observation
        self.episodes[result.episode_id] = episode

    def _new_id(self) -> str:
        return f"{uuid.uuid4().hex}.{self.shard}" if self.shard else uuid.uuid4().hex

    async def Step(self, request, context):
        self.calls["Step"] += 1
        self.items["Step"] += len(request.items)
        self._enter(len(request.items), context)
        self.item_timeouts_s += [item.timeout_s for item in request.items]
        try:
            slow = []
            results = []
            for index, item in enumerate(request.items):
                if item.action in self.delays_s:
                    slow.append((self.delays_s[item.action], index, item))
                else:
                    results.append(self._step(index, item))
            async for response in self._stream(pb.StepResponse, results, context):
                yield response
            for delay_s, index, item in sorted(slow, key=lambda s: s[0]):
                await asyncio.sleep(delay_s)
                yield pb.StepResponse(results=[self._step(index, item)])
        finally:
            self.in_flight -= len(request.items)

    async def Play(self, requests, context):
        """Each message is a `Step` call, and counts as one."""
        ready: asyncio.Queue = asyncio.Queue()
        first = 0
        tasks: set[asyncio.Task] = set()

        async def serve(first: int, request: pb.StepRequest) -> None:
            try:
                async for response in self.Step(request, context):
                    for result in response.results:
                        result.index += first
                    ready.put_nowait(response)
                    await ready.join()
            except grpc.aio.AbortError as error:
                ready.put_nowait(error)

        async def read() -> None:
            nonlocal first
            async for request in requests:
                if self.end_streams:
                    self.end_streams -= 1
                    break
                self.messages.append(len(request.items))
                if request.items:
                    tasks.add(asyncio.create_task(serve(first, request)))
                    first += len(request.items)
            ready.put_nowait(None)

        self.calls["Play"] += 1
        if self.refuse_streams:
            reason = str(int(pb.ERROR_REASON_UNAUTHENTICATED))
            metadata = ((REASON_METADATA_KEY, reason),)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who?", metadata)
        tasks.add(asyncio.create_task(read()))
        try:
            while (response := await ready.get()) is not None:
                if isinstance(response, grpc.aio.AbortError):
                    raise response
                yield response
                ready.task_done()
        finally:
            for task in tasks:
                task.cancel()

    def _step(self, index: int, item: pb.StepItem) -> pb.StepResult:
        result = pb.StepResult(index=index)
        episode = self.episodes.get(item.episode_id)
        if episode is None:
            result.error.reason = pb.ERROR_REASON_EPISODE_NOT_FOUND
        elif episode.lost:
            result.error.reason = pb.ERROR_REASON_EPISODE_LOST
        elif item.action in self.refuse_once:
            self.refuse_once.discard(item.action)
            self._refuse(result.error)
        elif item.action == "raise":
            result.outcome = pb.OUTCOME_PROGRAM_ERROR
            result.diagnostic.exception = "ValueError"
        elif episode.last is not None and item.step_index == len(episode.actions) - 1:
            result.CopyFrom(episode.last)
            result.index = index
        elif item.step_index != len(episode.actions):
            result.error.reason = pb.ERROR_REASON_STEP_ORDER
            result.error.message = f"expected step {len(episode.actions)}"
        else:
            self.executed += 1
            result.CopyFrom(episode.step(item.action))
            result.index = index
        return result

    async def Verify(self, request, context):
        self.calls["Verify"] += 1
        response = pb.VerifyResponse()
        for index, item in enumerate(request.items):
            verdict = response.results.add(index=index)
            episode = self.episodes.get(item.episode_id)
            if episode is None or episode.lost:
                verdict.error.reason = pb.ERROR_REASON_EPISODE_LOST
                continue
            verdict.reproduced = True
            verdict.has_verify = True
            verdict.verify_outcome = pb.OUTCOME_COMPLETED
            verdict.verified = len(episode.actions) > 1
            if item.run_oracle:
                verdict.oracle.outcome = pb.OUTCOME_COMPLETED
                verdict.oracle.actions.append("win")
                verdict.oracle.final_reward = 1.0
        yield response

    async def Fork(self, request, context):
        self.calls["Fork"] += 1
        original = self.episodes.get(request.episode_id)
        if original is None or original.lost:
            await context.abort(
                grpc.StatusCode.ABORTED,
                "lost",
                ((REASON_METADATA_KEY, str(int(pb.ERROR_REASON_EPISODE_LOST))),),
            )
        ids = [self._new_id() for _ in range(request.copies)]
        for episode_id in ids:
            self.episodes[episode_id] = FakeEpisode(
                original.program_id, original.seed, original.salt, list(original.actions)
            )
        return pb.ForkResponse(episode_ids=ids)

    async def Close(self, request, context):
        self.calls["Close"] += 1
        self.closed_ids += request.episode_ids
        found = [i for i in request.episode_ids if self.episodes.pop(i, None)]
        return pb.CloseResponse(closed=len(found))

    async def GetServerInfo(self, request, context):
        self.calls["GetServerInfo"] += 1
        response = pb.GetServerInfoResponse(
            version="0",
            backend="fake",
            max_batch_items=self.max_batch_items,
            max_episodes=self.max_episodes,
        )
        response.load.live_episodes = len(self.episodes)
        response.default_limits.step_timeout_s = 2.0
        response.default_limits.load_timeout_s = 5.0
        response.default_limits.lifetime_s = 600.0
        response.runtimes.add(name="stdlib", python_version="3.11.7")
        return response

    def _enter(self, items: int, context: grpc.aio.ServicerContext) -> None:
        self.in_flight += items
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self.deadlines_s.append(context.time_remaining())

    def _refuse(self, error: pb.ItemError) -> None:
        error.reason = pb.ERROR_REASON_CAPACITY
        error.message = "full"
        error.retry_delay_s = self.retry_delay_s

    async def _stream(self, kind, results, context) -> AsyncIterator:
        await asyncio.sleep(0.001)
        if self.abort_count:
            self.abort_count -= 1
            yield kind(results=results[: self.abort_after])
            await context.abort(grpc.StatusCode.UNAVAILABLE, "draining")
        if self.reverse:
            for result in reversed(results):
                yield kind(results=[result])
                yield kind(results=[result])
        elif results:
            yield kind(results=results)


class FakeServer:
    """Serves a FakeServicer, or what is given in its place, on a local port, from a thread."""

    def __init__(self, servicer: Any = None) -> None:
        self.servicer = servicer or FakeServicer()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FakeServer:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        self.address = f"127.0.0.1:{port}"
        return self

    async def _start(self) -> int:
        self._server = grpc.aio.server()
        pb_grpc.add_SandboxServiceServicer_to_server(self.servicer, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return port

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(None), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
