"""Attacks by and on processes: bombs, signals, what outlives its episode, timers."""

from __future__ import annotations

from tests.security.attack import X86, Attack

OTHERS = "no signal to, and no sight of, other processes"
COUNTED = "processes and threads are counted"
SWEPT = "nothing outlives its episode"
BLAME = "no death that looks like somebody else's fault"
PRIORITY = "no better priority, no other processor"

_FORKS = {"max_processes": 8}
_EPERM = r"refused: PermissionError EPERM"

_DIES_OF_INPUT = """
import fcntl
r, w = os.pipe()
return said(sorted({attempt(fcntl.fcntl, r, fcntl.F_SETOWN, os.getpid()),
                    attempt(fcntl.fcntl, r, 10, 9)}))
"""

_CLONE = """
child = libc.syscall(*[ctypes.c_long(a) for a in
                       (56 if platform.machine() == "x86_64" else 220, {flags}, 0, 0, 0, 0)])
if child == 0:
    os._exit(0)
time.sleep(0.1)
return said(f"{{child}} {{errno.errorcode.get(ctypes.get_errno())}}")
"""

_HANG = "while True:\n            try: time.sleep(60)\n            except BaseException: pass"

_BOMB = f"""
made = 0
try:
    while True:
        if os.fork() == 0:
            os.closerange(0, 3)
            {_HANG.replace("            ", "                ")}
        made += 1
except OSError as error:
    return said(f"{{made}} {{errno.errorcode[error.errno]}}")
"""

