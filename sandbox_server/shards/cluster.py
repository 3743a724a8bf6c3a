"""Shards on the nodes of a Ray cluster. Where each runs, that it is started again when it dies,
and which nodes there are is Ray's; nobody but this module needs it.

Each shard is an actor that holds a server process, and dies with it. The directory is an actor
too, by name: it says where the shards are, to other programs of the cluster and to the book.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
import sys
from typing import Any

from sandbox_api.access import is_local

from sandbox_server.config import ServerConfig
from sandbox_server.shards.book import Entry
from sandbox_server.shards.child import ShardError, ShardProcess
from sandbox_server.shards.share import part

_log = logging.getLogger(__name__)

NAMESPACE = "spadework"
# Until all shards serve: Ray starts a process for each, and it may have to build a runtime.
_START_TIMEOUT_S = 300.0
# Beyond a shard's own drain and grace.
_END_MARGIN_S = 30.0
# Between two looks at a shard that Ray is about to start again.
_LOOK_S = 0.5
_CONNECT_TIMEOUT_S = 5.0
_NO_CLUSTER = (
    "no Ray cluster answers at {}: set RAY_ADDRESS to host:port of its head, or start one there "
    "with `ray start --head`"
)
# Of a node's CPUs, by Ray's books; what it really uses is its episodes' affair.
_CPUS = 1


def directory_name(address: str) -> str:
    """What Ray calls the directory of a book, in the namespace `NAMESPACE`."""
    return f"directory of {address}"


def shard_name(name: str, address: str) -> str:
    """The same of a shard."""
    return f"shard {name} of {address}"


class ShardActor:
    """A shard: it lives as long as its server does."""

    def __init__(self, config: ServerConfig, log_format: str, log_level: str) -> None:
        self._config = config
        self._log = (log_format, log_level)
        self._server: ShardProcess | None = None
        self._starting = asyncio.Lock()
        self._ending = False
        self._end_with_it: asyncio.Task[None] | None = None

    async def start(self, home: str) -> str:
        """Start the server, if it does not run; returns its address.

        Args:
            home: The address of the book's node.

        Raises:
            ShardError: If it does not start.
        """
        async with self._starting:
            if self._server is None:
                server = ShardProcess(_at(self._config, home, _node_address()), *self._log)
                await server.start()
                self._server = server
                self._end_with_it = asyncio.create_task(self._end_with(server))
        return self._server.address

    async def _end_with(self, server: ShardProcess) -> None:
        await server.wait()
        if not self._ending:
            # That Ray starts another, here or elsewhere.
            os._exit(1)

    async def live(self) -> None:
        """Returns never: the call fails when this actor or its node is gone."""
        await asyncio.Event().wait()

    async def end(self) -> None:
        """Have the server drain and end."""
        self._ending = True
        if self._server is not None:
            await self._server.end(asyncio.Event())


class DirectoryActor:
    """Where the shards are now.

    Ray makes it again with the same arguments when it dies, and it asks the shards anew.

    Args:
        address: Of the book.
        names: Of the shards.
        home: The address of the book's node.
    """

    def __init__(self, address: str, names: list[str], home: str) -> None:
        self._address = address
        self._names = names
        self._home = home
        self._addresses: dict[str, str] = {}
        self._followers: list[asyncio.Task[None]] = []

    async def addresses(self) -> dict[str, str]:
        """Addresses of the shards that run, by name."""
        if not self._followers:
            self._followers = [asyncio.create_task(self._follow(name)) for name in self._names]
        return dict(self._addresses)

    async def _follow(self, name: str) -> None:
        import ray

        shard = ray.get_actor(shard_name(name, self._address))
        while True:
            try:
                self._addresses[name] = await shard.start.remote(self._home)
                await shard.live.remote()
            except ray.exceptions.RayTaskError:
                _log.exception("shard %s does not start", name)
                ray.kill(shard, no_restart=False)
            except ray.exceptions.RayError:
                _log.warning("shard %s is gone; Ray starts it again", name)
            self._addresses.pop(name, None)
            await asyncio.sleep(_LOOK_S)


class RayFleet:
    """Has Ray keep shards running on the nodes of a cluster.

    Args:
        config: Of the whole; its bounds are those of one node.
        count: How many shards; 0 means one on each node.
        log_format: "text" or "json".
        log_level: Of their logs.
    """

    def __init__(self, config: ServerConfig, count: int, log_format: str, log_level: str) -> None:
        self._config = config
        self._count = count
        self._log = (log_format, log_level)
        self._shards: dict[str, Any] = {}
        self._directory: Any = None

    async def start(self, address: str) -> None:
        """Start all shards, and wait until they serve.

        Raises:
            ShardError: If there is no Ray, or one does not start.
        """
        ray = _connected()
        nodes = [
            node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0
        ]
        if not nodes:
            raise ShardError("no node of the Ray cluster has a CPU to run a shard on; add one")
        count = self._count or len(nodes)
        of_node = -(-count // len(nodes))
        for index in range(count):
            actor = ray.remote(ShardActor).options(
                name=shard_name(str(index), address),
                num_cpus=_CPUS,
                max_restarts=-1,
                scheduling_strategy="SPREAD",
            )
            self._shards[str(index)] = actor.remote(part(self._config, index, of_node), *self._log)
        home = _node_address()
        starts = [shard.start.remote(home) for shard in self._shards.values()]
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await asyncio.gather(*starts)
            self._directory = (
                ray.remote(DirectoryActor)
                .options(name=directory_name(address), max_restarts=-1, num_cpus=0)
                .remote(address, list(self._shards), home)
            )
            while len(await self.entries()) < count:
                await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise ShardError(
                f"not all of {count} shards run after {_START_TIMEOUT_S:g} s; `ray status` shows "
                "whether the cluster has a CPU for each"
            ) from None
        except ray.exceptions.RayTaskError as error:
            raise ShardError(str(error.cause)) from None
        except (ray.exceptions.RayError, ValueError) as error:
            raise ShardError(f"Ray does not start the shards: {error}") from None

    async def entries(self) -> list[Entry]:
        """The shards that run now; none while the directory is being made again."""
        import ray

        try:
            addresses = await self._directory.addresses.remote()
        except ray.exceptions.RayError as error:
            _log.warning("the directory does not answer: %s", type(error).__name__)
            return []
        return [Entry(name, address) for name, address in addresses.items()]

    async def end(self, hurried: asyncio.Event) -> None:
        """Have all shards drain and end; at once when `hurried` is set."""
        import ray

        ends = [shard.end.remote() for shard in self._shards.values()]
        ended = asyncio.ensure_future(asyncio.gather(*ends, return_exceptions=True))
        haste = asyncio.ensure_future(hurried.wait())
        patience_s = self._config.drain_timeout_s + self._config.stop_grace_s + _END_MARGIN_S
        await asyncio.wait((ended, haste), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        haste.cancel()
        # The actors are this process's, and end with it; their servers with them.
        ray.shutdown()


def _connected() -> Any:
    """Ray, connected to a cluster: the one that is named or found here, else one of our own.

    Raises:
        ShardError: If there is no Ray, or the cluster does not answer.
    """
    # It would tell its makers of its use.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # What Ray says must not be taken for what we say there.
    sys.stdout = sys.stderr
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ShardError(
            f"--ray needs {error.name}; install it with: pip install 'spadework[ray]'"
        ) from None
    wanted = os.environ.get("RAY_ADDRESS", "")
    _require_answer(wanted)
    try:
        ray.init(address=wanted or "auto", namespace=NAMESPACE)
    except ConnectionError:
        if wanted:
            raise ShardError(_NO_CLUSTER.format(wanted)) from None
        _log.info("no Ray cluster runs here; one is started, with this machine as its only node")
        ray.init(address="local", namespace=NAMESPACE, include_dashboard=False)
    return ray


def _require_answer(address: str) -> None:
    """Find out at once what Ray itself would try for minutes.

    Raises:
        ShardError: If nothing listens there.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S).close()
        except OSError:
            raise ShardError(_NO_CLUSTER.format(address)) from None


def _node_address() -> str:
    import ray

    return ray.util.get_node_ip_address()


def _at(config: ServerConfig, home: str, node: str) -> ServerConfig:
    """A shard's settings on the node where it has come to run.

    What only the book's own machine can reach stays so as long as the shard is on it. Elsewhere
    it listens at its node's address, which needs clients that are known.
    """
    if node == home and is_local(config.address):
        return config
    port = config.address.rpartition(":")[2] if not config.address.startswith("unix") else "0"
    return dataclasses.replace(config, address=f"{node}:{port}")
