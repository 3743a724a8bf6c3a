"""Log lines: ids of the call on each, and nothing in them that a program could forge."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import grpc
import pytest
from sandbox_api import ResetItem, SandboxClient
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server.failures import internal_error
from sandbox_server.telemetry import calls, logs
from sandbox_server.telemetry.metrics import Metrics
from tests.server.conftest import COUNTER
from tests.server.processes import ServerProcess, serving

_FORGERY = "x\n2026-01-01 INFO a: all is well\r\x1b[2J\x1b]0;owned\x07\u2028\u202e"


@pytest.fixture
def formatter() -> logging.Formatter:
    return logs.TextFormatter()


def _record(message: str, *arguments: object, error: Exception | None = None) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("a.b", logging.ERROR, "f.py", 1, message, arguments, info)


def test_text_of_a_program_cannot_start_a_line_or_drive_a_terminal(
    formatter: logging.Formatter,
) -> None:
    line = formatter.format(_record("said %s", _FORGERY))
    assert line.isprintable()
    assert "\\n2026-01-01 INFO" in line
    assert "\\x1b[2J" in line
    assert "\\u202e" in line


def test_the_lines_of_a_traceback_are_told_from_records(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(_FORGERY)
    except ValueError as error:
        first, *rest = formatter.format(_record("failed", error=error)).split("\n")
    assert "ERROR a.b: failed" in first
    assert all(line.startswith("  | ") and line.isprintable() for line in rest)
    assert any("ValueError: x" in line for line in rest)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_says_which_shard_wrote_it(form: str) -> None:
    configure = "from sandbox_server.telemetry import logs; import logging; "
    configure += f"logs.configure({form!r}, 'info', 'b'); logging.getLogger('a').info('here')"
    done = subprocess.run(
        [sys.executable, "-c", configure], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("\n") == 1
    if form == "json":
        assert json.loads(done.stderr)["shard"] == "b"
    else:
        assert done.stderr.endswith(" INFO a: here shard=b\n")


@pytest.mark.parametrize("sent", ["trace-7f.3:a_b/c", "x" * 64])
def test_a_sane_request_id_is_taken(sent: str) -> None:
    assert calls.request_id_from([("other", "y"), ("x-request-id", sent)]) == sent


@pytest.mark.parametrize("sent", ["", "x" * 65, "a b", "a\nb", "\x1b[31m", "é", b"bytes"])
def test_any_other_is_replaced(sent: str) -> None:
    made = calls.request_id_from([("x-request-id", sent)])
    assert made != sent
    assert made.isalnum()


def _register(server: ServerProcess, source: str, request_id: str) -> tuple[str, str]:
    """Register over a bare stub; returns the request id that came back, and the program's."""
    with grpc.insecure_channel(server.address) as channel:
        register = channel.unary_unary(
            "/sandbox_api.v1.SandboxService/RegisterProgram",
            request_serializer=pb.RegisterProgramRequest.SerializeToString,
            response_deserializer=pb.RegisterProgramResponse.FromString,
        )
        try:
            answer, call = register.with_call(
                pb.RegisterProgramRequest(source=source), metadata=[("x-request-id", request_id)]
            )
            program = answer.program_id
        except grpc.RpcError as error:
            call, program = error, ""
        return dict(call.trailing_metadata())["x-request-id"], program


def test_json_lines_carry_the_ids_of_what_they_are_about() -> None:
    with serving("--log-format", "json", "--log-level", "debug") as server:
        assert _register(server, COUNTER, "run-42")[0] == "run-42"
        assert _register(server, "", "refused-43")[0] == "refused-43"
        with SandboxClient(server.address) as client:
            program = client.register_program(COUNTER)
            (episode,) = client.reset([ResetItem(program.program_id)])
            client.close_episodes([episode.episode_id])
        records = [json.loads(line) for line in server.log()]
    assert all({"time", "level", "logger", "message"} <= record.keys() for record in records)
    (registered,) = [r for r in records if r.get("request_id") == "run-42"]
    assert registered["message"].startswith("RegisterProgram took")
    assert registered["tenant"] == "default"
    ended = [r for r in records if r["message"] == "episode ended: closed"]
    assert ended[-1]["program"] == program.program_id[:16]
    assert episode.episode_id.startswith(ended[-1]["episode_id"])
    # Whole ids let their reader step the episode.
    assert not any(episode.episode_id in json.dumps(record) for record in records)


def test_an_internal_error_names_the_request_id_that_its_log_line_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    call = calls.Call("Reset", "id-77", Metrics())
    token = calls._call.set(call)
    try:
        error = internal_error("reset", RuntimeError("boom"))
    finally:
        calls._call.reset(token)
    assert "request id id-77" in str(error)
    assert "boom" not in str(error)
    assert caplog.records[-1].request_id == "id-77"  # type: ignore[attr-defined]
