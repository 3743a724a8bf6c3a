"""One container of the docker backend, from its creation to its removal.

A thread of its own keeps it: the engine takes some tenths of a second to start a container, and
neither that nor its end may hold up the server's event loop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox_server import host_process, state
from sandbox_server.backends.base import BackendError
from sandbox_server.backends.ids import HostIds
from sandbox_server.worker import container as inside

_log = logging.getLogger(__name__)

# From the engine's "started" to the zygote's first word.
_CONNECT_TIMEOUT_S = 30.0
_CONNECT_INTERVAL_S = 0.2
_REMOVE_TIMEOUT_S = 10.0
_REMOVE_INTERVAL_S = 0.05
_STDERR = 2

SOCKET = "supervisor"
_PEER = struct.Struct("iII")


class Container:
    """A container with a zygote in it.

    Args:
        connect: Makes a client of the engine, for the thread alone.
        create: Creates the container, given the client and the folder that holds the
            supervisor's socket.
        control: The zygote's end of its control socket, to be handed over, and closed.
        ids: Of its jail.

    Attributes:
        failure: Why it did not start; empty if it did, or has not yet.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        create: Callable[[Any, Path], Any],
        control: socket.socket,
        ids: HostIds,
    ) -> None:
        self.failure = ""
        self._connect = connect
        self._create = create
        self._control = control
        self._ids = ids
        self._ending = threading.Event()
        self._pidfd = -1
        self._pidfd_held = threading.Lock()
        # Not a daemon thread: a server that exits waits until its containers are gone.
        self._thread = threading.Thread(target=self._keep, name="container")
        self._thread.start()

    def end(self, timeout_s: float) -> None:
        """Wait for the end of all processes in it, and bring it about if it takes too long.

        Its removal, which is the engine's business, may take a little longer.
        """
        self._ending.set()
        with self._pidfd_held:
            if self._pidfd >= 0 and not _ended(self._pidfd, timeout_s):
                # The zygote is init of its pid namespace: the kernel ends the rest.
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                _ended(self._pidfd, None)

    def _keep(self) -> None:
        import docker.errors
        import requests

        try:
            with contextlib.closing(self._connect()) as client:
                self._run(client)
        except (
            docker.errors.DockerException,
            requests.RequestException,
            BackendError,
            state.StateFolderError,
            OSError,
        ) as error:
            if not self._ending.is_set():
                self.failure = str(error)
                _log.error("container: %s", error)
        finally:
            self._control.close()

    def _run(self, client: Any) -> None:
        folder = Path(tempfile.mkdtemp(prefix="jail-", dir=state.folder()))
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                _listen(listener, folder, self._ids)
                container = self._create(client, folder)
                try:
                    container.start()
                    self._hand_over(container, listener)
                    shutil.rmtree(folder)
                    self._control.close()
                    _ended(self._pidfd, None)
                finally:
                    with self._pidfd_held:
                        if self._pidfd >= 0:
                            os.close(self._pidfd)
                        self._pidfd = -1
                    _remove(container)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _hand_over(self, container: Any, listener: socket.socket) -> None:
        """Wait for the zygote, map its ids, and give it its end of the control socket.

        Raises:
            BackendError: If it is not our zygote that connects, or it fails.
            OSError: If its ids cannot be mapped.
        """
        with self._accept(container, listener) as connection:
            connection.settimeout(_CONNECT_TIMEOUT_S)
            pid, user, _ = _PEER.unpack(
                connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            )
            container.reload()
            init = container.attrs["State"]["Pid"]
            if user != self._ids.user or pid != init:
                raise BackendError(
                    f"process {pid} of user {user} connected in place of the zygote, process "
                    f"{init}; the server must run in the pid namespace of the Docker daemon"
                )
            process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
            try:
                # It was running after the folder was opened, so the folder is of that process.
                pidfd = host_process.open_process(pid, user)
                if pidfd is None:
                    raise BackendError("the zygote ended before its jail was built")
                self._pidfd = pidfd
                said = connection.recv(4096)
                if said != inside.UNSHARED:
                    raise BackendError(
                        "the zygote could not build its jail; `spadework doctor` shows what "
                        f"this machine lacks:\n{said.decode('utf-8', 'replace')}"
                    )
                _map_ids(process, self._ids)
            finally:
                os.close(process)
            # What it has to say goes where the server's own words go, as an nsjail jail's does.
            descriptors = [self._control.fileno(), _STDERR]
            socket.send_fds(connection, [inside.MAPPED], descriptors)
            # It closes the connection when its jail is built, or says why it is not.
            if said := connection.recv(4096):
                raise BackendError(
                    f"the zygote could not build its jail:\n{said.decode('utf-8', 'replace')}"
                )

    def _accept(self, container: Any, listener: socket.socket) -> socket.socket:
        """The connection that the zygote makes, once; nobody can make a second one."""
        import docker.errors

        deadline = time.monotonic() + _CONNECT_TIMEOUT_S
        listener.settimeout(_CONNECT_INTERVAL_S)
        while not self._ending.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                with contextlib.suppress(docker.errors.NotFound):
                    container.reload()
                    if container.status in ("created", "running"):
                        if time.monotonic() < deadline:
                            continue
                        raise BackendError("the zygote did not connect in time") from None
                raise BackendError(
                    "the container ended before its zygote connected; `docker events` and the "
                    "daemon's log say how"
                ) from None
            listener.close()
            return connection
        raise BackendError("the jail was closed before its container was up")


def _listen(listener: socket.socket, folder: Path, ids: HostIds) -> None:
    """Listen in a folder that only the container's user, and root, can enter."""
    path = folder / SOCKET
    listener.bind(str(path))
    path.chmod(0o600)
    os.chown(path, ids.user, ids.group)
    os.chown(folder, ids.user, ids.group)
    listener.listen(1)


def _map_ids(process: int, ids: HostIds) -> None:
    """Write the id maps of a process's user namespace, given its folder in /proc."""
    texts = {"uid_map": f"0 {ids.user} {ids.count}", "gid_map": f"0 {ids.group} {ids.count}"}
    if ids.count == 1:
        # The kernel lets an ordinary user map its group only so.
        texts = {"setgroups": "deny", **texts}
    for name, text in texts.items():
        descriptor = os.open(name, os.O_WRONLY, dir_fd=process)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _ended(pidfd: int, timeout_s: float | None) -> bool:
    """Wait for the end of a process; True if it came in time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1_000))


def _remove(container: Any) -> None:
    """Have the container gone; the engine, which removes it by itself, may be at it."""
    import docker.errors

    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    while True:
        try:
            container.remove(force=True)
            return
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if time.monotonic() > deadline:
                _log.warning("container %s was not removed: %s", container.short_id, error)
                return
        time.sleep(_REMOVE_INTERVAL_S)