ATTACKS = (
    Attack(
        "forks where it may not", COUNTED,
        "return said(attempt(os.fork))",
        says=_EPERM,
    ),
    Attack(
        "forks by the old call", COUNTED,
        f"return said(kernel({58 if X86 else -1}, -1))",
        says=r"refused: EPERM",
    ),
    Attack(
        "a fork bomb where it may not fork", COUNTED,
        "while True: os.fork()",
        outcomes=("PROGRAM_ERROR",), exception="PermissionError",
    ),
    Attack(
        "a fork bomb", COUNTED,
        "while True: os.fork()",
        limits={**_FORKS, "step_timeout_s": 5},
        # Every one of the copies answers, or fails to fork, on the one socket.
        outcomes=("PROGRAM_ERROR", "PROTOCOL_VIOLATION"),
    ),
    Attack(
        "forks until it is refused", COUNTED,
        "while True:\n    if os.fork() == 0: time.sleep(60)",
        limits={"max_processes": 4}, outcomes=("PROGRAM_ERROR",), limit="max_processes",
    ),
    Attack(
        "a bomb of children that stay", COUNTED, _BOMB, limits=_FORKS, says=r"[78] EAGAIN"
    ),
    Attack(
        "a bomb of children that leave their session", SWEPT,
        _BOMB.replace("os.closerange(0, 3)", "attempt(os.setsid); os.closerange(0, 4)"),
        limits=_FORKS, says=r"[78] EAGAIN",
    ),
    Attack(
        "a session of its own", SWEPT,
        "return said([attempt(os.setsid), attempt(os.setpgid, 0, 0)])",
        says=rf"\['{_EPERM}', '{_EPERM}'\]",
    ),
    Attack(
        "a daemon by a double fork", SWEPT,
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        "        os.closerange(0, 4)\n"
        f"        {_HANG}\n"
        "    os._exit(0)\n"
        "os.wait()\nreturn said('left a daemon')",
        limits=_FORKS, says=r"left a daemon",
    ),
    Attack(
        "ends and leaves children that refuse every signal", SWEPT,
        "import signal\n"
        "for _ in range(5):\n"
        "    if os.fork() == 0:\n"
        "        for number in range(1, 65):\n"
        "            attempt(signal.signal, number, signal.SIG_IGN)\n"
        f"        {_HANG}\n"
        "os._exit(0)",
        limits=_FORKS, outcomes=("EXITED",),
    ),
    Attack(
        "leaves children that compute", SWEPT,
        "for _ in range(3):\n"
        "    if os.fork() == 0:\n"
        "        while True: pass\n"
        "return said('left them')",
        limits=_FORKS, says=r"left them",
    ),
    Attack(
        "leaves zombies", SWEPT,
        "for _ in range(6):\n    if os.fork() == 0: os._exit(0)\n"
        "time.sleep(0.1)\nreturn said(attempt(os.fork)[:12])",
        limits={"max_processes": 6}, says=r"refused: Blo",
    ),
    Attack(
        "a child that keeps the socket while its parent ends", SWEPT,
        f"if os.fork() == 0:\n    {_HANG.replace('            ', '        ')}\nos._exit(0)",
        limits=_FORKS, outcomes=("EXITED",),
    ),
    Attack(
        "threads where it may not", COUNTED,
        "import threading\nreturn said(attempt(threading.Thread(target=print).start))",
        says=r"refused: RuntimeError",
    ),
    Attack(
        "a bomb of threads", COUNTED,
        "import threading\n"
        "made = 0\n"
        "try:\n"
        "    while True:\n"
        "        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "        made += 1\n"
        "except RuntimeError:\n    return said(made)",
        limits=_FORKS, says=r"[78]",
    ),
    Attack(
        "ends itself from a thread", COUNTED,
        "import threading\n"
        "threading.Thread(target=lambda: os._exit(1)).start()\ntime.sleep(20)",
        limits=_FORKS, outcomes=("EXITED",),
    ),
    *(
        Attack(
            f"signals {whom}", OTHERS,
            f"return said(attempt(os.kill, {pid}, 9))",
            limits=_FORKS, says=_EPERM,
        )
        for whom, pid in {
            "everybody": -1, "init": 1, "its parent": "os.getppid()", "its group": 0,
            "itself": "os.getpid()", "a neighbour": "os.getpid() - 1",
        }.items()
    ),
    Attack(
        "looks for other processes by signal 0", OTHERS,
        "return said({attempt(os.kill, pid, 0) for pid in range(1, 400)})",
        says=rf"\{{'{_EPERM}'\}}",
    ),
    Attack(
        "aborts another process", OTHERS,
        "return said([kernel(234, 131, 1, 1, 6), kernel(200, 130, 1, 6)])",
        says=r"\['refused: EPERM', 'refused: EPERM'\]",
    ),
    Attack(
        "signals with a value", OTHERS,
        "return said([kernel(129, 138, 1, 9, 0), kernel(297, 240, 1, 1, 9, 0),\n"
        "             kernel(424, 424, 3, 9, 0, 0)])",
        says=r"\['refused: EPERM', 'refused: EPERM', 'refused: EPERM'\]",
    ),
    Attack(
        "waits for processes that are not its own", OTHERS,
        "return said(attempt(os.waitpid, 1, 0))",
        says=r"refused: ChildProcessError ECHILD",
    ),
    Attack(
        "kills itself", BLAME,
        "import signal\nreturn said(attempt(signal.raise_signal, 9))",
        says=_EPERM,
    ),
    Attack(
        "stops itself", BLAME,
        "import signal\nreturn said([attempt(signal.raise_signal, n) for n in (19, 20)])",
        says=rf"\['{_EPERM}', '{_EPERM}'\]",
    ),
    Attack(
        "kills a thread of its own", BLAME,
        "import signal, threading\n"
        "return said(attempt(signal.pthread_kill, threading.get_ident(), 9))",
        says=_EPERM,
    ),
    *(
        Attack(
            f"a signal of its own choice at input, with {n} processes", BLAME, _DIES_OF_INPUT,
            limits={"max_processes": n}, says=rf"\['{_EPERM}'\]",
        )
        for n in (1, 4)
    ),
    Attack(
        "a lease on a file", BLAME,
        "import fcntl\nfd = os.open('/tmp/x', os.O_CREAT)\n"
        "return said(attempt(fcntl.fcntl, fd, 1024, 0))",
        says=_EPERM,
    ),
    Attack(
        "a watch on a folder", BLAME,
        "import fcntl\n"
        "return said(attempt(fcntl.fcntl, os.open('/tmp', os.O_RDONLY), fcntl.F_NOTIFY, 4))",
        says=_EPERM,
    ),
    *(
        Attack(
            f"a child whose end {what}", BLAME,
            _CLONE.format(flags=flags), limits=_FORKS, says=r"-1 EPERM",
        )
        for what, flags in {
            "kills": 9, "stops": 19, "is the zygote's business": 0x8000 | 17,
            "is traced by the zygote": 0x2000 | 17,
        }.items()
    ),
    Attack(
        "aborts", BLAME, "os.abort()", outcomes=("SIGNALED",), signal=6,
    ),
    Attack(
        "dumps core", BLAME,
        "import resource\n"
        "assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)\nos.abort()",
        outcomes=("SIGNALED",), signal=6,
    ),
    Attack(
        "ends as if it had been asked to", BLAME, "os._exit(0)", outcomes=("EXITED",),
    ),
    Attack(
        "ignores every signal and loops", SWEPT,
        "import signal\n"
        "for number in range(1, 65):\n    attempt(signal.signal, number, signal.SIG_IGN)\n"
        "while True:\n    try: time.sleep(0.01)\n    except BaseException: pass",
        limits={"step_timeout_s": 0.5}, outcomes=("TIME_LIMIT",), limit="step_timeout_s",
    ),
    Attack(
        "blocks every signal and sleeps", SWEPT,
        "import signal\nsignal.pthread_sigmask(signal.SIG_SETMASK, range(1, 65))\n"
        "time.sleep(60)",
        limits={"step_timeout_s": 0.5}, outcomes=("TIME_LIMIT",), limit="step_timeout_s",
    ),
    Attack(
        "an alarm that nobody handles", BLAME,
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\ntime.sleep(10)",
        outcomes=("SIGNALED",), signal=14,
    ),
    Attack(
        "an alarm that rings between its steps", SWEPT,
        "import signal\n"
        "signal.signal(signal.SIGALRM, lambda *_: sum(range(10_000)))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\nreturn said('ringing')",
        limits={"cpu_time_s": 2}, steps=2, says=r"ringing",
    ),
    Attack(
        "an alarm whose handler raises into the worker", SWEPT,
        "import signal\n"
        "def handler(*_): raise SystemExit\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.02)\n"
        "if json.loads(action)['index']: time.sleep(0.2)\nreturn said('x')",
        steps=2, outcomes=("EXITED", "PROGRAM_ERROR"),
    ),
    Attack(
        "a better priority", PRIORITY,
        "return said([attempt(os.nice, -5), attempt(os.nice, 5)])",
        says=rf"\['{_EPERM}', '{_EPERM}'\]",
    ),
    Attack(
        "real time", PRIORITY,
        "return said(attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)))",
        says=_EPERM,
    ),
    Attack(
        "a processor of its own", PRIORITY,
        "return said(attempt(os.sched_setaffinity, 0, {0}))",
        says=_EPERM,
    ),
)  # fmt: skip
