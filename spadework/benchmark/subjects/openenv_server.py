"""OpenEnv's own server with a program in it: `... PROGRAM_FILE MAX_SESSIONS`.

Prints its port when it listens.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app

from spadework.benchmark.case import BenchmarkProgram

# Connections that come at once; uvicorn's own number.
_BACKLOG = 2_048


class TextAction(Action):
    """What the policy said."""

    text: str


class TextObservation(Observation):
    """What the program answered."""

    text: str = ""


def environment(program: BenchmarkProgram) -> type[Environment[Any, Any, Any]]:
    """The class that the server makes a session's environment of."""
    kind = program.load()

    class ProgramEnvironment(Environment[TextAction, TextObservation, State]):
        # A program keeps its state to itself.
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._program = kind()
            self._state = State(step_count=0)

        def reset(
            self, seed: int | None = None, episode_id: str | None = None, **_: Any
        ) -> TextObservation:
            observation, _info = self._program.reset(seed=seed)
            self._state = State(episode_id=episode_id, step_count=0)
            return TextObservation(text=observation)

        def step(
            self, action: TextAction, timeout_s: float | None = None, **_: Any
        ) -> TextObservation:
            text, reward, terminated, truncated, _info = self._program.step(action.text)
            self._state.step_count += 1
            return TextObservation(text=text, reward=reward, done=terminated or truncated)

        @property
        def state(self) -> State:
            return self._state

    return ProgramEnvironment


def main() -> None:
    value = json.loads(Path(sys.argv[1]).read_text())
    program = BenchmarkProgram(**value)
    app = create_app(
        environment(program),
        TextAction,
        TextObservation,
        env_name="benchmark",
        max_concurrent_envs=int(sys.argv[2]),
    )
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main()
