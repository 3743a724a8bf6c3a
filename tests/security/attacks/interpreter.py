"""Attacks on the interpreter and on the worker, which share the program's process.

Nothing in that process is protected from the program: it can rewrite the worker and say what
it likes about its own episode, within the contract. So these attacks either harm their own
episode alone, or come to a result that the program could have returned in the first place.
"""

from __future__ import annotations

from tests.security.attack import Attack

OWN_EPISODE = "a program can change its own process alone"
ALIVE = "an interpreter that crashes is an outcome"

ATTACKS = (
    # -- the worker, rewritten
    Attack(
        "finds the worker among all objects, and takes its socket away", OWN_EPISODE,
        "import gc, types\n"
        "for o in gc.get_objects():\n"
        "    if type(o).__name__ == 'EpisodeServer': o._fd = 0\n"
        "find_worker()._fd = 0\nreturn said('not silent')",
        steps=2, says=r"not silent",
    ),
    Attack(
        "lifts the worker's own bounds", OWN_EPISODE,
        "server = find_worker()\n"
        "server._max_observation_bytes = 1 << 30\n"
        "return said('x' * 100_000)",
        limits={"max_observation_bytes": 1_000}, outcomes=("PROTOCOL_VIOLATION",),
    ),
    Attack(
        "replaces what packs a reply", OWN_EPISODE,
        "from worker import frames\n"
        "frames._REPLY = __import__('struct').Struct('<BIBBdQIIIxxxx')\n"
        "return 'x', 0.0, False, False, {'told': 'in the long form'}",
        outcomes=("PROTOCOL_VIOLATION",),
    ),
    Attack(
        "replaces what writes a reply by what writes it twice", OWN_EPISODE,
        "real = os.write\n"
        "os.write = lambda fd, data: (real(fd, data), real(fd, data))[0]\nreturn said('once')",
        steps=2, says=r"once",
    ),
    Attack(
        "replaces the modules that the worker uses", OWN_EPISODE,
        "for name in ('json', 'struct', 'math', 'os', 'traceback', 'worker.frames'):\n"
        "    sys.modules[name] = None\n"
        "return said('gone')",
        steps=2, says=r"gone",
    ),
    Attack(
        "replaces the built-in functions", OWN_EPISODE,
        "import builtins\n"
        "for name in ('len', 'isinstance', 'type', 'callable', 'bool', 'float', 'str'):\n"
        "    setattr(builtins, name, lambda *a: os._exit(9))\n"
        "return 'x', 0.0, False, False, {}",
        outcomes=("EXITED",),
    ),
    Attack(
        "takes the built-in functions away", OWN_EPISODE,
        "import builtins\nbuiltins.__dict__.clear()",
        outcomes=("EXITED", "PROGRAM_ERROR", "SIGNALED"),
    ),
    Attack(
        "makes every finite number finite by its own word", OWN_EPISODE,
        "import math\nmath.isfinite = lambda x: True\n"
        "return '', float('nan'), False, False, {}",
        outcomes=("PROTOCOL_VIOLATION",),
    ),
    Attack(
        "writes a float over in memory", OWN_EPISODE,
        "x = 1.5\n"
        "ctypes.c_double.from_address(id(x) + 16).value = float('inf')\n"
        "return '', x, False, False, {}",
        outcomes=("PROGRAM_ERROR",),
    ),
    Attack(
        "writes an integer of all integers over in memory", ALIVE,
        "ctypes.memset(id(0), 255, 32)\nreturn said(0 + 1)",
        outcomes=("SIGNALED", "PROGRAM_ERROR", "EXITED", "TIME_LIMIT", "PROTOCOL_VIOLATION",
                  "MEMORY_LIMIT"),
        limits={"step_timeout_s": 3},
    ),
    Attack(
        "an import hook that answers for every module", OWN_EPISODE,
        "class Hook:\n    def find_spec(self, *a): os._exit(9)\n"
        "sys.meta_path.insert(0, Hook())\nsys.path_hooks.insert(0, lambda p: os._exit(9))\n"
        "return said('hooked')",
        steps=2, says=r"hooked",
    ),
    Attack(
        "a path of its own in front of the library's", OWN_EPISODE,
        "with open('/tmp/quopri.py', 'w') as f: f.write('where = 1')\n"
        "sys.path.insert(0, '/tmp')\nimport quopri\nreturn said(quopri.where)",
        says=r"1",
    ),
    Attack(
        "functions to be called at the end", OWN_EPISODE,
        "import atexit\natexit.register(lambda: send(answer(reward=1.0)))\nsys.exit()",
        outcomes=("PROGRAM_ERROR",),
    ),
    Attack(
        "prints into a stream of its own", OWN_EPISODE,
        "class Stream:\n    def write(self, x): os._exit(9)\n    flush = write\n"
        "sys.stdout = sys.stderr = Stream()\nraise ValueError('x')",
        outcomes=("PROGRAM_ERROR",), exception="ValueError",
    ),
    Attack(
        "traces every line", OWN_EPISODE,
        "def trace(frame, event, argument):\n"
        "    if frame.f_code.co_name == 'pack_reply': os._exit(9)\n    return trace\n"
        "sys.settrace(trace)\nreturn 'x', 0.0, False, False, {'told': 'in the long form'}",
        outcomes=("EXITED",),
    ),
    Attack(
        "watches every call and raises", OWN_EPISODE,
        "def profile(frame, event, argument): raise KeyboardInterrupt\n"
        "sys.setprofile(profile)\nreturn said('x')",
        outcomes=("PROGRAM_ERROR", "EXITED"),
    ),
    Attack(
        "an audit hook that raises", OWN_EPISODE,
        "def hook(event, arguments):\n    raise SystemExit\n"
        "sys.addaudithook(hook)\nreturn said('x')",
        steps=2, outcomes=("EXITED", "PROGRAM_ERROR"),
    ),
    Attack(
        "an object that attacks at its end", OWN_EPISODE,
        "class D:\n    def __del__(self): D(); D()\n"
        "sys.setrecursionlimit(10**9)\nD()\nreturn said('x')",
        outcomes=("SIGNALED", "PROGRAM_ERROR", "MEMORY_LIMIT", "TIME_LIMIT", "OUTPUT_LIMIT"),
        limits={"step_timeout_s": 3},
    ),
    Attack(
        "an object that lives again at its end", OWN_EPISODE,
        "class D:\n    def __del__(self): kept.append(self)\n"
        "kept = []\nfor _ in range(1000): D()\nkept.clear()\nreturn said(len(kept))",
        says=r"0",
    ),
    Attack(
        "ends the worker's loop by its own exception", OWN_EPISODE,
        "ctypes.pythonapi.PyThreadState_SetAsyncExc(\n"
        "    ctypes.c_ulong(__import__('threading').get_ident()), ctypes.py_object(SystemExit))\n"
        "return said('x')",
        steps=2, outcomes=("PROGRAM_ERROR", "EXITED"),
    ),
    # -- the interpreter, crashed
    Attack("leaves without a word", ALIVE, "os._exit(3)", outcomes=("EXITED",)),
    Attack(
        "reads no memory", ALIVE, "ctypes.string_at(0)", outcomes=("SIGNALED",), signal=11
    ),
    Attack(
        "writes to code", ALIVE,
        "ctypes.memset(ctypes.cast(libc.getpid, ctypes.c_void_p).value, 0, 64)",
        outcomes=("SIGNALED",), signal=11,
    ),
    Attack(
        "bad bytecode", ALIVE,
        "f = lambda: 0\nf.__code__ = f.__code__.replace(co_code=b'\\xff' * 64)\nf()",
        outcomes=("SIGNALED", "PROGRAM_ERROR"),
    ),
    Attack(
        "bytecode that reads past its constants", ALIVE,
        "f = lambda: 0\n"
        "f.__code__ = f.__code__.replace(co_code=bytes([151, 0, 100, 255, 83, 0]))\n"
        "repr(f())",
        outcomes=("SIGNALED", "PROGRAM_ERROR", "MEMORY_LIMIT", "TIME_LIMIT", "COMPLETED"),
        limits={"step_timeout_s": 3},
    ),
    Attack(
        "marshalled code that is none", ALIVE,
        "import marshal\n"
        "for i in range(256):\n    attempt(marshal.loads, bytes([i]) + b'\\xff' * 64)\n"
        "return said('x')",
        outcomes=("SIGNALED", "PROGRAM_ERROR", "COMPLETED", "MEMORY_LIMIT"),
    ),
    Attack(
        "a pickle that runs what it holds", ALIVE,
        "import pickle\n"
        "class P:\n    def __reduce__(self): return os._exit, (7,)\n"
        "pickle.loads(pickle.dumps(P()))",
        outcomes=("EXITED",),
    ),
    Attack(
        "a fatal error", ALIVE,
        "ctypes.pythonapi.Py_FatalError(b'x')", outcomes=("SIGNALED",), signal=6,
    ),
    Attack(
        "ends the interpreter under itself", ALIVE,
        "ctypes.pythonapi.Py_FinalizeEx()\nreturn said('x')",
        outcomes=("SIGNALED", "EXITED", "PROGRAM_ERROR"),
    ),
    Attack(
        "gives the lock of the interpreter away", ALIVE,
        "ctypes.PyDLL(None).PyEval_SaveThread()\nreturn said('x')",
        outcomes=("SIGNALED", "EXITED", "PROGRAM_ERROR"),
    ),
    Attack(
        "jumps to nowhere", ALIVE,
        "ctypes.CFUNCTYPE(None)(0x1234)()", outcomes=("SIGNALED",), signal=11,
    ),
    Attack(
        "a stack that is used up in C", ALIVE,
        "sys.setrecursionlimit(10**9)\n"
        "class R:\n    def __repr__(self): return repr(self)\nrepr(R())",
        outcomes=("SIGNALED", "PROGRAM_ERROR", "MEMORY_LIMIT"),
    ),
)  # fmt: skip
