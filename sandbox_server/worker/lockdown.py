"""What a forked child gives up before it sees a program.

The order matters: mounts and users need the capabilities that the later steps drop, and
the filter comes last because it forbids all the others.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import resource
from typing import Any

from . import seccomp

EPISODE_FD = 3

libc = ctypes.CDLL(None, use_errno=True)
libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)
libc.syscall.restype = ctypes.c_long

_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 2, 4, 38
_SIGKILL = 9
_CAPABILITY_VERSION_3 = 0x20080522
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
# Malloc arenas, the stack's growth and the reply's own buffers; on top of the program's.
_STACK_BYTES = 8 * 1024 * 1024

# Assembled when the zygote starts: a child that did it itself would spend its time on it.
_SINGLE, _FORKING = seccomp.build(may_fork=False), seccomp.build(may_fork=True)


def death_signal() -> int:
    """The signal that this process gets when its parent ends; 0 for none."""
    found = ctypes.c_int()
    check(libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(found), 0, 0, 0), "pdeathsig")
    return found.value


def set_death_signal(number: int) -> None:
    """Set it again: the kernel forgets it when the user changes."""
    check(libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0), "pdeathsig")


def check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def keep_only(fd: int) -> None:
    """Move `fd` to EPISODE_FD, silence the standard streams, close everything else."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.dup2(fd, EPISODE_FD)
    os.closerange(EPISODE_FD + 1, 1 << 20)


def limit_resources(limits: dict[str, Any], address_space_bytes: int, *, own_user: bool) -> None:
    """Set the rlimits of an episode.

    Args:
        limits: The fields of `sandbox_api.v1.Limits`.
        address_space_bytes: Size of an empty episode process.
        own_user: The process has a user id of its own, so processes can be counted.
    """

    def both(which: int, value: int) -> None:
        resource.setrlimit(which, (value, value))

    both(resource.RLIMIT_CORE, 0)
    both(resource.RLIMIT_AS, address_space_bytes + limits["memory_bytes"])
    # Soft equals hard: the kernel then sends SIGKILL, which no handler can refuse.
    both(resource.RLIMIT_CPU, max(1, math.ceil(limits["cpu_time_s"])))
    both(resource.RLIMIT_NOFILE, limits["max_open_files"])
    both(resource.RLIMIT_FSIZE, limits["scratch_bytes"])
    both(resource.RLIMIT_STACK, _STACK_BYTES)
    both(resource.RLIMIT_MEMLOCK, 0)
    both(resource.RLIMIT_MSGQUEUE, 0)
    both(resource.RLIMIT_SIGPENDING, 64)
    if own_user:
        # Fork needs one more for a moment: the parent that its copy is orphaned from.
        spare = 1 if limits["max_processes"] > 1 else 0
        both(resource.RLIMIT_NPROC, limits["max_processes"] + spare)


def private_scratch(limits: dict[str, Any], user: int) -> None:
    """Give the process a mount namespace of its own, with an empty tmpfs on /tmp."""
    check(libc.unshare(_CLONE_NEWNS), "unshare(CLONE_NEWNS)")
    options = (
        f"size={limits['scratch_bytes']},nr_inodes={limits['scratch_inodes'] + 1},"
        f"mode=0700,uid={user},gid={user}"
    )
    check(
        libc.mount(
            b"scratch",
            b"/tmp",
            b"tmpfs",
            _MS_NOSUID | _MS_NODEV | _MS_NOEXEC,
            options.encode(),
        ),
        "mount /tmp",
    )


def set_capabilities(numbers: frozenset[int]) -> None:
    """Have these capabilities in the permitted and the effective set, and no others."""
    bits = sum(1 << number for number in numbers)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable, of the lower half and then of the upper one.
    sets = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    number = _SYS_CAPSET[os.uname().machine]
    check(libc.syscall(ctypes.c_long(number), ctypes.byref(header), ctypes.byref(sets)), "capset")


def drop_privileges(user: int) -> None:
    """Become `user` for good, without capabilities or a way to new ones."""
    if os.getuid() != user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    set_capabilities(frozenset())
    # Changing user clears the death signal and the dumpable flag: set them after it.
    check(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")
    set_death_signal(_SIGKILL)


def lock_down(
    fd: int, limits: dict[str, Any], address_space_bytes: int, *, user: int, isolated: bool
) -> None:
    """Do all of it, in order.

    Args:
        fd: The episode's end of its socket.
        limits: The fields of `sandbox_api.v1.Limits`.
        address_space_bytes: Size of an empty episode process.
        user: User id to become; this process's own id where ids cannot be mapped.
        isolated: False in the `process` backend, which sets limits but isolates nothing.

    Raises:
        OSError: If any protection could not be put in force.
    """
    keep_only(fd)
    os.setsid()
    own_user = isolated and user != os.getuid()
    if isolated:
        private_scratch(limits, user)
    limit_resources(limits, address_space_bytes, own_user=own_user)
    if not isolated:
        set_death_signal(_SIGKILL)
        return
    os.umask(0o077)
    drop_privileges(user)
    os.chdir("/tmp")
    program = _FORKING if limits["max_processes"] > 1 else _SINGLE
    seccomp.install(libc, seccomp.for_process(program, os.getpid()))


def limit_name(error: OSError) -> str:
    """Name the field of Limits that an OSError of a program stands for, or ""."""
    if error.errno == errno.ENOSPC and os.statvfs("/tmp").f_favail == 0:
        return "scratch_inodes"
    return {
        errno.EMFILE: "max_open_files",
        errno.ENOSPC: "scratch_bytes",
        errno.EFBIG: "scratch_bytes",
        errno.EAGAIN: "max_processes",
    }.get(error.errno or 0, "")
