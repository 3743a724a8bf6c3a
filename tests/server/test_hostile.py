"""Programs that mean harm: each gets its own outcome, and the next episode still works."""

from __future__ import annotations

import asyncio
import platform

import pytest
from sandbox_api.types import Outcome, StepItem

from tests.server.conftest import COUNTER, Sandbox, stepping

pytestmark = pytest.mark.nsjail

CRASHES = [
    ("os._exit", "os._exit(3)", Outcome.EXITED),
    ("sys.exit is only an exception", "sys.exit(3)", Outcome.PROGRAM_ERROR),
    ("segfault", "import ctypes; ctypes.string_at(0)", Outcome.SIGNALED),
    ("abort", "os.abort()", Outcome.SIGNALED),
    ("kills itself", "import signal; os.kill(os.getpid(), 9)", Outcome.PROGRAM_ERROR),
    ("raises a kill", "import signal; signal.raise_signal(9)", Outcome.PROGRAM_ERROR),
    ("recursion", "def f(): f()\nf()", Outcome.PROGRAM_ERROR),
    (
        "recursion past the stack",
        "sys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**5): x = [x]\nrepr(x)",
        (Outcome.SIGNALED, Outcome.PROGRAM_ERROR, Outcome.MEMORY_LIMIT),
    ),
    (
        "bad bytecode",
        "f = lambda: 0\nf.__code__ = f.__code__.replace(co_code=b'\\xff' * 64)\nf()",
        (Outcome.SIGNALED, Outcome.PROGRAM_ERROR),
    ),
    ("closes its socket", "os.closerange(0, 64)\ntime.sleep(30)", Outcome.PROTOCOL_VIOLATION),
    (
        "garbles its socket",
        "os.write(3, b'\\x00garbage')\ntime.sleep(30)",
        Outcome.PROTOCOL_VIOLATION,
    ),
    (
        "claims a longer message",
        "os.write(3, b'\\x01' + b'x' * 50_000)\ntime.sleep(1)\n"
        "while True: os.write(3, b'\\x01' + b'x' * 50_000)",
        Outcome.PROTOCOL_VIOLATION,
    ),
    (
        "floods its socket",
        "while True: os.write(3, b'\\x00' + bytes(40))",
        Outcome.PROTOCOL_VIOLATION,
    ),
    (
        "an empty datagram",
        "import socket\nos.write(3, b'')\ntime.sleep(30)",
        Outcome.PROTOCOL_VIOLATION,
    ),
    (
        "exits from a thread is refused",
        "import threading\nthreading.Thread(target=lambda: os._exit(1)).start()",
        Outcome.PROGRAM_ERROR,
    ),
    (
        "raises from repr",
        "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E",
        Outcome.PROGRAM_ERROR,
    ),
    (
        "a reward that attacks",
        "class F(float):\n    def __float__(self): os._exit(9)\nreturn '', F(1), False, False, {}",
        Outcome.EXITED,
    ),
    (
        "an observation that attacks",
        "class S(str):\n    def encode(self, *a): os._exit(9)\n"
        "    def __str__(self): os._exit(9)\nreturn S('fine'), 0.0, False, False, {}",
        Outcome.COMPLETED,
    ),
]


@pytest.mark.parametrize(
    ("body", "outcome"), [case[1:] for case in CRASHES], ids=[case[0] for case in CRASHES]
)
async def test_a_crash_is_an_outcome(
    jailed: Sandbox, body: str, outcome: Outcome | tuple[Outcome, ...]
) -> None:
    neighbour = await jailed.start(COUNTER, seed=1)
    result = await jailed.play_one(stepping(body), step_timeout_s=20)
    expected = outcome if isinstance(outcome, tuple) else (outcome,)
    assert result.outcome in expected, result
    assert (result.reward is None) == (result.outcome is not Outcome.COMPLETED)
    assert (await jailed.step(neighbour, 0)).observation == "at 1"
    await jailed.still_works()


FORGED = """
import os, struct
class ForgedEnv:
    def reset(self, seed=None):
        return "go", {}
    def step(self, action):
        header = struct.Struct("<BIBBdQIII")
        os.write(3, b"\\x00" + header.pack(*HEADER) + b"x")
        return "honest", 0.0, False, False, {}
"""


