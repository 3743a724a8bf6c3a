"""The synchronous client: the same behaviour, from threads, scripts and event loops."""

from __future__ import annotations

import inspect
import threading

import pytest
from sandbox_api import (
    AsyncSandboxClient,
    AsyncStepPipeline,
    EpisodeLostError,
    ResetItem,
    SandboxClient,
    StepItem,
    StepPipeline,
)

from tests.api.fake_server import FakeServer


def play(client: SandboxClient) -> list[str]:
    program = client.register_program("x")
    episodes = client.reset([ResetItem(program.program_id, seed=n) for n in range(3)])
    results = client.step([StepItem(e.episode_id, 0, "a") for e in episodes])
    client.close_episodes([e.episode_id for e in episodes])
    return [r.observation for r in results]


EXPECTED = ["0:1:a:0", "1:1:a:0", "2:1:a:0"]


def test_both_faces_have_the_same_methods():
    def surface(cls: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(cls, callable)
            if not name.startswith("_")
        }

    asynchronous = surface(AsyncSandboxClient)
    asynchronous["close"] = asynchronous.pop("aclose")
    assert surface(SandboxClient) == asynchronous
    pipeline = surface(AsyncStepPipeline)
    pipeline["close"] = pipeline.pop("aclose")
    assert surface(StepPipeline) == pipeline
    assert str(inspect.signature(SandboxClient)) == str(inspect.signature(AsyncSandboxClient))


def test_it_plays_from_a_script(server: FakeServer):
    with SandboxClient(server.address) as client:
        assert play(client) == EXPECTED


async def test_it_plays_inside_a_running_event_loop(server: FakeServer):
    with SandboxClient(server.address) as client:
        assert play(client) == EXPECTED


def test_it_plays_from_several_threads(server: FakeServer):
    seen: list[list[str]] = []
    with SandboxClient(server.address) as client:
        threads = [threading.Thread(target=lambda: seen.append(play(client))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == [EXPECTED] * 8


def test_streams_are_iterators(server: FakeServer):
    with SandboxClient(server.address) as client:
        program = client.register_program("x")
        episodes = client.reset([ResetItem(program.program_id, seed=n) for n in range(4)])
        ids = {e.episode_id for e in episodes}
        results = list(client.step_stream([StepItem(i, 0, "a") for i in ids]))
        assert {r.episode_id for r in results} == ids
        stream = client.step_stream([StepItem(i, 1, "a") for i in ids])
        next(stream)
        stream.close()
        started = dict(
            client.reset_stream([ResetItem(program.program_id, seed=n) for n in (8, 9)])
        )
        assert started.keys() == {0, 1}
        assert all(episode.ok for episode in started.values())


def test_errors_come_through(server: FakeServer):
    with SandboxClient(server.address) as client, pytest.raises(EpisodeLostError):
        client.fork("nobody", 1)


def test_closing_twice_is_fine_and_a_closed_client_says_so(server: FakeServer):
    client = SandboxClient(server.address)
    client.server_info()
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.server_info()


def test_verify_and_info(server: FakeServer):
    with SandboxClient(server.address) as client:
        program = client.register_program("x")
        (episode,) = client.reset([ResetItem(program.program_id)])
        (verdict,) = client.verify([episode.episode_id])
        assert verdict.reproduced
        assert client.server_info().backend == "fake"
