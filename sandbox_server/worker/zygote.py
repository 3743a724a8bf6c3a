"""The jail's trusted parent process: forks episode processes, reaps them, kills them.

It never imports, compiles or parses anything that a program sent. It talks to the
supervisor in small JSON datagrams over one socket; descriptors for episodes ride along.

    supervisor -> zygote   {"op": "spawn", "id", "user", "limits", "address_space_bytes",
                            "group": whether it serves many episodes} + fd
                           {"op": "kill", "id"}
                           {"op": "sweep", "user"}: kill every process of that user
    zygote -> supervisor   {"event": "ready"}
                           {"event": "spawned", "id"} or {"event": "refused", "id", "why"}
                           {"event": "exited", "id", "status", "cpu_s"}
                           {"event": "swept", "user"}

When the supervisor's end closes, the zygote exits; in a jail it is init, so the kernel
then kills everything in it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from typing import Any

from . import episode, frames, group, lockdown, progress, sharing


class Zygote:
    """One zygote; see the module's docstring for the protocol."""

    def __init__(self, control: socket.socket, *, isolated: bool) -> None:
        self._control = control
        self._isolated = isolated
        self._ids: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Serve until the supervisor goes away."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._send({"event": "ready"})
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)
                    self._reap()
                elif not self._serve_one():
                    return

    def _serve_one(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 65536, 1)
        except ConnectionResetError:
            # The supervisor closed with messages of ours unread.
            return False
        if not data:
            return False
        message = json.loads(data)
        if message["op"] == "spawn":
            self._spawn(message, descriptors[0])
        elif message["op"] == "kill":
            pid = self._pids.get(message["id"])
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        elif message["op"] == "sweep":
            self._sweep(message["user"])
        return True

    def _spawn(self, message: dict[str, Any], fd: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            # A bomb elsewhere in the jail: that must not be every episode's end.
            os.close(fd)
            self._send({"event": "refused", "id": message["id"], "why": str(error)})
            return
        if pid == 0:
            self._become_episode(message, fd)
        os.close(fd)
        self._ids[pid] = message["id"]
        self._pids[message["id"]] = pid
        self._send({"event": "spawned", "id": message["id"]})

    def _become_episode(self, message: dict[str, Any], fd: int) -> None:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            page = progress.take(fd) if message["group"] else None
            lockdown.lock_down(
                fd,
                message["limits"],
                message["address_space_bytes"],
                user=message["user"] if self._isolated else os.getuid(),
                isolated=self._isolated,
            )
            os.write(lockdown.EPISODE_FD, frames.LOCKED_DOWN)
        except BaseException:
            with contextlib.suppress(BaseException):
                os.write(lockdown.EPISODE_FD, traceback.format_exc()[-2000:].encode())
            os._exit(1)
        try:
            if page is not None:
                group.GroupServer(lockdown.EPISODE_FD, message["limits"], page).serve()
            else:
                episode.EpisodeServer(lockdown.EPISODE_FD, message["limits"]).serve()
        except BaseException:
            os._exit(1)
        os._exit(0)

    def _sweep(self, user: int) -> None:
        """Kill all processes of one user.

        As that user, since root's kill(-1) would reach everybody; and without a child, since
        a bomb may leave no room for one. Root stays the saved id, to come back to.
        """
        at_parents_end = lockdown.death_signal()
        os.setresuid(user, user, 0)
        try:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        finally:
            os.setresuid(0, 0, 0)
            # nsjail's end has to be the zygote's, which the kernel has just forgotten.
            lockdown.set_death_signal(at_parents_end)
        self._send({"event": "swept", "user": user})

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            episode_id = self._ids.pop(pid, None)
            if episode_id is None:
                # An adopted grandchild: a copy made by Fork, or what a program forked.
                continue
            del self._pids[episode_id]
            self._send(
                {
                    "event": "exited",
                    "id": episode_id,
                    "status": status,
                    "cpu_s": usage.ru_utime + usage.ru_stime,
                }
            )

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._control.send(json.dumps(message).encode())
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)


def main(arguments: list[str]) -> None:
    """Args:
    arguments: "isolated" or "bare", the control socket's descriptor, then the
        modules to have warm.
    """
    for name in arguments[2:]:
        importlib.import_module(name)
    # A thousand episodes that each push the supervisor aside as they wake cost it its caches.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    gc.collect()
    sharing.make_all_immortal()
    sharing.fill_pools()
    gc.freeze()
    control = socket.socket(fileno=int(arguments[1]))
    Zygote(control, isolated=arguments[0] == "isolated").run()


if __name__ == "__main__":
    main(sys.argv[1:])
