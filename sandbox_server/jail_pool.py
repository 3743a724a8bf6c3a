"""The server's jails: started at its start, restarted when one dies, asked for processes."""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Callable

from sandbox_api.errors import CapacityError, UnavailableError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.backends import BACKENDS, Backend
from sandbox_server.channel import Channel
from sandbox_server.config import ServerConfig
from sandbox_server.cpu_meter import CpuWatch
from sandbox_server.endpoint import Answer
from sandbox_server.episode import ProgramRecord
from sandbox_server.episode_channel import EpisodeChannel
from sandbox_server.group_channel import GroupChannel
from sandbox_server.jail import Jail, JailDeadError, JailFullError
from sandbox_server.poller import Poller
from sandbox_server.runtime import Runtime
from sandbox_server.telemetry import calls

_log = logging.getLogger(__name__)

# PYTHONHASHSEED of the jail that plays, and of the one that replays: an environment
# whose transcript depends on the order of a set differs between the two.
PLAY_HASH_SEED, REPLAY_HASH_SEED = 0, 1

# How long to wait before another try at a jail that does not come up; doubled each time.
_RESTART_FIRST_S, _RESTART_MAX_S = 0.1, 10.0


class JailPool:
    """Two jails for each runtime, and the bound on processes in all of them together.

    Attributes:
        live: Episodes there are or are about to be: processes of their own, and members of
            groups, who count themselves.
        restarts_total: Jails started again after they died, by runtime.
    """

    def __init__(self, config: ServerConfig, runtimes: dict[str, Runtime]) -> None:
        self.live = 0
        self.restarts_total: collections.Counter[str] = collections.Counter()
        self._config = config
        self._runtimes = runtimes
        self._backend: Backend = BACKENDS[config.backend](config)
        self._jails: dict[tuple[str, int], Jail] = {}
        self._starting: set[Jail] = set()
        self._restarts: set[asyncio.Task[None]] = set()
        self._draining = False

    def __len__(self) -> int:
        """How many jails run now."""
        return len(self._jails)

    @property
    def queued(self) -> int:
        """Episode processes asked for that are not there yet."""
        return sum(jail.queued for jail in self._jails.values())

    def by_runtime(self) -> dict[str, int]:
        """How many jails run now, by runtime."""
        running = collections.Counter({name: 0 for name in self._runtimes})
        running.update(name for name, _ in self._jails)
        return running

    @property
    def isolates(self) -> bool:
        return self._backend.isolates

    def isolation(self) -> dict[str, str]:
        """Protections in force, by name, with what enforces each."""
        return self._backend.isolation()

    # -- life --------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all jails.

        Raises:
            BackendError: If one does not come up.
        """
        self._loop = asyncio.get_running_loop()
        self.poller = Poller(self._loop)
        self._cpu = CpuWatch(self.poller, self._loop.time)
        self._backend.reap_dead()
        wanted = [
            (runtime, seed)
            for runtime in self._runtimes
            for seed in (PLAY_HASH_SEED, REPLAY_HASH_SEED)
        ]
        starts = [self._start_jail(name, seed) for name, seed in wanted]
        try:
            errors = [e for e in await asyncio.gather(*starts, return_exceptions=True) if e]
            if errors:
                raise errors[0]
        except BaseException:
            # Cancelled, too: who gives up waiting leaves no jail behind.
            self.close()
            raise

    def close(self) -> None:
        """End every jail and all that is in it; closing twice is fine."""
        if self._draining:
            return
        self._draining = True
        for task in self._restarts:
            task.cancel()
        for jail in [*self._starting, *self._jails.values()]:
            jail.close()
        self._cpu.close()
        self._backend.close()
        self.poller.close()

    async def _start_jail(self, runtime: str, hash_seed: int) -> None:
        jail = Jail(
            self._backend,
            self._runtimes[runtime],
            hash_seed,
            self._config,
            self._cpu,
            self.poller,
            self._loop,
            self._on_jail_dead,
        )
        self._starting.add(jail)
        try:
            await jail.ready()
        except BaseException:
            jail.close()
            raise
        finally:
            self._starting.discard(jail)
        self._jails[runtime, hash_seed] = jail

    def _on_jail_dead(self, jail: Jail) -> None:
        key = (jail.runtime.name, jail.hash_seed)
        if self._jails.get(key) is not jail:
            return
        del self._jails[key]
        if not self._draining:
            task = self._loop.create_task(self._restart_jail(*key))
            self._restarts.add(task)
            task.add_done_callback(self._restarts.discard)

    async def _restart_jail(self, runtime: str, hash_seed: int) -> None:
        delay_s = _RESTART_FIRST_S
        while not self._draining:
            try:
                await self._start_jail(runtime, hash_seed)
                self.restarts_total[runtime] += 1
                return
            except Exception:
                if self._draining:
                    return
                _log.exception("could not restart the jail of runtime %s", runtime)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, _RESTART_MAX_S)

    # -- processes ---------------------------------------------------------------------

    def may_fork(self, runtime: str) -> bool:
        """Whether programs of a runtime may be allowed more than one process."""
        jail = self._jails.get((runtime, PLAY_HASH_SEED))
        return jail is None or jail.may_fork

    async def spawn(self, program: ProgramRecord, hash_seed: int) -> EpisodeChannel:
        """Fork one locked-down process, within the bound on live ones.

        Raises:
            CapacityError, QuotaError: If there is no room for it now.
            UnavailableError: If its jail is being restarted, or could not give it.
        """
        self.admit()
        jail = self._jail(program.runtime, hash_seed)
        self.live += 1
        try:
            with calls.span("spawn"):
                return await jail.spawn(program.limits, self._on_channel_end, EpisodeChannel)
        except JailFullError as error:
            # There is no channel, whose end would count it down.
            self.live -= 1
            raise CapacityError(str(error), self._config.retry_delay_s) from None
        except JailDeadError as error:
            raise UnavailableError(str(error), self._config.retry_delay_s) from None

    async def fork(
        self, original: Channel, program: ProgramRecord, count: int
    ) -> list[EpisodeChannel] | Answer:
        """Copy a running episode process so many times, within the bound on live ones.

        Returns:
            The copies' channels, or the original's answer where it failed.

        Raises:
            CapacityError, QuotaError, UnavailableError: As for `spawn`.
        """
        self.admit(count)
        jail = self._jail(program.runtime, PLAY_HASH_SEED)
        self.live += count
        copies: list[EpisodeChannel] | Answer | None = None
        try:
            copies = await jail.fork(original, count, program.limits, self._on_channel_end)
        except JailFullError as error:
            raise CapacityError(str(error), self._config.retry_delay_s) from None
        finally:
            if not isinstance(copies, list):
                self.live -= count
        return copies

    async def spawn_group(
        self, program: ProgramRecord, on_end: Callable[[GroupChannel], None]
    ) -> GroupChannel:
        """Fork one locked-down process for a group; its members count as live, not it.

        Its limit of CPU time is that of all the episodes that it will ever have.

        Raises:
            CapacityError, UnavailableError: As for `spawn`.
        """
        jail = self._jail(program.runtime, PLAY_HASH_SEED)
        limits = pb.Limits()
        limits.CopyFrom(program.limits)
        limits.cpu_time_s *= program.group_size
        try:
            with calls.span("spawn"):
                return await jail.spawn(limits, on_end, GroupChannel)
        except JailFullError as error:
            raise CapacityError(str(error), self._config.retry_delay_s) from None
        except JailDeadError as error:
            raise UnavailableError(str(error), self._config.retry_delay_s) from None

    @property
    def closing(self) -> bool:
        """Whether the server is ending: there will be no process any more."""
        return self._draining

    def admit(self, count: int = 1) -> None:
        """Check that there may be so many more live episodes.

        Raises:
            CapacityError, QuotaError: If there is no room for it now.
            UnavailableError: If the server is ending.
        """
        if self._draining:
            raise UnavailableError(
                "the server is draining; try again when it is back", self._config.retry_delay_s
            )
        most = self._config.max_episodes
        if self.live + count > most:
            room = f"{self.live} of at most {most} episodes are live"
            raise self._config.full(f"{room}; close some, or wait")

    def _jail(self, runtime: str, hash_seed: int) -> Jail:
        jail = self._jails.get((runtime, hash_seed))
        if jail is None or jail.dead:
            raise UnavailableError("the jail is being restarted", self._config.retry_delay_s)
        return jail

    def _on_channel_end(self, _: Channel) -> None:
        self.live -= 1
