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
            process = self._identify(container, connection)
            if process is None:
                raise _unbuilt(_last_words(connection))
            try:
                if (said := _hear(connection)) != inside.UNSHARED:
                    raise _unbuilt(said)
                _map_ids(process, self._ids)
                # What it has to say goes where the server's own words go, as an nsjail jail's.
                descriptors = [self._control.fileno(), _STDERR]
                socket.send_fds(connection, [inside.MAPPED], descriptors)
            except (FileNotFoundError, ProcessLookupError, ConnectionError):
                raise _unbuilt(_last_words(connection)) from None
            finally:
                os.close(process)
            # It closes the connection when its jail is built, or says why it is not.
            if said := _hear(connection):
                raise _unbuilt(said)

    def _identify(self, container: Any, connection: socket.socket) -> int | None:
        """Find the process that has connected, and hold its pidfd.

        Returns:
            A descriptor of its folder in /proc; None where it has ended, and has left its last
            words at most.

        Raises:
            BackendError: If it is not our zygote that has connected.
        """
        import docker.errors

        pid, user, _ = _PEER.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        )
        # The engine's word for a container that has ended; one may be removed by now, too.
        init = 0
        with contextlib.suppress(docker.errors.NotFound):
            container.reload()
            init = container.attrs["State"]["Pid"]
        if user != self._ids.user or init not in (0, pid):
            raise BackendError(
                f"process {pid} of user {user} connected in place of the zygote, process "
                f"{init}; the server must run in the pid namespace of the Docker daemon"
            )
        if init == 0:
            return None
        try:
            process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return None
        # It was running after the folder was opened, so the folder is of that process.
        pidfd = host_process.open_process(pid, user)
        if pidfd is None:
            os.close(process)
            return None
        self._pidfd = pidfd
        return process

    def _accept(self, container: Any, listener: socket.socket) -> socket.socket:
        """The connection that the zygote makes, once; nobody can make a second one."""
        deadline = time.monotonic() + _CONNECT_TIMEOUT_S
        listener.settimeout(_CONNECT_INTERVAL_S)
        ended = False
        while not self._ending.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if ended:
                    raise BackendError(
                        "the container ended before its zygote connected; `docker events` and "
                        "the daemon's log say how"
                    ) from None
                if time.monotonic() > deadline:
                    raise BackendError("the zygote did not connect in time") from None
                # It may have connected since, and ended: it is asked for once more.
                ended = not _is_up(container)
                continue
            listener.close()
            return connection
        raise BackendError("the jail was closed before its container was up")


def _is_up(container: Any) -> bool:
    """Whether the engine knows a container that has not ended."""
    import docker.errors

    try:
        container.reload()
    except docker.errors.NotFound:
        return False
    return container.status in ("created", "running")


def _hear(connection: socket.socket) -> bytes:
    """What the zygote says next; nothing where it has closed its end, or has ended.

    Raises:
        BackendError: If it says nothing for too long.
    """
    try:
        return connection.recv(4096)
    except TimeoutError:
        raise BackendError(
            f"the zygote said nothing for {_CONNECT_TIMEOUT_S:g} s while it built its jail"
        ) from None
    except ConnectionResetError:
        # It left words of ours unread, which the kernel tells first.
        return connection.recv(4096)


def _last_words(connection: socket.socket) -> bytes:
    """What a zygote that has ended said of it."""
    said = _hear(connection)
    return _hear(connection) if said == inside.UNSHARED else said


def _unbuilt(said: bytes) -> BackendError:
    """The error for a zygote that said this in place of building its jail."""
    if not said:
        return BackendError(
            "the zygote ended before its jail was built, and did not say why; `docker events` "
            "and the kernel's log may"
        )
    return BackendError(
        "the zygote could not build its jail; `spadework doctor` shows what this machine "
        f"lacks:\n{said.decode('utf-8', 'replace')}"
    )


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
