"""Attacks on the frame protocol, and by what programs return."""

from __future__ import annotations

from tests.security.attack import Attack, indented

FRAMES = "a frame that is none ends the episode, and gives no result"
ONE_ANSWER = "each request has one answer, of its own process"
FINITE = "a reward is finite, or there is none"
TEXT = "what a program returns is text and JSON, whatever it is"

_VIOLATES = ("PROTOCOL_VIOLATION",)
_WAIT = "\ntime.sleep(20)"


def _forges(name: str, step: str, **limits: float) -> Attack:
    return Attack(
        name, FRAMES, step + _WAIT, limits={"step_timeout_s": 15, **limits},
        outcomes=_VIOLATES, within_s=8,
    )  # fmt: skip


def _afterwards(name: str, step: str) -> Attack:
    """Says what was not asked for, after a first answer that may stand."""
    return Attack(
        name, ONE_ANSWER, step + _WAIT, limits={"step_timeout_s": 15}, steps=2, pause_s=0.5,
        outcomes=_VIOLATES, within_s=8,
    )  # fmt: skip


def _returns(name: str, step: str, says: str) -> Attack:
    return Attack(name, TEXT, step, says=says)


def _breaks(name: str, step: str, *outcomes: str) -> Attack:
    return Attack(name, TEXT, step, outcomes=outcomes or ("PROGRAM_ERROR",))


def _rewards(name: str, reward: str, *outcomes: str, before: str = "") -> Attack:
    step = f"{before}\nreturn '', {reward}, False, False, {{}}"
    return Attack(name, FINITE, step, outcomes=outcomes or ("PROGRAM_ERROR",))


# Infos that are no JSON object that a client could read and write again.
_INFOS = {
    "an array": b"[]",
    "half an object": b"{",
    "NaN": b'{"x": NaN}',
    "a number of many digits": b'{"x": ' + b"9" * 5_000 + b"}",
    "nesting": b"[" * 20_000,
    "an escaped surrogate": b'{"x": "\\ud800"}',
    "a surrogate": b'{"x": "\xed\xa0\x80"}',
    "UTF-16": '{"x": 1}'.encode("utf-16"),
    "a zero byte": b'{"x": 1}\x00',
}

_HOSTILE_CLASS = """
class {name}({base}):
    def _attack(self, *a, **k): os._exit(9)
    __float__ = __index__ = __int__ = __str__ = __repr__ = __format__ = __bool__ = _attack
    __eq__ = __hash__ = __len__ = __iter__ = __getitem__ = __contains__ = __reduce_ex__ = _attack
    encode = items = keys = values = get = tolist = _attack
"""


def _hostile(base: str) -> str:
    return _HOSTILE_CLASS.format(name="Hostile", base=base)


_SHAPED = """
class ShapedEnv{bases}:
    def reset(self, seed=None):
        return "go", {{}}
{step}
"""


def _shaped(name: str, step: str, *outcomes: str, says: str = "", bases: str = "") -> Attack:
    source = _SHAPED.format(bases=bases, step="\n".join("    " + s for s in step.splitlines()))
    return Attack(name, TEXT, source=source, says=says, outcomes=outcomes)