@pytest.mark.parametrize(
    "header",
    [
        "(3, 3, 1, 0, float('nan'), 0, 1, 0, 0)",
        "(3, 3, 1, 0, 1.0, 0, 7, 0, 0)",
        "(3, 99, 1, 0, 1.0, 0, 1, 0, 0)",
        "(2, 3, 1, 0, 1.0, 0, 1, 0, 0)",
        "(3, 3, 5, 0, 1.0, 0, 1, 0, 0)",
        "(3, 3, 1, 255, 1.0, 0, 1, 0, 0)",
        "(3, 3, 1, 0, 1.0, 0, 0, 1, 0)",
    ],
    ids=["nan", "lengths", "request", "operation", "outcome", "flags", "info"],
)
async def test_a_forged_frame_gives_no_reward(jailed: Sandbox, header: str) -> None:
    result = await jailed.play_one(FORGED.replace("HEADER", header))
    assert result.outcome is Outcome.PROTOCOL_VIOLATION
    assert result.reward is None
    await jailed.still_works()


async def test_answering_twice_ends_the_episode(jailed: Sandbox) -> None:
    """The first answer may stand, since a program decides its own rewards; not the second."""
    source = FORGED.replace("HEADER", "(3, 3, 1, 0, 1.0, 0, 1, 0, 0)")
    episode = await jailed.start(source)
    first = await jailed.step(episode, 0)
    assert first.outcome in (Outcome.COMPLETED, Outcome.PROTOCOL_VIOLATION)
    await asyncio.sleep(0.2)
    second = await jailed.step(episode, 1)
    assert second.outcome is Outcome.PROTOCOL_VIOLATION or second.error is not None
    assert second.reward is None
    await jailed.still_works()


REFUSED = [
    ("inet socket", "import socket; socket.socket()"),
    ("unix socket", "import socket; socket.socketpair()"),
    ("exec", "os.execv('/opt/python/bin/python3', ['x'])"),
    ("subprocess", "import subprocess; subprocess.run(['/opt/python/bin/python3'])"),
    ("kill all", "os.kill(-1, 9)"),
    ("kill init", "os.kill(1, 9)"),
    ("read /proc", "open('/proc/self/status')"),
    ("read the host's files", "open('/etc/passwd')"),
    ("write the runtime", "open('/opt/python/lib/x', 'w')"),
    ("write the worker", "open('/spadework/worker/episode.py', 'w')"),
    ("write the root", "open('/x', 'w')"),
    ("make a device", "os.mknod('/tmp/x', 0o666 | 0o020000, os.makedev(1, 1))"),
    ("change user", "os.setuid(0)"),
    ("raise a limit", "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (9, 9))"),
    ("change priority", "os.nice(-5)"),
    ("chroot", "os.chroot('/tmp')"),
    ("thread", "import threading; threading.Thread(target=print).start()"),
    ("memfd", "os.memfd_create('x')"),
    ("pidfd", "os.pidfd_open(1)"),
]


@pytest.mark.parametrize("body", [c[1] for c in REFUSED], ids=[c[0] for c in REFUSED])
async def test_what_an_episode_may_not_do_fails(jailed: Sandbox, body: str) -> None:
    result = await jailed.play_one(stepping(body))
    assert result.outcome is Outcome.PROGRAM_ERROR, result
    await jailed.still_works()


SYSCALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
ctypes.set_errno(0)
said = libc.syscall(ctypes.c_long({number}), *[ctypes.c_long(a) for a in {arguments}])
return str((said, ctypes.get_errno())), 0.0, False, False, {{}}
"""


# Name: number on x86_64, and arguments that would do harm if the call went through.
OFF_THE_LIST = {
    "clone with a user namespace": (56, (0x10000000 | 17, 0, 0, 0, 0)),
    "ptrace": (101, (0, 1, 0, 0)),
    "pivot_root": (155, (0, 0)),
    "mount": (165, (0, 0, 0, 0, 0)),
    "unshare": (272, (0x10000000,)),
    "perf_event_open": (298, (0, 0, 0, 0, 0)),
    "setns": (308, (0, 0)),
    "process_vm_readv": (310, (1, 0, 0, 0, 0, 0)),
    "seccomp": (317, (0, 0, 0)),
    "bpf": (321, (0, 0, 0)),
    "userfaultfd": (323, (0,)),
    "io_uring_setup": (425, (1, 0)),
    "keyctl": (250, (0, 0, 0, 0, 0)),
    "a kernel crypto socket": (41, (38, 5, 0)),
    "shmget": (29, (0, 4096, 0o1777)),
    "prctl": (157, (38, 0, 0, 0, 0)),
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize(("number", "arguments"), OFF_THE_LIST.values(), ids=OFF_THE_LIST)
async def test_a_system_call_off_the_list_fails_with_eperm(
    jailed: Sandbox, number: int, arguments: tuple[int, ...]
) -> None:
    body = SYSCALL.format(number=number, arguments=arguments)
    result = await jailed.play_one(stepping(body), max_processes=4)
    assert result.observation == "(-1, 1)"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86_64 has x32")
async def test_an_x32_call_kills(jailed: Sandbox) -> None:
    body = SYSCALL.format(number=0x40000000 + 39, arguments=())
    result = await jailed.play_one(stepping(body))
    assert result.outcome is Outcome.SIGNALED
    assert result.diagnostic is not None
    assert result.diagnostic.signal == 31
    await jailed.still_works()


async def test_scratch_folders_are_private(jailed: Sandbox) -> None:
    writer = await jailed.start(stepping("open('/tmp/secret', 'w').write('x')"))
    await jailed.step(writer, 0)
    reader = stepping("return str(os.listdir('/tmp')), 0.0, False, False, {}")
    assert (await jailed.play_one(reader)).observation == "[]"


async def test_the_environment_holds_nothing_of_the_servers(jailed: Sandbox) -> None:
    body = "return ' '.join(sorted(os.environ)), 0.0, False, False, {}"
    names = set((await jailed.play_one(stepping(body))).observation.split())
    assert names <= {
        *("HOME", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "TMPDIR"),
        *("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONPATH"),
        *("PYTHONSAFEPATH", "PYTHONUTF8"),
    }


async def test_only_its_own_descriptors_are_open(jailed: Sandbox) -> None:
    body = """
open_ones = []
for fd in range(256):
    try: os.fstat(fd); open_ones.append(fd)
    except OSError: pass
return str(open_ones), 0.0, False, False, {}
"""
    assert (await jailed.play_one(stepping(body))).observation == "[0, 1, 2, 3]"


async def test_every_episode_has_its_own_user_and_no_capability(jailed: Sandbox) -> None:
    body = """
import ctypes
header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None)
return f"{os.getuid()} {os.getgroups()}", 0.0, False, False, {}
"""
    first = (await jailed.play_one(stepping(body))).observation
    second = (await jailed.play_one(stepping(body))).observation
    assert first != second
    assert first.endswith(" []")


async def test_a_bomb_that_outlives_its_parent_is_swept_up(jailed: Sandbox) -> None:
    body = """
for _ in range(5):
    if os.fork() == 0:
        while True:
            try: time.sleep(60)
            except BaseException: pass
os._exit(0)
"""
    result = await jailed.play_one(stepping(body), max_processes=8)
    assert result.outcome is Outcome.EXITED
    await jailed.still_works()


async def test_many_hostile_episodes_at_once_hurt_no_neighbour(jailed: Sandbox) -> None:
    bodies = ["while True: pass", "os._exit(1)", "x = bytearray(1 << 34)", "os.closerange(0, 9)"]
    hostile = [
        await jailed.start(stepping(body), step_timeout_s=1.5) for body in bodies for _ in range(4)
    ]
    honest = [await jailed.start(COUNTER, seed=i) for i in range(16)]
    items = [StepItem(e.episode_id, 0, "+") for e in hostile + honest]
    results = await jailed.client.step(items)
    assert all(not r.ok and r.reward is None for r in results[:16])
    assert all(r.ok for r in results[16:])
