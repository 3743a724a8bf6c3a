"""How a zygote starts in a container: it builds a jail of its own, and only then is a zygote.

The container starts it as an ordinary user without capabilities. In a user namespace of its
own it has some again, for what is inside that namespace and for nothing else, and so can
lock its children down exactly as in an nsjail jail. Its new root is the runtime alone: what
the engine mounted beside it (/proc, /sys, /etc/hosts, /dev/shm, the folder of this socket)
is detached for good.

It talks to the supervisor over a socket in a folder of the container, once:

    zygote -> supervisor   "unshared": the user namespace is there, its maps are not
    supervisor -> zygote   "mapped" + the descriptors of the control socket and of a log
    zygote -> supervisor   the text of what went wrong, if something does, and it exits
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import traceback

from . import lockdown, seccomp, syscalls, zygote

# Where the image has what the container is started with; see backends/docker.py.
_ROOT, _WORKER = b"/runtime", b"/spadework"
_DEVICES = (b"null", b"zero", b"urandom")

UNSHARED, MAPPED = b"unshared", b"mapped"

_CLONE_NEWUSER, _CLONE_NEWNS = 0x10000000, 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PR_CAPBSET_DROP = 24
_CAPABILITY_COUNT = 64

# As policy/nsjail.cfg gives them, and for the same reasons: CAP_KILL, CAP_SETGID, CAP_SETUID,
# CAP_SYS_ADMIN and CAP_SYS_RESOURCE.
_KEPT = frozenset({5, 6, 7, 21, 24})

_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_libc = lockdown.libc


def _mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int) -> None:
    options = b"size=4194304" if kind else None
    lockdown.check(_libc.mount(source, target, kind, flags, options), f"mount {target.decode()}")


def _new_root() -> None:
    """Make the runtime the root, read-only, and let go of everything else."""
    _mount(None, b"/", None, _MS_REC | _MS_PRIVATE)
    # A mount of our own: those that the engine made are locked in their places.
    _mount(_ROOT, _ROOT, None, _MS_BIND)
    _mount(_WORKER, _ROOT + _WORKER, None, _MS_BIND)
    for device in _DEVICES:
        _mount(b"/dev/" + device, _ROOT + b"/dev/" + device, None, _MS_BIND)
    # A zygote's libraries may want a cache folder; each episode mounts its own over it.
    _mount(b"scratch", _ROOT + b"/tmp", b"tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV
    for folder in (_ROOT, _ROOT + _WORKER):
        _mount(None, folder, None, flags)
    os.chdir(_ROOT)
    number = ctypes.c_long(_SYS_PIVOT_ROOT[os.uname().machine])
    lockdown.check(_libc.syscall(number, b".", b"."), "pivot_root")
    # The old root now lies on top of the new one.
    lockdown.check(_libc.umount2(b".", _MNT_DETACH), "umount2")
    os.chdir("/")


def _give_up_capabilities() -> None:
    for number in range(_CAPABILITY_COUNT):
        # The kernel has fewer, and says so of the rest.
        if number not in _KEPT:
            _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    lockdown.set_capabilities(_KEPT)


def _enter(supervisor: socket.socket) -> int:
    """Build the jail.

    Returns:
        The descriptor of the control socket.
    """
    lockdown.check(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
    supervisor.send(UNSHARED)
    said, descriptors, _, _ = socket.recv_fds(supervisor, 64, 2)
    if said != MAPPED or len(descriptors) != 2:
        raise OSError(f"the supervisor said {said!r}, with {len(descriptors)} descriptors")
    control, log = descriptors
    os.dup2(log, sys.stderr.fileno())
    os.close(log)
    if os.getuid() != 0 or os.getgid() != 0:
        raise OSError("the ids of the jail are not mapped as they should be")
    _new_root()
    _give_up_capabilities()
    seccomp.install(_libc, seccomp.refusing(syscalls.ONCE_AT_THE_START))
    return control


def main(arguments: list[str]) -> None:
    """Build the jail, and be its zygote.

    Args:
        arguments: The path of the supervisor's socket, then the modules to have warm.
    """
    # The engine's own; an episode has no use for it.
    os.environ.pop("HOSTNAME", None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as supervisor:
        supervisor.connect(arguments[0])
        try:
            control = _enter(supervisor)
        except BaseException:
            supervisor.send(traceback.format_exc()[-2000:].encode())
            raise
    zygote.main(["isolated", str(control), *arguments[1:]])


if __name__ == "__main__":
    main(sys.argv[1:])