ATTACKS = (
    # -- frames that are none
    _forges("garbage", "os.write(3, b'\\x00garbage')"),
    _forges("a fragment of another kind", "os.write(3, b'\\x02' + answer())"),
    _forges("a frame cut short", "os.write(3, b'\\x00' + answer(observation=b'seen')[:-1])"),
    _forges("a frame with a byte too many", "send(answer(observation=b'seen') + b'x')"),
    _forges(
        "a frame longer than a fragment may be",
        "import struct\n"
        "head = answer(observation=bytes(60_000 - len(answer())))\n"
        "os.write(3, b'\\x00' + head + bytes(10_000))",
        max_observation_bytes=100_000,
    ),
    _forges("a full fragment and never another", "os.write(3, b'\\x01' + bytes(60_000))\n"
            "os.close(3)"),
    _forges("an empty datagram", "os.write(3, b'')"),
    _forges("closes its socket", "os.closerange(0, 64)"),
    _forges("writes to every descriptor", "for fd in range(64): attempt(os.write, fd, b'x' * 9)"),
    _forges("tiny fragments without end", "while True: os.write(3, b'\\x01')"),
    _forges(
        "tiny fragments after a full one",
        "os.write(3, b'\\x01' + bytes(60_000))\nwhile True: os.write(3, b'\\x01')",
    ),
    _forges("a flood of frames", "while True: os.write(3, b'\\x00' + bytes(40))"),
    _forges(
        "a message without end", "while True: os.write(3, b'\\x01' + bytes(60_000))"
    ),
    _forges("lengths that do not add up",
            "send(struct.pack('<BIBBdQIII', 3, 3, 1, 0, 1.0, 0, 7, 0, 0))"),
    _forges("lengths past the end of memory",
            "send(struct.pack('<BIBBdQIII', 3, 3, 1, 0, 1.0, 0, *[2**32 - 1] * 3))"),
    _forges("an outcome that a process cannot report", "send(answer(outcome=5))"),
    _forges("an outcome that is none", "send(answer(outcome=0))"),
    _forges("flags that are none", "send(answer(flags=255))"),
    _forges("an observation that is no text", "send(answer(observation=b'\\xff\\xfe'))"),
    _forges("an observation of half a character", "send(answer(observation=b'\\xf0\\x9f\\x92'))"),
    _forges("an observation over its limit", "send(answer(observation=b'x' * 2_000))",
            max_observation_bytes=1_000),
    _forges("an info over its limit",
            "send(answer(info=b'{\"x\": \"' + b'y' * 2_000 + b'\"}'))", max_info_bytes=1_000),
    _forges("an extra over its bound", "send(answer(extra=b' ' * (256 * 1024 + 1)))"),
    *(
        _forges(f"an info that is {what}", f"send(answer(info={info!r}))")
        for what, info in _INFOS.items()
    ),
    # -- answers that were not asked for
    _forges("an answer to another request", "send(answer(request=99))"),
    _forges("an answer to the request before", "send(answer(request=2))"),
    _forges("an answer of another kind", "send(answer(op=2))"),
    _forges("an answer as if it were another episode's", "send(answer(op=6, request=1))"),
    _afterwards("answers twice", "send(answer())\nsend(answer())"),
    _afterwards("answers before it is asked", "send(answer())\nsend(answer(request=4))"),
    _afterwards(
        "half an answer that nobody asked for",
        "send(answer())\nos.write(3, b'\\x01' + bytes(60_000))",
    ),
    _afterwards("ends its socket after its answer", "send(answer())\nos.write(3, b'')"),
    Attack(
        "answers itself, and lets the worker answer too", ONE_ANSWER,
        "send(answer(reward=1.0))\nreturn said('honest')",
        steps=2, outcomes=_VIOLATES,
    ),
    Attack(
        "answers from two processes", ONE_ANSWER,
        "if os.fork() == 0:\n    send(answer(reward=1.0))\n    os._exit(0)\n"
        "os.wait()\nreturn said('honest')",
        limits={"max_processes": 4}, steps=2, outcomes=_VIOLATES,
    ),
    Attack(
        "answers and ends at once", ONE_ANSWER, "send(answer(observation=b'bye'))\nos._exit(0)",
        says=r"bye",
    ),
    # -- rewards
    _forges("a frame whose reward is NaN", "send(answer(reward=float('nan')))"),
    _forges("a frame whose reward is infinite", "send(answer(reward=float('-inf')))"),
    _rewards("NaN", "float('nan')"),
    _rewards("infinity", "float('inf')"),
    _rewards("an integer that no float holds", "10**400"),
    _rewards("a text that is infinite", "'inf'"),
    _rewards("a text", "'much'"),
    _rewards("nothing", "None"),
    _rewards("a complex number", "1j"),
    _rewards("a list", "[1.0]"),
    _rewards("a decimal NaN", "__import__('decimal').Decimal('nan')"),
    _rewards("a float whose __float__ attacks", "Hostile(1)", "EXITED", before=_hostile("float")),
    _rewards("an integer whose __float__ attacks", "Hostile(1)", "EXITED", before=_hostile("int")),
    _rewards(
        "a float whose __float__ is infinite", "F(1)",
        before="class F(float):\n    def __float__(self): return float('inf')",
    ),
    _rewards(
        "a float that is no float", "F(1)",
        before="class F(float):\n    def __float__(self): return 'much'",
    ),
    _rewards(
        "an object that says it is a float", "F()",
        before="class F:\n    __class__ = float",
    ),
    # -- what programs return
    _returns("lone surrogates", "return said('a\\ud800b')", r"a\?b"),
    _returns("zero bytes and controls", "return said('a\\x00\\x1b[2J')", "a\x00\x1b\\[2J"),
    _returns("bytes", "return b'\\xff', 0.0, False, False, {}", r".+"),
    _returns(
        "a text that attacks when it is encoded",
        _hostile("str") + "return Hostile('fine'), 0.0, False, False, {}", r"fine",
    ),
    _breaks(
        "an object that attacks when it is shown",
        _hostile("object") + "return Hostile(), 0.0, False, False, {}", "EXITED",
    ),
    _breaks(
        "an observation that says it is text",
        "class S:\n    __class__ = str\nreturn S(), 0.0, False, False, {}",
    ),
    _breaks(
        "an info that attacks when it is compared",
        _hostile("dict") + "return '', 0.0, False, False, Hostile(x=1)", "EXITED",
    ),
    _breaks("an info that is none", "return '', 0.0, False, False, [1]"),
    _breaks(
        "an info whose keys attack",
        "class K(str):\n    def __str__(self): os._exit(9)\n    def __repr__(self): os._exit(9)\n"
        "class K2:\n    def __str__(self): os._exit(9)\n"
        "return '', 0.0, False, False, {K('a'): 1, K2(): 2}", "EXITED",
    ),
    _returns(
        "an info of NaN and infinity",
        "return 'x', 0.0, False, False, {'a': float('nan'), 'b': [float('inf')]}", r"x",
    ),
    _returns(
        "an info of texts with surrogates",
        "return 'x', 0.0, False, False, {'\\udc00': '\\ud800'}", r"x",
    ),
    _breaks(
        "an info that grows while it is read",
        "class Grows(dict):\n"
        "    def items(self):\n"
        "        while True: yield 'x' * 9, 1\n"
        "class L(list):\n"
        "    def __iter__(self):\n"
        "        while True: yield 'x' * 1000\n"
        "return '', 0.0, False, False, {'a': L()}", "MEMORY_LIMIT", "TIME_LIMIT",
    ),
    _breaks("a step of nothing", "return None"),
    _breaks("a step of six", "return '', 0.0, False, False, {}, 1"),
    _breaks(
        "a tuple that lies about its length",
        "class T(tuple):\n    def __len__(self): return 5\nreturn T((1,))",
    ),
    _breaks(
        "flags that attack when they are asked",
        "class B:\n    def __bool__(self): os._exit(9)\nreturn '', 0.0, B(), False, {}", "EXITED",
    ),
    _breaks(
        "an exception that attacks when it is shown",
        "class E(Exception):\n    def __str__(self): raise SystemExit\n"
        "    __repr__ = __str__\nraise E",
    ),
    _breaks(
        "an exception that exits when it is shown",
        "class E(Exception):\n    def __str__(self): os._exit(9)\nraise E", "EXITED",
    ),
    _breaks(
        "an exception whose class lies about its name",
        "class M(type):\n    __name__ = property(lambda self: os._exit(9))\n"
        "class E(Exception, metaclass=M): pass\nraise E", "EXITED", "PROGRAM_ERROR",
    ),
    _breaks(
        "an exception whose message is no text",
        "class E(Exception):\n    def __str__(self): return 5\nraise E",
    ),
    _breaks(
        "an OSError whose number attacks",
        "class N(int):\n    def __eq__(self, o): os._exit(9)\n    __hash__ = int.__hash__\n"
        "raise OSError(N(28), 'x')", "EXITED",
    ),
    _breaks("SystemExit", "sys.exit(0)"),
    _breaks("KeyboardInterrupt", "raise KeyboardInterrupt"),
    _breaks("GeneratorExit", "raise GeneratorExit"),
    _breaks("StopIteration", "raise StopIteration"),
    _breaks(
        "an exception without end",
        "def f(e):\n    try: raise e\n    except BaseException as x:\n        f(x)\n"
        "f(ValueError())",
    ),
    _shaped("a step that is a generator", "def step(self, action):\n    yield 1", "PROGRAM_ERROR"),
    _shaped("a step that is a coroutine", "async def step(self, action):\n    return 1",
            "PROGRAM_ERROR"),
    _shaped("a step that is a property that attacks",
            "@property\ndef step(self): os._exit(9)", "PROGRAM_ERROR", "EXITED"),
    _shaped("a step that is a class",
            "class step:\n    def __init__(self, *a): pass", "PROGRAM_ERROR"),
    _shaped("a class that refuses to be looked at",
            "def step(self, action): return said('x')\n"
            "def __getattribute__(self, name): os._exit(9)", "EXITED"),
    Attack(
        "a metaclass that attacks when it is called", TEXT,
        source="class M(type):\n    def __call__(cls, *a, **k): os._exit(9)\n"
        + _SHAPED.format(bases="(metaclass=M)", step="    def step(self, action): return 1"),
        outcomes=("EXITED",),
    ),
    Attack(
        "a metaclass that attacks when it is compared", TEXT,
        source="class M(type):\n    def __instancecheck__(c, o): os._exit(9)\n"
        "    def __subclasscheck__(c, o): os._exit(9)\n"
        "    __eq__ = __hash__ = lambda *a: os._exit(9)\n"
        + _SHAPED.format(
            bases="(metaclass=M)", step=indented("def step(self, action): return said('x')")[4:]
        ),
        outcomes=("EXITED", "PROGRAM_ERROR"),
    ),
)  # fmt: skip
