"""Checks of the kernel itself: its release, its machine, its filters, its clock."""

from __future__ import annotations

from pathlib import Path

import sandbox_server
from sandbox_server.doctor.check import Check, Host
from sandbox_server.worker import seccomp as worker_seccomp

# The C library's clock calls need no system call with these.
_FAST_CLOCKS = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"}

# Puts an episode's own filter in force, and tries one call on each side of it.
_SECCOMP_TRY = f"""
import ctypes, os, sys
sys.path.insert(0, {str(Path(sandbox_server.__file__).parent)!r})
from worker import seccomp
libc = ctypes.CDLL(None, use_errno=True)
program = seccomp.for_process(seccomp.build(may_fork=False), os.getpid())
if libc.prctl(38, 1, 0, 0, 0) != 0:
    sys.exit("no_new_privs refused")
try:
    seccomp.install(libc, program)
except OSError as error:
    sys.exit(error.strerror)
os.getppid()
if libc.socket(1, 1, 0) != -1:
    sys.exit("a filter was installed, and refuses nothing")
"""


def release(host: Host) -> Check:
    numbers = [int(part) for part in host.kernel.split("-")[0].split(".")[:2] if part.isdigit()]
    return Check(
        "kernel",
        numbers >= [5, 11],
        f"Linux {host.kernel}",
        "use a kernel of 5.11 or newer: close_range and the seccomp cache came with it",
    )


def machine(host: Host) -> Check:
    try:
        worker_seccomp.build(may_fork=False, machine=host.machine)
    except OSError:
        return Check("machine", False, host.machine, "use an x86_64 or aarch64 machine")
    return Check("machine", True, host.machine)


def seccomp(host: Host) -> Check:
    """Install an episode's filter in a child, and see what it refuses."""
    said = host.python(_SECCOMP_TRY)
    if said.status == 0:
        return Check("seccomp", True, "a filter was installed, and refused a socket")
    last = said.output.splitlines()[-1] if said.output else f"status {said.status}"
    if host.in_container:
        remedy = "start the container with a seccomp profile that allows prctl and seccomp"
    else:
        remedy = "use a kernel with CONFIG_SECCOMP_FILTER: zgrep SECCOMP /proc/config.gz"
    return Check("seccomp", False, last, remedy)


def clock(host: Host) -> Check:
    """Every step reads the clock a few times."""
    folder = "/sys/devices/system/clocksource/clocksource0"
    name = host.text(f"{folder}/current_clocksource") or "unknown"
    offered = set(host.text(f"{folder}/available_clocksource").split()) & _FAST_CLOCKS
    ok = name in _FAST_CLOCKS or name == "unknown"
    if offered:
        remedy = f"echo {min(offered)} > {folder}/current_clocksource"
    else:
        remedy = "none here: this machine offers no faster one; each step costs some more"
    return Check("clock", ok, name, remedy, required=False)
