"""What no backend keeps from a program: SECURITY.md says so, and these show that it is true.

Each says what it would have to say if the promise were kept.
"""

from __future__ import annotations

from tests.security.attack import Attack

UNSEEN = "an episode cannot tell that others run"
MACHINE = "the kernel and the machine cannot be recognised"
IDLE = "no computing between steps"
TOGETHER = "an episode's processes share one bound of memory"
HONEST = "a reward is deserved"
WORKER = "the worker in a program's own process cannot be rewritten"
OWN_USER = "each episode has a user id of its own"

ATTACKS = (
    Attack(
        "is of no group and no user of another", OWN_USER,
        "return said(f'{os.getgroups()} {os.getuid() > 0} {os.getgid() > 0}')",
        says=r"\[\] True True",
    ),
    Attack(
        "counts its neighbours by asking for their sessions", UNSEEN,
        "return said(sum(attempt(os.getsid, pid).startswith('went')\n"
        "                for pid in range(2, 30_000) if pid != os.getpid()))",
        says=r"0",
    ),
    Attack(
        "asks the kernel who it is", MACHINE,
        "return said(os.uname().release)", says=r"",
    ),
    Attack(
        "asks how much memory the machine has", MACHINE,
        "words = (ctypes.c_ulong * 32)()\n"
        "libc.sysinfo(ctypes.byref(words))\nreturn said(words[4] > 0)",
        says=r"False",
    ),
    Attack(
        "computes between its steps, in a signal's handler", IDLE,
        "import signal\n"
        "def handler(number, frame):\n"
        "    while frame is not None:\n"
        "        if frame.f_code.co_name == 'step': return\n"
        "        frame = frame.f_back\n"
        "    self.stolen = True\n"
        "if not hasattr(self, 'stolen'):\n"
        "    self.stolen = False\n"
        "    signal.signal(signal.SIGALRM, handler)\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)\n"
        "return said(self.stolen)",
        steps=3, says=r"False",
    ),
    Attack(
        "takes its memory several times, in children", TOGETHER,
        "pipes = []\n"
        "for _ in range(3):\n"
        "    r, w = os.pipe()\n"
        "    if os.fork() == 0:\n"
        "        held = b'x' * (48 << 20)\n        os.write(w, b'1')\n        time.sleep(60)\n"
        "    os.close(w)\n    pipes.append(r)\n"
        "held = b'x' * (48 << 20)\n"
        "return said('went through: ' + str(b''.join(os.read(r, 1) for r in pipes)))",
        limits={"max_processes": 8, "memory_bytes": 64 << 20},
        says=r"refused",
    ),
    Attack(
        "pays itself for nothing", HONEST,
        "return 'rich', 1e308, True, False, {}", says=r"",
    ),
    Attack(
        "finds the worker by walking frames, and changes what it answers", WORKER,
        "find_worker()._environment.step = lambda action: ('forged', 1e6, 0, {})\n"
        "return said('unchanged')",
        steps=2, says=r"unchanged",
    ),
)  # fmt: skip
