"""Every reader of bytes and texts that others wrote: it takes them or says why not, no more."""

from __future__ import annotations

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from sandbox_api import _convert
from sandbox_api.errors import InternalError, InvalidRequestError, SandboxError, error_from_item
from sandbox_api.types import Limits
from sandbox_api.v1 import sandbox_pb2 as pb

from designer.completions import CompletionError, read_code, read_hint, read_spec, strip_thinking
from sandbox_server import answers, checks, host_process, oracle
from sandbox_server.authentication import Authenticator, token_sha256
from sandbox_server.config import MAX_LIMITS, ServerConfig, TenantConfig
from sandbox_server.failures import Failure, ProgramFailedError
from sandbox_server.tenants import TenantFileError, read_tenants
from sandbox_server.worker import frames, text
from spadework.untrusted_text import INVISIBLE, short, visible
from tests.fuzz.budget import fuzzed
from tests.fuzz.inputs import JSON, JSON_BYTES, TEXTS, message, replies
from trainer.control_tokens import ControlTokens

_MAX_READ_S = 2.0


def reply_with(**parts: Any) -> frames.Reply:
    whole = frames.Reply(3, 1, 2, False, False, 0.0, 0, "", b"", b"")
    return whole._replace(**parts)


@fuzzed(data=replies() | st.binary(max_size=300), inputs=1_000)
def test_a_reply_is_what_it_says_or_no_frame(data: bytes) -> None:
    try:
        reply = frames.unpack_reply(data)
    except frames.FrameError:
        return
    assert math.isfinite(reply.reward)
    assert reply.outcome in (1, 2, 6, 7)
    assert (
        frames.pack_reply(
            reply.op,
            reply.request_id,
            reply.outcome,
            reply.observation.encode(),
            reply.reward,
            reply.terminated * frames.TERMINATED | reply.truncated * frames.TRUNCATED,
            reply.cut_bytes,
            reply.info,
            reply.extra,
        )
        == data
    )


@fuzzed(data=st.binary(max_size=200), times=st.integers(1, 2_000))
def test_fragments_join_to_their_message(data: bytes, times: int) -> None:
    whole = data * times
    pieces = frames.fragments(whole)
    assert b"".join(piece[1:] for piece in pieces) == whole
    assert all(len(piece) <= frames.MAX_FRAGMENT_BYTES + 1 for piece in pieces)
    assert [piece[:1] for piece in pieces] == [b"\x01"] * (len(pieces) - 1) + [b"\x00"]
    assert frames.split(frames.join(data, whole)) == (data, whole)


@fuzzed(extra=JSON_BYTES, outcome=st.sampled_from([2, 6, 7]))
def test_any_diagnostic_gives_a_failure_that_can_be_sent(extra: bytes, outcome: int) -> None:
    failure = answers.failure_of(reply_with(extra=extra, outcome=outcome))
    assert isinstance(failure, Failure)
    assert failure.outcome in (outcome, pb.OUTCOME_PROTOCOL_VIOLATION)
    told = failure.diagnostic
    assert len(told.SerializeToString()) < 20_000
    assert (told.signal, told.exit_status) == (0, 0)
    assert told.line >= 0


@fuzzed(extra=JSON_BYTES)
def test_tools_are_json_that_clients_read_or_the_programs_failure(extra: bytes) -> None:
    try:
        tools = answers.checked_tools(extra)
    except ProgramFailedError:
        return
    read = _convert.tools_from_json(tools)
    assert isinstance(read, list)
    json.dumps(read, allow_nan=False)


@fuzzed(info=JSON_BYTES | JSON.map(lambda value: json.dumps({"x": value}).encode()))
def test_an_info_that_passes_is_one_that_clients_read_and_write(info: bytes) -> None:
    if answers.info_failure(info) is None:
        read = json.loads(info)
        assert isinstance(read, dict)
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode()


@fuzzed(solution=JSON)
def test_any_solution_is_played_as_texts(solution: Any) -> None:
    for plan in oracle.plans_of(solution, 1_000):
        for action in plan:
            pb.StepItem(action=action)


@fuzzed(options=JSON_BYTES, most=st.integers(0, 300))
def test_options_are_a_dictionary_or_an_invalid_request(options: bytes, most: int) -> None:
    try:
        read = checks.read_options(options, most)
    except InvalidRequestError:
        return
    assert isinstance(json.loads(read), dict)


@fuzzed(limits=message(pb.Limits.DESCRIPTOR))
def test_limits_are_within_bounds_or_an_invalid_request(limits: pb.Limits) -> None:
    try:
        resolved = ServerConfig().resolve_limits(Limits.from_proto(limits))
    except InvalidRequestError:
        return
    for field in pb.Limits.DESCRIPTOR.fields:
        assert 0 < getattr(resolved, field.name) <= getattr(MAX_LIMITS, field.name)
    assert Limits.from_proto(resolved.to_proto()) == resolved


_RESULTS = [
    (_convert.program, pb.RegisterProgramResponse),
    (_convert.episode, pb.ResetResult),
    (lambda m: _convert.step_result("e", m), pb.StepResult),
    (lambda m: _convert.verdict("e", m), pb.Verdict),
    (_convert.server_info, pb.GetServerInfoResponse),
]


