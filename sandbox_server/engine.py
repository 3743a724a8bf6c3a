"""What the service does, without gRPC: the parts of a server, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sandbox_api.errors import UnavailableError
from sandbox_api.types import Limits
from sandbox_api.v1 import sandbox_pb2 as pb

import sandbox_server
from sandbox_server import probe
from sandbox_server.backends import BackendError
from sandbox_server.config import ServerConfig
from sandbox_server.episodes import Episodes
from sandbox_server.forking import Forker
from sandbox_server.groups import Groups
from sandbox_server.jail_pool import JailPool
from sandbox_server.player import Player
from sandbox_server.programs import Programs
from sandbox_server.runtime import Runtime
from sandbox_server.stepping import Stepper
from sandbox_server.unread import Unread
from sandbox_server.verification import Verifier
from sandbox_server.work import Work


class Engine:
    """One server's state. Everything runs on one event loop; nothing here blocks.

    Args:
        config: Its settings.
        runtimes: What its jails offer.
        audit: Is told of an event by name, and more of it by keyword.

    Attributes:
        draining: Whether it takes no new episodes any more.
        jails: Its jails.
        episodes: Its table of episodes.
        groups: Its group processes.
        unread: What its clients have not read yet.
        work: What it has in work.
        player: Steps its episodes.
    """

    def __init__(
        self,
        config: ServerConfig,
        runtimes: dict[str, Runtime],
        audit: Callable[..., None] = lambda event, **told: None,
    ) -> None:
        self.config = config
        self.draining = False
        self.jails = JailPool(config, runtimes)
        self.episodes = Episodes(config, audit)
        self.unread = Unread(config)
        self._runtimes = runtimes
        self.work = Work(config)
        self._programs = Programs(config, runtimes, self.jails, self.work)
        self.groups = Groups(config, self.jails, self.work)
        self.player = Player(
            config,
            self.jails,
            self._programs,
            self.episodes,
            self.groups,
            self.work,
            self.unread,
        )
        # The service's verbs, each as the part that does it has it: no layer on the way.
        self.register = self._programs.register
        self.reset = self.player.reset
        self.steps = Stepper(self.player, self.groups, self.episodes, self.work, self.unread).step
        self.verify = Verifier(self.jails, self.episodes, self.work).verify
        self.fork = Forker(config, self.jails, self.episodes, self.work, self.player.attach).fork
        self.close_episodes = self.episodes.close_ids

    async def start(self) -> None:
        """Start all jails, and try what they promise.

        Raises:
            BackendError: If one does not come up, or does not hold: a server without its
                protections does not serve.
        """
        await self.jails.start()
        self.jails.poller.after = self.player.arrivals.settle
        self._sweeper = asyncio.create_task(self.episodes.sweep_for_ever())
        if self.jails.isolates:
            try:
                await self._probe()
            except BaseException:
                await self.close()
                raise

    async def _probe(self) -> None:
        for name in self._runtimes:
            found = await probe.weaknesses(self, name)
            if found:
                told = "; ".join(f"{what}: {why}" for what, why in found.items())
                raise BackendError(
                    f"the jail of runtime {name!r} does not hold ({told}); run "
                    "`spadework doctor` to see what this machine lacks"
                )
        # The probe is nobody's program: it leaves no trace in what clients are told.
        self._programs.clear()
        self.episodes.ended_total.clear()
        self.player.steps_total = 0

    def drain(self) -> None:
        """From now on take no new programs and episodes; those that live go on."""
        self.draining = True

    def check_open(self) -> None:
        """Hold a call that would start something to the server's taking it.

        Raises:
            UnavailableError: If it is draining.
        """
        if self.draining:
            raise UnavailableError(
                "the server is draining: it ends when its live episodes have, and starts nothing "
                "new; use another, or this address again when it is back",
                self.config.retry_delay_s,
            )

    async def close(self) -> None:
        """End every episode and jail."""
        self._sweeper.cancel()
        self.jails.close()

    @property
    def pending_items(self) -> int:
        """Items in work in all calls together."""
        return self.work.pending_items

    @property
    def waiting_steps(self) -> int:
        """Steps that wait for others of the same tenant."""
        return self.work.waiting_steps

    @property
    def steps_total(self) -> int:
        """Steps answered since the start."""
        return self.player.steps_total

    @property
    def programs(self) -> int:
        """Programs remembered now."""
        return len(self._programs)

    def info(self) -> pb.GetServerInfoResponse:
        """What the server is, allows and does at the moment."""
        config = self.config
        return pb.GetServerInfoResponse(
            version=sandbox_server.__version__,
            backend=config.backend,
            isolation=self.jails.isolation(),
            runtimes=[
                pb.Runtime(name=r.name, python_version=r.python_version, packages=r.packages)
                for r in self._runtimes.values()
            ],
            default_limits=config.resolve_limits(Limits()).to_proto(),
            max_limits=config.max_limits.to_proto(),
            max_episodes=config.max_episodes,
            max_batch_items=config.max_batch_items,
            max_pending_items=config.max_pending_items,
            group_size=config.group_size,
            load=pb.Load(
                live_episodes=self.jails.live,
                pending_items=self.work.pending_items,
                programs=len(self._programs),
                jails=len(self.jails),
                steps_total=self.player.steps_total,
                ended_total=dict(self.episodes.ended_total),
            ),
        )
