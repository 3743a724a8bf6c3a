"""Attacks on the kernel: system calls that would give more than an episode has.

Numbers: the kernel's uapi headers `asm/unistd_64.h` and `asm-generic/unistd.h`.
"""

from __future__ import annotations

from tests.security.attack import X86, Attack

NAMESPACES = "no new namespaces, mounts or roots"
CALLS = "no system call off the list"
PRIVILEGES = "no privilege, and no way to one"
PROC = "no /proc, no /sys"

_NEWUSER, _NEWNS, _NEWPID, _NEWNET = 0x10000000, 0x00020000, 0x20000000, 0x40000000
_NEWIPC, _NEWUTS, _NEWCGROUP, _NEWTIME = 0x08000000, 0x04000000, 0x02000000, 0x00000080

# name: (number on x86_64, on aarch64, arguments that would do harm if the call went through)
_NAMESPACE_CALLS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "unshare: a user namespace": (272, 97, (_NEWUSER,)),
    "unshare: a mount namespace": (272, 97, (_NEWNS,)),
    "unshare: a pid namespace": (272, 97, (_NEWPID,)),
    "unshare: a network namespace": (272, 97, (_NEWNET,)),
    "unshare: an IPC namespace": (272, 97, (_NEWIPC,)),
    "unshare: a UTS namespace": (272, 97, (_NEWUTS,)),
    "unshare: a cgroup namespace": (272, 97, (_NEWCGROUP,)),
    "unshare: a time namespace": (272, 97, (_NEWTIME,)),
    "setns": (308, 268, (3, 0)),
    "mount": (165, 40, (0, 0, 0, 4096, 0)),
    "umount2": (166, 39, (0, 2)),
    "pivot_root": (155, 41, (0, 0)),
    "chroot": (161, 51, (0,)),
    "open_tree": (428, 428, (-100, 0, 1)),
    "move_mount": (429, 429, (3, 0, -100, 0, 4)),
    "fsopen": (430, 430, (0, 0)),
    "fsmount": (432, 432, (3, 0, 0)),
    "fspick": (433, 433, (-100, 0, 0)),
    "mount_setattr": (442, 442, (-100, 0, 0, 0, 0)),
    "sethostname": (170, 161, (0, 0)),
    "setdomainname": (171, 162, (0, 0)),
}

_CALLS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "ptrace: be traced": (101, 117, (0, 0, 0, 0)),
    "ptrace: attach to init": (101, 117, (16, 1, 0, 0)),
    "process_vm_readv": (310, 270, (1, 0, 0, 0, 0, 0)),
    "process_vm_writev": (311, 271, (1, 0, 0, 0, 0, 0)),
    "process_madvise": (440, 440, (3, 0, 0, 0, 0)),
    "process_mrelease": (448, 448, (3, 0)),
    "kcmp": (312, 272, (1, 1, 0, 0, 0)),
    "pidfd_open": (434, 434, (1, 0)),
    "pidfd_getfd": (438, 438, (3, 0, 0)),
    "bpf": (321, 280, (0, 0, 0)),
    "perf_event_open": (298, 241, (0, 0, -1, -1, 0)),
    "userfaultfd": (323, 282, (0,)),
    "io_uring_setup": (425, 425, (8, 0)),
    "io_uring_enter": (426, 426, (3, 1, 1, 0, 0, 0)),
    "io_uring_register": (427, 427, (3, 0, 0, 0)),
    "add_key": (248, 217, (0, 0, 0, 0, 0)),
    "request_key": (249, 218, (0, 0, 0, 0)),
    "keyctl": (250, 219, (0, 0, 0, 0, 0)),
    "kexec_load": (246, 104, (0, 0, 0, 0)),
    "kexec_file_load": (320, 294, (3, 3, 0, 0, 0)),
    "init_module": (175, 105, (0, 0, 0)),
    "finit_module": (313, 273, (3, 0, 0)),
    "delete_module": (176, 106, (0, 0)),
    "syslog": (103, 116, (3, 0, 0)),
    "reboot": (169, 142, (0xFEE1DEAD, 672274793, 0, 0)),
    "swapon": (167, 224, (0, 0)),
    "acct": (163, 89, (0,)),
    "quotactl": (179, 60, (0, 0, 0, 0)),
    "personality: no randomised addresses": (135, 92, (0x0040000,)),
    "personality: addresses below all others": (135, 92, (0x0100000,)),
    "seccomp: a filter that asks a listener": (317, 277, (1, 8, 0)),
    "landlock_create_ruleset": (444, 444, (0, 0, 1)),
    "memfd_create": (319, 279, (0, 0)),
    "memfd_secret": (447, 447, (0,)),
    "fanotify_init": (300, 262, (0, 0)),
    "inotify_init1": (294, 26, (0,)),
    "signalfd4": (289, 74, (-1, 0, 8, 0)),
    "timerfd_create": (283, 85, (0, 0)),
    "timer_create": (222, 107, (0, 0, 0)),
    "shmget": (29, 194, (0, 4096, 0o1777)),
    "msgget": (68, 186, (0, 0o1777)),
    "semget": (64, 190, (0, 1, 0o1777)),
    "mq_open": (240, 180, (0, 0o102, 0o600, 0)),
    "mbind": (237, 235, (0, 0, 0, 0, 0, 0)),
    "move_pages": (279, 239, (0, 0, 0, 0, 0, 0)),
    "migrate_pages": (256, 238, (0, 0, 0, 0)),
    "remap_file_pages": (216, 234, (0, 0, 0, 0, 0)),
    "mlockall": (151, 230, (3,)),
    "clock_settime": (227, 112, (0, 0)),
    "adjtimex": (159, 171, (0,)),
    "vhangup": (153, 58, ()),
    "openat2": (437, 437, (-100, 0, 0, 24)),
    "execveat": (322, 281, (-100, 0, 0, 0, 0)),
    "lookup_dcookie": (212, 18, (0, 0, 0)),
    "a number that no kernel has": (9_999, 9_999, ()),
}