@fuzzed(
    made=st.sampled_from(_RESULTS).flatmap(
        lambda pair: message(pair[1].DESCRIPTOR).map(lambda m: (pair[0], m))
    ),
    inputs=300,
)
def test_whatever_a_server_says_a_client_has_a_result_or_its_own_error(made: Any) -> None:
    convert, said = made
    with contextlib.suppress(InternalError):
        convert(said)


@fuzzed(error=message(pb.ItemError.DESCRIPTOR))
def test_any_item_error_is_an_exception_of_the_client(error: pb.ItemError) -> None:
    assert isinstance(error_from_item(error), SandboxError)


@fuzzed(
    ancillary=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.binary(max_size=40)), max_size=3
    )
)
def test_credentials_are_read_whole_or_not_at_all(ancillary: Any) -> None:
    host_process.sender(ancillary)


class Lying(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise ZeroDivisionError


@fuzzed(value=JSON | st.sets(st.integers()) | st.complex_numbers() | TEXTS.map(Lying))
def test_whatever_a_program_returns_becomes_text(value: Any) -> None:
    text.render(value).encode("utf-8", "replace")
    packed = text.info_bytes({"x": value})
    assert answers.info_failure(packed) is None or "\\ud" in repr(value)


@fuzzed(given_text=st.text(), most=st.integers(0, 50))
def test_a_cut_is_at_a_characters_edge(given_text: str, most: int) -> None:
    whole = given_text.encode("utf-8", "replace")
    for kept in (text.cut(given_text, most)[0], answers.cut(given_text, most).encode()):
        assert len(kept) <= most
        kept.decode()
    assert len(text.cut(given_text, most)[0]) + text.cut(given_text, most)[1] == len(whole)


class Space:
    """Of whole numbers, as Gymnasium's Discrete."""

    n, start = 5, 0

    def contains(self, value: Any) -> bool:
        return value in range(5)


@fuzzed(action=TEXTS | st.from_regex(r"\\boxed\{[^}]*\}|[0-9 ]{0,30}"))
def test_an_action_is_a_member_of_its_space_or_invalid(action: str) -> None:
    try:
        assert text.parse_action(action, Space()) in range(5)
    except text.InvalidActionError:
        return


def test_a_number_that_python_refuses_to_read_is_no_action() -> None:
    with pytest.raises(text.InvalidActionError, match="an integer from 0 to 4"):
        text.parse_action("9" * 5_000, Space())


_WRITTEN = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "```python\n", "```\n", "class A:\n", "{", "}", '"a":', "hint:",
         "[", "\n", " ", "x", "~~~\n", "import a\n", "\\", "<thinking>", "\ud800"]
    ),
    max_size=400,
).map("".join)  # fmt: skip


@fuzzed(completion=_WRITTEN | st.text())
def test_a_completion_is_read_or_refused_and_in_time(completion: str) -> None:
    started = time.monotonic()
    strip_thinking(completion)
    read_hint(completion)
    for read in (read_code, read_spec):
        with contextlib.suppress(CompletionError):
            read(completion)  # type: ignore[operator]
    assert time.monotonic() - started < _MAX_READ_S


@fuzzed(header=st.binary(max_size=60) | TEXTS | TEXTS.map(lambda text: f"Bearer {text}"))
def test_no_header_but_the_right_one_is_a_tenants(header: str | bytes) -> None:
    tenant = TenantConfig("a", token_sha256("right"))
    assert not Authenticator([tenant]).may_speak([("authorization", header)])
    assert Authenticator([tenant]).may_speak([("authorization", "Bearer right")])


_TOML = st.lists(
    st.sampled_from(
        ["[tenant.a]\n", "[tenant.b]\n", "[x]\n", f'token_sha256 = "{"0" * 64}"\n', "weight = 1\n",
         "weight = nan\n", "max_episodes = -1\n", "steps_per_s = 1e999\n", "certificate = 'x'\n",
         "tenant = 1\n", "=", "\x00", "'", "[[tenant]]\n", "weight = 99999999999999999999\n"]
    ),
    max_size=6,
).map("".join)  # fmt: skip


@fuzzed(written=_TOML | st.text() | st.binary())
def test_a_tenants_file_is_taken_or_told_what_is_wrong(
    tmp_path: Path, written: str | bytes
) -> None:
    data = written if isinstance(written, bytes) else written.encode("utf-8", "surrogatepass")
    path = tmp_path / "tenants.toml"
    path.write_bytes(data)
    with contextlib.suppress(TenantFileError):
        found = read_tenants(path)
        assert all(tenant.token_sha256 or tenant.certificate for tenant in found)


@fuzzed(
    written=st.lists(
        st.sampled_from(
            ["<|im_end|>", "<|im", "_end|>", "<", "|", ">", "</s>", "x", " ", "</", "s>"]
        )
    ).map("".join)
)
def test_no_text_holds_a_control_token_once_it_is_plain(written: str) -> None:
    plain = ControlTokens.known().plain(written)
    assert ControlTokens.known().plain(plain) == plain
    assert "<|im_end|>" not in plain
    assert "</s>" not in plain
    assert plain.replace(" ", "") == written.replace(" ", "")


@fuzzed(shown=st.text())
def test_what_is_shown_holds_no_character_that_is_not_seen(shown: str) -> None:
    assert INVISIBLE.search(visible(shown)) is None
    assert INVISIBLE.search(short(shown, 20)) is None
    visible(shown).encode()
