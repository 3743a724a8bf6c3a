"""Attacks on what is bounded: memory, CPU, time, descriptors, output."""

from __future__ import annotations

from tests.security.attack import Attack, indented

MEMORY = "memory of a process is bounded"
TIME = "CPU and wall time are bounded"
OUTPUT = "output is bounded"
DESCRIPTORS = "descriptors and what hangs on them are bounded"

_MIB = 1 << 20
_SMALL = {"memory_bytes": 64 * _MIB}
_SHORT = {"step_timeout_s": 0.7}
_OF_MEMORY = ("MEMORY_LIMIT",)


def _over_memory(name: str, step: str) -> Attack:
    return Attack(
        name, MEMORY, step, limits=_SMALL, outcomes=_OF_MEMORY, limit="memory_bytes"
    )  # fmt: skip


def _over_time(name: str, step: str) -> Attack:
    return Attack(
        name, TIME, step, limits=_SHORT, outcomes=("TIME_LIMIT",), limit="step_timeout_s"
    )  # fmt: skip


_MAPPED = """
import mmap
try:
    kept = []
    while True: kept.append(mmap.mmap(-1, 1 << 20, {flags}))
except (OSError, MemoryError) as error:
    size = len(kept)
    kept.clear()
    return said(f"{{size < 100}} {{type(error).__name__}}")
"""

_LOADING = """
{top}
class LoadingEnv:
    def reset(self, seed=None):
        return "go", {{}}
    def step(self, action):
        return "x", 0.0, False, False, {{}}
"""