_PRIVILEGE_CALLS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "setuid": (105, 146, (0,)),
    "setgid": (106, 144, (0,)),
    "setresuid": (117, 147, (0, 0, 0)),
    "setresgid": (119, 149, (0, 0, 0)),
    "setfsuid": (122, 151, (0,)),
    "setgroups": (116, 159, (0, 0)),
    "capset": (126, 91, (0, 0)),
    "prctl: keep capabilities": (157, 167, (8, 1, 0, 0, 0)),
    "prctl: ambient capabilities": (157, 167, (47, 2, 21, 0, 0)),
    "prctl: be dumpable": (157, 167, (4, 1, 0, 0, 0)),
    "prctl: outlive the zygote": (157, 167, (1, 0, 0, 0, 0)),
    "prctl: allow new privileges": (157, 167, (38, 0, 0, 0, 0)),
    "setrlimit": (160, 164, (6, 0)),
    "setpriority": (141, 140, (0, 0, -20)),
    "sched_setscheduler: real time": (144, 119, (0, 1, 0)),
    "sched_setattr": (314, 274, (0, 0, 0)),
    "sched_setaffinity": (203, 122, (0, 8, 0)),
    "ioprio_set": (251, 30, (1, 0, 0)),
}

# Of x86 alone: ports, segments, old doors.
_X86_CALLS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "iopl": (172, -1, (3,)),
    "ioperm": (173, -1, (0, 1, 1)),
    "modify_ldt": (154, -1, (1, 0, 0)),
    "arch_prctl: fault on cpuid": (158, -1, (0x1012, 0)),
    "uselib": (134, -1, (0,)),
    "sysfs": (139, -1, (3,)),
    "_sysctl": (156, -1, (0,)),
}


def _attacks(
    promise: str, calls: dict[str, tuple[int, int, tuple[int, ...]]]
) -> tuple[Attack, ...]:
    return tuple(
        Attack(
            f"system call {name}",
            promise,
            f"return said(kernel({x86_64}, {aarch64}, *{arguments!r}))",
            # What may fork has the wider of the two lists.
            limits={"max_processes": 4},
            says=r"refused: EPERM",
        )
        for name, (x86_64, aarch64, arguments) in calls.items()
    )


# Machine code: xor eax, eax; mov al, 20 (getpid of 32 bits); int 0x80; ret.
_INT_80 = r"b'\x31\xc0\xb0\x14\xcd\x80\xc3'"

_RUN_CODE = f"""
import mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write({_INT_80})
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
return said(ctypes.CFUNCTYPE(ctypes.c_long)(address)())
"""

