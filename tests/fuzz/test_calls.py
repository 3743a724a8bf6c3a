"""Every call of the service with any request, against a server that must bear it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from hypothesis import strategies as st
from sandbox_api.client import CHANNEL_OPTIONS
from sandbox_api.v1 import sandbox_pb2 as pb
from sandbox_api.v1 import sandbox_pb2_grpc

from sandbox_server import LocalServer
from tests.fuzz.budget import fuzzed
from tests.fuzz.inputs import message, mutated
from tests.server.conftest import COUNTER

pytestmark = pytest.mark.nsjail

_SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"]
# The statuses that the contract knows; a fault of the server's own is INTERNAL.
_DECLARED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}
_TIMEOUT_S = 60


class Calls:
    """A server, and its calls by name on bytes."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.stub: Any = sandbox_pb2_grpc.SandboxServiceStub(channel)
        self._calls: dict[str, Callable[..., Any]] = {}
        for method in _SERVICE.methods:
            make = channel.unary_stream if method.server_streaming else channel.unary_unary
            self._calls[method.name] = make(f"/{_SERVICE.full_name}/{method.name}")

    def answer(self, name: str, request: bytes) -> tuple[grpc.StatusCode, list[bytes]]:
        call = self._calls[name]
        try:
            said = call(request, timeout=_TIMEOUT_S)
            return grpc.StatusCode.OK, [said] if isinstance(said, bytes) else list(said)
        except grpc.RpcError as error:
            return error.code(), []

    def bear(self, name: str, request: bytes) -> None:
        """Make a call; it must end as the contract knows, and leave the server serving."""
        code, responses = self.answer(name, request)
        assert code in _DECLARED, (name, code)
        kind = _SERVICE.methods_by_name[name].output_type
        for response in responses:
            read = getattr(pb, kind.name).FromString(response)
            for result in getattr(read, "results", ()):
                assert result.error.reason != pb.ERROR_REASON_INTERNAL, result
        self._tidy(name, responses)

    def _tidy(self, name: str, responses: list[bytes]) -> None:
        made: list[str] = []
        for response in responses:
            if name == "Reset":
                made += [r.episode_id for r in pb.ResetResponse.FromString(response).results]
            elif name == "Fork":
                made += pb.ForkResponse.FromString(response).episode_ids
        if made:
            self.stub.Close(pb.CloseRequest(episode_ids=made))


@pytest.fixture(scope="module")
def calls() -> Iterator[Calls]:
    with (
        LocalServer(backend="nsjail", max_episodes=64) as server,
        grpc.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel,
    ):
        calls = Calls(channel)
        yield calls
        assert server.process.poll() is None
        assert calls.stub.GetServerInfo(pb.GetServerInfoRequest()).load.pending_items == 0


@pytest.fixture
def episode(calls: Calls) -> Iterator[str]:
    """One that requests may name; it is there again for each test, whatever became of it."""
    program = calls.stub.RegisterProgram(
        pb.RegisterProgramRequest(source=COUNTER, limits=pb.Limits(max_processes=4))
    )
    item = pb.ResetItem(program_id=program.program_id)
    (response,) = calls.stub.Reset(pb.ResetRequest(items=[item]))
    (result,) = response.results
    _NAMED["program_id"].append(program.program_id)
    _NAMED["episode_id"].append(result.episode_id)
    yield result.episode_id
    calls.stub.Close(pb.CloseRequest(episode_ids=_NAMED["episode_id"]))
    # The server is whole: an episode plays to its end.
    (response,) = calls.stub.Reset(pb.ResetRequest(items=[item]))
    (result,) = response.results
    for index in range(10):
        step = pb.StepItem(episode_id=result.episode_id, step_index=index, action="+")
        (response,) = calls.stub.Step(pb.StepRequest(items=[step]))
        if response.results[0].terminated:
            break
    assert response.results[0].reward == 1.0
    calls.stub.Close(pb.CloseRequest(episode_ids=[result.episode_id]))


# Values worth trying; ids are filled in when they are there.
_NAMED: dict[str, list[Any]] = {
    "program_id": [],
    "episode_id": [],
    "episode_ids": [],
    "source": [COUNTER, "", "x =", "while True: pass", "\x00", "# \N{BOMB}"],
    "runtime": ["stdlib", ""],
    "entry": ["CounterEnv", ""],
    "load_timeout_s": [0, 0.5],
    "step_timeout_s": [0, 0.5],
    "timeout_s": [0, 0.5, float("nan"), -1.0],
    "step_index": [0, 1],
    "action": ["+", "-"],
    "copies": [0, 1, 2, 2**32 - 1],
    "max_turns": [0, 1, 2],
    "max_processes": [0, 1, 4],
    "lifetime_s": [0, 5],
}


def _request(name: str) -> st.SearchStrategy[bytes]:
    descriptor = _SERVICE.methods_by_name[name].input_type
    # Ids are known only once there are any.
    return st.deferred(lambda: message(descriptor, _NAMED).map(lambda m: m.SerializeToString()))


_ANY = st.sampled_from([method.name for method in _SERVICE.methods]).flatmap(
    lambda name: st.tuples(st.just(name), _request(name))
)


@fuzzed(made=_ANY, inputs=150)
def test_any_request_is_answered_as_the_contract_says(
    calls: Calls, episode: str, made: tuple[str, bytes]
) -> None:
    calls.bear(*made)


@st.composite
def _mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    name, request = draw(_ANY)
    return name, mutated(request, draw)


@fuzzed(made=_mutated(), inputs=150)
def test_a_request_with_bytes_changed_is_answered_as_the_contract_says(
    calls: Calls, episode: str, made: tuple[str, bytes]
) -> None:
    calls.bear(*made)


@fuzzed(
    name=st.sampled_from([method.name for method in _SERVICE.methods]),
    noise=st.binary(max_size=500),
    inputs=150,
)
def test_noise_is_answered_as_the_contract_says(
    calls: Calls, episode: str, name: str, noise: bytes
) -> None:
    calls.bear(name, noise)