ATTACKS = (
    _over_memory("memory in one jump", "x = bytearray(1 << 30)"),
    _over_memory("memory in steps", "x = []\nwhile True: x.append(bytearray(1 << 20))"),
    _over_memory("a list that doubles", "x = [0]\nwhile True: x += x"),
    _over_memory("a list of a trillion", "list(range(10**12))"),
    _over_memory("a text of a terabyte", "'a' * 10**12"),
    _over_memory("a format of a terabyte", "'{:1000000000000}'.format(1)"),
    _over_memory(
        "a zlib bomb",
        "import zlib\nbomb = zlib.compress(bytes(1 << 20))\n"
        "packer = zlib.compressobj(9)\n"
        "data = b''.join(packer.compress(bytes(1 << 20)) for _ in range(512)) + packer.flush()\n"
        "zlib.decompress(data)",
    ),
    _over_memory(
        "a bomb in a bomb",
        "import bz2, lzma\n"
        "packer = lzma.LZMACompressor(preset=0)\n"
        "data = b''.join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()\n"
        "lzma.decompress(lzma.decompress(lzma.compress(data, preset=0)))",
    ),
    _over_memory(
        "a billion laughs",
        "x = ['lol'] * 10\nfor _ in range(9): x = [''.join(x)] * 10\n''.join(x * 10**9)",
    ),
    _over_memory("a huge power", "1 << 10**10"),
    _over_memory(
        "a cross product", "import itertools\nlist(itertools.product(range(99), repeat=9))"
    ),
    Attack(
        "private mappings", MEMORY, _MAPPED.format(flags="mmap.MAP_PRIVATE"), limits=_SMALL,
        says=r"True (OSError|MemoryError)",
    ),
    Attack(
        "shared mappings, which no heap counts", MEMORY, _MAPPED.format(flags="mmap.MAP_SHARED"),
        limits=_SMALL, says=r"True (OSError|MemoryError)",
    ),
    Attack(
        "mappings of a shared device", MEMORY,
        _MAPPED.format(flags="mmap.MAP_PRIVATE").replace("mmap.mmap(-1,", "mmap.mmap(zero,")
        .replace("try:", "zero = os.open('/dev/zero', os.O_RDWR)\ntry:", 1),
        limits=_SMALL, says=r"True (OSError|MemoryError)",
    ),
    Attack(
        "memory behind a descriptor", MEMORY,
        "return said([attempt(os.memfd_create, 'x'),\n"
        "             attempt(open, '/dev/shm/x', 'w')])",
        says=r"\['refused: PermissionError EPERM', 'refused: FileNotFoundError ENOENT'\]",
    ),
    Attack(
        "memory that cannot be swapped", MEMORY,
        "at = ctypes.create_string_buffer(1 << 20)\n"
        "return said(kernel(149, 228, ctypes.addressof(at), 1 << 20))",
        says=r"refused: EPERM",
    ),
    Attack(
        "catches that memory ran out, and goes on", MEMORY,
        "for _ in range(50):\n    attempt(bytearray, 1 << 40)\nreturn said('still here')",
        limits=_SMALL, says=r"still here",
    ),
    Attack(
        "recursion", TIME, "def f(): f()\nf()",
        outcomes=("PROGRAM_ERROR",), exception="RecursionError",
    ),
    Attack(
        "recursion past the end of the stack", TIME,
        "sys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**5): x = [x]\nrepr(x)",
        outcomes=("SIGNALED", "PROGRAM_ERROR", "MEMORY_LIMIT"),
    ),
    Attack(
        "recursion in Python frames without a limit", TIME,
        "sys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
        limits=_SMALL, outcomes=("SIGNALED", "PROGRAM_ERROR", "MEMORY_LIMIT"),
    ),
    _over_time("sleeps", "time.sleep(60)"),
    _over_time("loops", "while True: pass"),
    _over_time(
        "swallows everything and loops",
        "while True:\n    try: time.sleep(0.1)\n    except BaseException: pass",
    ),
    _over_time("waits for input that never comes", "os.read(os.pipe()[0], 1)"),
    _over_time(
        "waits for itself on a lock",
        "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    ),
    _over_time("reads the request that the worker waits for", "os.read(3, 60_001)"),
    _over_time("a power in one instruction", "pow(7, 10**8)"),
    _over_time("a sum in one instruction", "sum(range(10**12))"),
    _over_time("a regular expression that backtracks", "re.match(r'(a+)+$', 'a' * 64 + 'b')"),
    _over_time(
        "a huge integer as text",
        "sys.set_int_max_str_digits(0)\nstr(1 << 20_000_000)",
    ),
    Attack(
        "a huge integer as text, within Python's bound", TIME,
        "str(1 << 20_000_000)",
        outcomes=("PROGRAM_ERROR",), exception="ValueError",
    ),
    _over_time(
        "keys that all collide",
        "m = sys.hash_info.modulus\nx = {i * m: i for i in range(1, 10**6)}",
    ),
    _over_time(
        "a text that is searched in itself",
        "x = 'a' * 10**6\nwhile True: (x * 5).find('b' + x)",
    ),
    Attack(
        "loops until its CPU time is used up", TIME, "while True: pass",
        limits={"step_timeout_s": 20, "cpu_time_s": 1},
        outcomes=("TIME_LIMIT",), limit="cpu_time_s",
    ),
    Attack(
        "handles the signal of its CPU limit", TIME,
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        limits={"step_timeout_s": 20, "cpu_time_s": 1},
        outcomes=("TIME_LIMIT",), limit="cpu_time_s",
    ),
    Attack(
        "loops while it is loaded", TIME,
        source=_LOADING.format(top="while True: pass"),
        limits={"load_timeout_s": 0.7}, outcomes=("TIME_LIMIT",), limit="load_timeout_s",
    ),
    Attack(
        "a source that is nested too deep", TIME,
        source=_LOADING.format(top="x = " + "(" * 5_000 + ")" * 5_000),
        outcomes=("PROGRAM_ERROR", "MEMORY_LIMIT", "SIGNALED"),
    ),
    Attack(
        "a source whose tree is too deep", TIME,
        source=_LOADING.format(top="x = " + "-" * 200_000 + "1"),
        limits={"load_timeout_s": 5},
        outcomes=("PROGRAM_ERROR", "MEMORY_LIMIT", "SIGNALED", "TIME_LIMIT"),
    ),
    Attack(
        "a source that is folded to gigabytes", TIME,
        source=_LOADING.format(top="x = " + "((((1,) * 255,) * 255,) * 255,) * 255 * 9 ** 9 ** 9"),
        limits={"load_timeout_s": 2},
        outcomes=("PROGRAM_ERROR", "MEMORY_LIMIT", "TIME_LIMIT"),
    ),
    Attack(
        "opens files", DESCRIPTORS,
        "x = [open('/dev/null') for _ in range(100)]",
        limits={"max_open_files": 16}, outcomes=("PROGRAM_ERROR",), limit="max_open_files",
    ),
    Attack(
        "pipes full of bytes", DESCRIPTORS,
        "total = 0\n"
        "try:\n"
        "    while True:\n"
        "        w = os.pipe()[1]\n        os.set_blocking(w, False)\n"
        "        total += os.write(w, bytes(1 << 20))\n"
        "except OSError as error:\n"
        "    return said(f'{total <= 16 * 65_536} {errno.errorcode[error.errno]}')",
        limits={"max_open_files": 32}, says=r"True EMFILE",
    ),
    Attack(
        "a pipe of another size", DESCRIPTORS,
        "import fcntl\nreturn said(attempt(fcntl.fcntl, os.pipe()[0], 1031, 1 << 20))",
        says=r"refused: PermissionError EPERM",
    ),
    Attack(
        "watches that watch each other", DESCRIPTORS,
        "import select\nkept = []\n"
        "try:\n"
        "    while True:\n"
        "        kept.append(select.epoll())\n"
        "        for other in kept[:-1]: kept[-1].register(other.fileno())\n"
        "except OSError as error:\n    return said(errno.errorcode[error.errno])",
        says=r"ELOOP|EMFILE|EINVAL",
    ),
    Attack(
        "prints without end", OUTPUT, "while True: print('x' * 1000)",
        limits={"max_output_bytes": 100_000},
        outcomes=("OUTPUT_LIMIT",), limit="max_output_bytes",
    ),
    Attack(
        "prints and swallows", OUTPUT,
        "try:\n    while True: print('x' * 1000)\nexcept BaseException: pass",
        limits={"max_output_bytes": 100_000},
        outcomes=("OUTPUT_LIMIT",), limit="max_output_bytes",
    ),
    Attack(
        "prints past the counter, to the descriptor", OUTPUT,
        "for _ in range(1_000): os.write(1, bytes(1 << 16)); os.write(2, bytes(1 << 16))",
        limits={"max_output_bytes": 100_000}, says=r"survived",
    ),
    Attack(
        "an observation of sixty-four megabytes", OUTPUT,
        "return 'x' * (64 << 20), 0.0, False, False, {}",
        limits={"max_observation_bytes": 1_000}, says=r"x{1000}",
    ),
    Attack(
        "an info of a hundred thousand bytes", OUTPUT,
        "return 'x', 0.0, False, False, {'x': 'y' * 100_000}",
        limits={"max_info_bytes": 1_000}, outcomes=("OUTPUT_LIMIT",), limit="max_info_bytes",
    ),
    Attack(
        "an info that is nested without end", OUTPUT,
        "x = {}\nfor _ in range(100_000): x = {'x': x}\nreturn 'x', 0.0, False, False, x",
        outcomes=("PROGRAM_ERROR", "SIGNALED", "MEMORY_LIMIT"),
    ),
    Attack(
        "an info that holds itself", OUTPUT,
        "x = {}\nx['x'] = x\nreturn 'x', 0.0, False, False, x",
        outcomes=("PROGRAM_ERROR", "SIGNALED", "MEMORY_LIMIT"),
    ),
    Attack(
        "an exception whose message is a megabyte", OUTPUT,
        "raise ValueError('\\ud800' * (1 << 20))",
        outcomes=("PROGRAM_ERROR",), exception="ValueError",
    ),
    Attack(
        "an exception whose name is a megabyte", OUTPUT,
        "raise type('E' * (1 << 20), (Exception,), {})",
        outcomes=("PROGRAM_ERROR", "PROTOCOL_VIOLATION"),
    ),
    Attack(
        "tool schemas of a megabyte", OUTPUT,
        source="class ToolingEnv:\n"
        "    def get_tools(self): return ['x' * (1 << 20)]\n"
        "    def reset(self, seed=None): return 'go', {}\n"
        f"    def step(self, action):\n{indented('return said(1)')}\n",
        outcomes=("PROGRAM_ERROR",),
    ),
)  # fmt: skip
