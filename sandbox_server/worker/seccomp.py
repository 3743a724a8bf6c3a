"""The kernel filter of an episode process, assembled as classic BPF.

Everything constant is allowed or refused by number alone, which the kernel answers from
a bitmap; only calls whose arguments matter run the program.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Mapping

from . import syscalls

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

# Offsets into struct seccomp_data; arguments are 64 bits, their low half first.
_NR, _ARCH = 0, 4


def _arg_low(index: int) -> int:
    return 16 + 8 * index


def _arg_high(index: int) -> int:
    return _arg_low(index) + 4


_LD, _AND, _JEQ, _JSET, _JGE, _RET = 0x20, 0x54, 0x15, 0x45, 0x35, 0x06

_KILL_PROCESS = 0x80000000
_ALLOW = 0x7FFF0000


def _errno(number: int) -> int:
    return 0x00050000 | number


_SIGABRT = 6

# CLONE_NEW* of clone(2): namespaces are never an episode's business. CLONE_PARENT and
# CLONE_PTRACE would make the zygote a parent, or a tracer, of what it did not start.
_CLONE_REFUSED = 0x7E020080 | 0x00008000 | 0x00002000
# The low byte is the signal that the parent gets at the end: a child whose death is its
# parent's SIGKILL would hide who killed whom. None is for threads.
_CLONE_SIGNAL_MASK, _SIGCHLD = 0xFF, 17

# fcntl commands of file objects and locks. Not F_SETOWN, F_SETSIG, F_NOTIFY and F_SETLEASE,
# which make the kernel send any signal, SIGKILL too, to any process of the same user; nor
# F_SETPIPE_SZ, whose memory no limit of an episode counts.
_FCNTLS = (
    0,  # F_DUPFD
    1,  # F_GETFD
    2,  # F_SETFD
    3,  # F_GETFL
    4,  # F_SETFL
    5,  # F_GETLK
    6,  # F_SETLK
    7,  # F_SETLKW
    36,  # F_OFD_GETLK
    37,  # F_OFD_SETLK
    38,  # F_OFD_SETLKW
    1030,  # F_DUPFD_CLOEXEC
    1032,  # F_GETPIPE_SZ
)

# ioctl requests that file objects and the standard library make.
_IOCTLS = (
    0x5401,  # TCGETS: isatty()
    0x5413,  # TIOCGWINSZ: shutil.get_terminal_size()
    0x5451,  # FIOCLEX
    0x5450,  # FIONCLEX
    0x5421,  # FIONBIO
    0x541B,  # FIONREAD
)


def _instruction(code: int, k: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, jump_true, jump_false, k)


def _on(number: int | None, body: list[bytes]) -> list[bytes]:
    """Run `body`, which must return, when the call's number is `number`."""
    if number is None:
        return []
    return [_instruction(_JEQ, number, 0, len(body)), *body]


# Stands for the process's own id until `for_process`; no pid is so large.
_ANY_PID = 0x7FFFFFFF


def for_process(program: bytes, pid: int) -> bytes:
    """The filter for one process: the only one it may signal is itself."""
    instruction = _instruction(_JEQ, _ANY_PID, 0, 3)
    return program.replace(instruction, _instruction(_JEQ, pid, 0, 3))


def build(*, may_fork: bool, machine: str | None = None) -> bytes:
    """Assemble the filter; done once, before the processes that `for_process` fits it to.

    Args:
        may_fork: Allow fork and threads. Namespaces stay forbidden either way.
        machine: "x86_64" or "aarch64"; the running one by default.

    Returns:
        An array of struct sock_filter.

    Raises:
        OSError: If there is no table for this machine.
    """
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        raise OSError(errno.ENOSYS, f"no system call table for {machine}")
    column = 0 if machine == "x86_64" else 1

    def number(name: str) -> int | None:
        return syscalls.CONDITIONAL[name][column]

    allow, refuse = _instruction(_RET, _ALLOW), _instruction(_RET, _errno(errno.EPERM))
    program = [
        _instruction(_LD, _ARCH),
        _instruction(_JEQ, _AUDIT_ARCH[machine], 1, 0),
        _instruction(_RET, _KILL_PROCESS),
        _instruction(_LD, _NR),
    ]
    if machine == "x86_64":
        # The x32 numbers reach the same calls by another door.
        program += [_instruction(_JGE, _X32_BIT, 0, 1), _instruction(_RET, _KILL_PROCESS)]
    for numbers in syscalls.ALLOWED.values():
        program += _on(numbers[column], [allow])
    # ENOSYS makes the C library fall back to clone, whose flags can be read.
    program += _on(number("clone3"), [_instruction(_RET, _errno(errno.ENOSYS))])
    if may_fork:
        program += _on(number("fork"), [allow])
        program += _on(number("vfork"), [allow])
        # Fork passes descriptors to its copies.
        program += _on(number("recvmsg"), [allow])
        program += _on(
            number("clone"),
            [
                _instruction(_LD, _arg_low(0)),
                _instruction(_JSET, _CLONE_REFUSED, 0, 1),
                refuse,
                _instruction(_AND, _CLONE_SIGNAL_MASK),
                _instruction(_JEQ, _SIGCHLD, 1, 0),
                _instruction(_JEQ, 0, 0, 1),
                allow,
                refuse,
            ],
        )
    # abort() signals its own thread; any other signal could only hide who ended what.
    program += _on(
        number("tgkill"),
        [
            _instruction(_LD, _arg_low(0)),
            _instruction(_JEQ, _ANY_PID, 0, 3),
            _instruction(_LD, _arg_low(2)),
            _instruction(_JEQ, _SIGABRT, 0, 1),
            allow,
            refuse,
        ],
    )
    # Reading a limit is fine; a new limit is not, whatever it is.
    program += _on(
        number("prlimit64"),
        [
            _instruction(_LD, _arg_low(2)),
            _instruction(_JEQ, 0, 0, 3),
            _instruction(_LD, _arg_high(2)),
            _instruction(_JEQ, 0, 0, 1),
            allow,
            refuse,
        ],
    )
    for name, commands, otherwise in (
        ("ioctl", _IOCTLS, _instruction(_RET, _errno(errno.ENOTTY))),
        ("fcntl", _FCNTLS, refuse),
    ):
        checks = [_instruction(_LD, _arg_low(1))]
        for command in commands:
            checks += [_instruction(_JEQ, command, 0, 1), allow]
        program += _on(number(name), [*checks, otherwise])
    program.append(refuse)
    return b"".join(program)


def refusing(numbers: Mapping[str, tuple[int | None, int | None]]) -> bytes:
    """A filter that refuses some calls and has no opinion of the others.

    Args:
        numbers: The calls, as in `syscalls`.
    """
    machine = platform.machine()
    program = [_instruction(_LD, _NR)]
    for pair in numbers.values():
        refused = pair[0 if machine == "x86_64" else 1]
        program += _on(refused, [_instruction(_RET, _errno(errno.EPERM))])
    program.append(_instruction(_RET, _ALLOW))
    return b"".join(program)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(libc: ctypes.CDLL, program: bytes) -> None:
    """Put the filter in force for this process and all it may start; there is no way back.

    Raises:
        OSError: If the kernel refuses it.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p).value)
    pr_set_seccomp, mode_filter = 22, 2
    if libc.prctl(pr_set_seccomp, mode_filter, ctypes.byref(header), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refused the seccomp filter")
