"""What a backend is: it starts a zygote somewhere and hands over its control socket."""

from __future__ import annotations

import abc
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sandbox_server.config import ServerConfig
from sandbox_server.runtime import Runtime

_END_TIMEOUT_S = 3.0


class BackendError(Exception):
    """A jail could not be started; the message says what is missing and what to do."""


class Handle(Protocol):
    """What holds a jail's processes.

    Attributes:
        failure: Why the jail did not start, where the backend learns of it; else empty.
    """

    failure: str

    def end(self, timeout_s: float) -> None:
        """Wait for all of them to end, and bring it about if it takes too long."""


class ChildProcess:
    """A jail that ends with a child process of ours, which leads a session of its own."""

    failure = ""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def end(self, timeout_s: float) -> None:
        try:
            self._process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@dataclass
class JailProcess:
    """A started zygote.

    Attributes:
        handle: What the jail ends with.
        control: The supervisor's end of the zygote's control socket.
        users: User ids, as the jail sees them, that episodes may get one each; empty
            where ids cannot be mapped and all episodes share the zygote's.
        isolated: Whether its episodes are isolated at all.
        at_ready: Called with the zygote's host pid and user when it is ready, before any episode.
        at_end: Called when the jail has ended: removes what its end has not.
    """

    handle: Handle
    control: socket.socket
    users: range
    isolated: bool = True
    at_ready: Callable[[int, int], None] = field(default=lambda pid, user: None)
    at_end: Callable[[], None] = field(default=lambda: None)

    def kill(self) -> None:
        """End the jail and all that is in it, and wait for it.

        Closing the control socket ends the zygote, and the kernel with it everything in
        its pid namespace; nsjail, left alive, then removes its cgroups.
        """
        self.control.close()
        self.handle.end(_END_TIMEOUT_S)
        self.at_end()


class Backend(abc.ABC):
    """A way to start zygotes.

    Attributes:
        name: As asked for on the command line.
        isolates: Whether it promises isolation, which the server then checks at its start.
    """

    name: str
    isolates = True

    def __init__(self, config: ServerConfig) -> None:
        self.config = config

    @abc.abstractmethod
    def isolation(self) -> dict[str, str]:
        """Protections in force, by name, with what enforces each."""

    @abc.abstractmethod
    def start(self, runtime: Runtime, hash_seed: int) -> JailProcess:
        """Start a zygote.

        Args:
            runtime: What its episodes see.
            hash_seed: PYTHONHASHSEED of the zygote and all its episodes.

        Raises:
            BackendError: If a protection this backend promises is not to be had.
        """

    def reap_dead(self) -> None:  # noqa: B027 -- where nothing can be left, nothing is to do
        """Remove what servers of this backend that were killed have left on the host."""

    def close(self) -> None:  # noqa: B027
        """Remove what is left of this server's own; its jails have ended."""


def control_pair() -> tuple[socket.socket, socket.socket]:
    """A control socket: the supervisor's end, non-blocking, and the zygote's.

    The supervisor's end takes credentials along, which say which host process wrote.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return ours, theirs


def environment(runtime: Runtime, hash_seed: int) -> dict[str, str]:
    """The whole environment of a zygote: nothing of the server's own gets in."""
    return {
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "PYTHONSAFEPATH": "1",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "PATH": "/nowhere",
        # One thread each: a thread pool per episode would be thousands of threads.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def spawn(
    command: Sequence[str],
    control: socket.socket,
    variables: dict[str, str],
    *,
    also: tuple[int, ...] = (),
) -> ChildProcess:
    """Start `command` in a session of its own, with the zygote's end of the control socket.

    Descriptors keep their numbers, which the command's arguments name.

    Args:
        also: More descriptors for it.
    """
    return ChildProcess(
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(control.fileno(), *also),
            start_new_session=True,
            env=variables,
        )
    )


def zygote_arguments(mode: str, control: socket.socket, runtime: Runtime) -> list[str]:
    """Arguments of the interpreter that becomes the zygote.

    Args:
        mode: "isolated", or "bare" where there is no jail around it.
    """
    fd = str(control.fileno())
    return ["-s", "-m", "worker.zygote", mode, fd, "spadework_env", *runtime.warm_modules]
