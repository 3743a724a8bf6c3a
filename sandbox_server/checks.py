"""Checks of what a request asks for, before anything is started for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sandbox_api.errors import InvalidRequestError
from sandbox_api.v1 import sandbox_pb2 as pb

from sandbox_server import values
from sandbox_server.episode import ProgramRecord

MAX_TIMEOUT_S = 3_600
# Of one item of Verify. Each costs some steps, and all of them one process.
MAX_ORACLE_SEEDS = 100
MAX_TRIALS = 100
# Written out and read again by processes with less stack left than the one that read it.
_MAX_OPTIONS_DEPTH = 64
# Reading and writing so many takes the event loop some milliseconds.
_MAX_OPTIONS_VALUES = 20_000


def check_action(program: ProgramRecord, action: str) -> None:
    """Hold an action to its program's limit.

    Raises:
        InvalidRequestError: If it is too long.
    """
    limit = program.limits.max_action_bytes
    # A character is at most 4 bytes: most actions need no encoding to be judged.
    if len(action) * 4 > limit and len(action.encode()) > limit:
        raise InvalidRequestError(
            f"the action is {len(action.encode())} bytes; max_action_bytes is {limit}"
        )


def timeout_of(asked_s: float, program: ProgramRecord) -> float:
    """Wall seconds of one call: those asked for, else the program's.

    Raises:
        InvalidRequestError: If they are no time to wait.
    """
    if not 0 <= asked_s <= MAX_TIMEOUT_S:
        raise InvalidRequestError(
            f"timeout_s is {asked_s:g}; it must be from 0 to {MAX_TIMEOUT_S}"
        )
    return asked_s or program.limits.step_timeout_s


def check_oracle_seeds(seeds: Sequence[int]) -> None:
    """Hold the seeds that a verification is to play solution() on to what it takes.

    Raises:
        InvalidRequestError: If there are too many.
    """
    if len(seeds) > MAX_ORACLE_SEEDS:
        raise InvalidRequestError(
            f"there are {len(seeds)} oracle_seeds; an item takes at most {MAX_ORACLE_SEEDS}"
        )


def check_trials(program: ProgramRecord, trials: Sequence[pb.Trial]) -> None:
    """Hold the plays that a verification is to try to what it takes.

    Raises:
        InvalidRequestError: If there are too many, of too many actions, or one is too long.
    """
    if len(trials) > MAX_TRIALS:
        raise InvalidRequestError(
            f"there are {len(trials)} trials; an item takes at most {MAX_TRIALS}"
        )
    for trial in trials:
        if len(trial.actions) > program.limits.max_steps:
            raise InvalidRequestError(
                f"a trial has {len(trial.actions)} actions; max_steps is "
                f"{program.limits.max_steps}"
            )
        for action in trial.actions:
            check_action(program, action)


def check_prefix(program: ProgramRecord, actions: Sequence[str]) -> None:
    """Hold the actions that a reset is to replay to their program's limits.

    Raises:
        InvalidRequestError: If there are too many, or one is too long.
    """
    if len(actions) > program.limits.max_steps:
        raise InvalidRequestError(
            f"there are {len(actions)} prefix_actions; max_steps is {program.limits.max_steps}"
        )
    for action in actions:
        check_action(program, action)


def read_options(options_json: bytes, max_bytes: int) -> bytes:
    """Check the options of a reset.

    Returns:
        The same object, written without what only some readers of JSON take. It is not kept
        as an object: that may take sixty times as much.

    Raises:
        InvalidRequestError: If they are no JSON object, too long, or nested too deep, or have
            too many values.
    """
    if not options_json:
        return b"{}"
    if len(options_json) > max_bytes:
        raise InvalidRequestError(
            f"options_json is {len(options_json)} bytes; this server takes {max_bytes}"
        )
    if values.are_more(options_json, _MAX_OPTIONS_VALUES):
        raise InvalidRequestError(
            f"options_json has more than {_MAX_OPTIONS_VALUES} values; write them as one text"
        )
    try:
        options = json.loads(options_json)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise InvalidRequestError("options_json is no JSON object")
    if _is_deeper_than(options, _MAX_OPTIONS_DEPTH):
        raise InvalidRequestError(
            f"options_json is nested deeper than {_MAX_OPTIONS_DEPTH} levels"
        )
    return json.dumps(options).encode()


def _is_deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        inner: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                inner += container.values()
            elif isinstance(container, list):
                inner += container
        if not inner:
            return False
        level = inner
    return True