_X32 = "return said(kernel(0x40000000 + {number}, -1, {arguments}))"

_X86_DOORS = (
    *_attacks(CALLS, _X86_CALLS),
    Attack(
        "an x32 call", CALLS,
        _X32.format(number=39, arguments=""),
        outcomes=("SIGNALED",), signal=31,
    ),
    Attack(
        "an x32 call of ptrace by its own number", CALLS,
        _X32.format(number=521, arguments="0, 0, 0, 0"),
        outcomes=("SIGNALED",), signal=31,
    ),
    Attack(
        "an x32 call of execve by its own number", CALLS,
        _X32.format(number=520, arguments="0, 0, 0"),
        outcomes=("SIGNALED",), signal=31,
    ),
    Attack(
        "a 32-bit call through interrupt 0x80", CALLS, _RUN_CODE, outcomes=("SIGNALED",), signal=31
    ),
)  # fmt: skip

_CLONE = """
child = libc.syscall(*[ctypes.c_long(a) for a in
                       (56 if platform.machine() == "x86_64" else 220, {flags}, 0, 0, 0, 0)])
if child == 0:
    os._exit(0)
time.sleep(0.1)
return said(f"{{child}} {{errno.errorcode.get(ctypes.get_errno())}}")
"""

ATTACKS = (
    *_attacks(NAMESPACES, _NAMESPACE_CALLS),
    *_attacks(CALLS, _CALLS),
    *_attacks(PRIVILEGES, _PRIVILEGE_CALLS),
    *(_X86_DOORS if X86 else ()),
    *(
        Attack(
            f"clone with {what}", NAMESPACES,
            _CLONE.format(flags=flags),
            limits={"max_processes": 4},
            says=r"-1 EPERM",
        )
        for what, flags in {
            "a user namespace": _NEWUSER | 17,
            "a pid namespace": _NEWPID | 17,
            "a network namespace": _NEWNET | 17,
            "every namespace": 0x7E020000 | 17,
        }.items()
    ),
    Attack(
        "clone3, whose arguments no filter can read", CALLS,
        "block = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)\n"
        "return said(kernel(435, 435, ctypes.addressof(block), 88))",
        limits={"max_processes": 4},
        says=r"refused: ENOSYS",
    ),
    Attack(
        "executes another program", PRIVILEGES,
        "return said(attempt(os.execv, sys.executable or '/opt/python/bin/python3', ['x']))",
        says=r"refused: PermissionError EPERM",
    ),
    Attack(
        "starts another program from a child", PRIVILEGES,
        "import subprocess\n"
        "return said(attempt(subprocess.run, ['/opt/python/bin/python3', '-c', '']))",
        limits={"max_processes": 4},
        says=r"refused: PermissionError EPERM",
    ),
    Attack(
        "raises its own limits", PRIVILEGES,
        "import resource\n"
        "both = [attempt(resource.setrlimit, which, (1 << 30, 1 << 30)) for which in\n"
        "        (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_CPU)]\n"
        "return said(sorted(set(both)))",
        says=r"\['refused: (ValueError|PermissionError EPERM)'\]",
    ),
    Attack(
        "has a capability", PRIVILEGES,
        "header = (ctypes.c_uint32 * 2)(0x20080522, 0)\n"
        "data = (ctypes.c_uint32 * 6)()\n"
        "return said(kernel(125, 90, ctypes.addressof(header), ctypes.addressof(data)) +\n"
        "            f' {list(data)}')",
        says=r"refused: EPERM \[0, 0, 0, 0, 0, 0\]",
    ),
    *(
        Attack(
            f"reads {path}", PROC,
            f"return said(attempt(os.listdir, {path!r}) if {path!r}.endswith('/')\n"
            f"            else attempt(open, {path!r}))",
            says=r"refused: (FileNotFoundError ENOENT|PermissionError E(PERM|ACCES))"
                 r"|went through: \[\]",
        )
        for path in (
            "/proc/", "/proc/self/status", "/proc/1/environ", "/proc/self/mem", "/proc/kallsyms",
            "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/sys/", "/sys/kernel/debug/",
            "/sys/fs/cgroup/", "/sys/kernel/uevent_helper", "/dev/kmsg", "/dev/shm/",
        )
    ),
)  # fmt: skip
