"""Between the plain types and the wire, in both directions.

`step_result` runs once an item of a batch, thousands of times a call: it reads each field
once, looks outcomes up in a tuple and leaves info undecoded.
"""

from __future__ import annotations

import json
from typing import Any

from sandbox_api.errors import InternalError, error_from_item
from sandbox_api.types import (
    Diagnostic,
    Divergence,
    Episode,
    Limits,
    OracleResult,
    Outcome,
    Program,
    ProgramKind,
    ResetItem,
    ServerInfo,
    StepResult,
    TrialResult,
    Verdict,
)
from sandbox_api.v1 import sandbox_pb2 as pb

_COMPLETED = Outcome.COMPLETED
_OUTCOMES: tuple[Outcome | None, ...] = (None, *Outcome)
assert all(outcome is None or outcome == n for n, outcome in enumerate(_OUTCOMES))


def outcome_from_number(number: int) -> Outcome | None:
    """The outcome of a wire value; None where none is set.

    Raises:
        InternalError: If the server speaks of an outcome this client does not know.
    """
    if 0 <= number < len(_OUTCOMES):
        return _OUTCOMES[number]
    raise InternalError(f"outcome {number} is unknown to this client; update sandbox_api")


def step_result(episode_id: str, message: pb.StepResult) -> StepResult:
    """Build one step's result; the message must carry no error."""
    outcome = outcome_from_number(message.outcome)
    if outcome is _COMPLETED:
        return StepResult(
            episode_id,
            message.step_index,
            outcome,
            message.observation,
            message.reward if message.HasField("reward") else None,
            message.terminated,
            message.truncated,
            message.info_json,
            message.observation_cut_bytes,
        )
    return StepResult(
        episode_id,
        message.step_index,
        outcome,
        message.observation,
        None,
        message.terminated,
        message.truncated,
        message.info_json,
        message.observation_cut_bytes,
        diagnostic(message),
    )


def diagnostic(message: Any) -> Diagnostic | None:
    """The diagnostic of any message that has such a field; None where it is not set."""
    if message.HasField("diagnostic"):
        return Diagnostic.from_proto(message.diagnostic)
    return None


def _set_outcome(number: int, what: str) -> Outcome:
    """The outcome of a wire value that must be set.

    Raises:
        InternalError: If it is not, or is unknown.
    """
    outcome = outcome_from_number(number)
    if outcome is None:
        raise InternalError(f"the server told of {what} without an outcome")
    return outcome


def tools_from_json(data: bytes) -> list[dict[str, Any]]:
    """Tool schemas from the wire.

    Raises:
        InternalError: If they are no JSON array.
    """
    if not data:
        return []
    try:
        tools = json.loads(data)
    except (ValueError, RecursionError):
        tools = None
    if not isinstance(tools, list):
        raise InternalError("the server sent tools that are no JSON array")
    return tools


def _kind(number: int) -> ProgramKind | None:
    if number == 0:
        return None
    try:
        return ProgramKind(number)
    except ValueError:
        raise InternalError(
            f"program kind {number} is unknown to this client; update sandbox_api"
        ) from None


def reset_item_to_proto(item: ResetItem) -> pb.ResetItem:
    return pb.ResetItem(
        program_id=item.program_id,
        seed=item.seed,
        options_json=json.dumps(item.options).encode() if item.options else b"",
        max_turns=item.max_turns,
        prefix_actions=item.prefix_actions,
        timeout_s=item.timeout_s,
    )


def episode(message: pb.ResetResult) -> Episode:
    """Build one reset's result; the message must carry no error."""
    return Episode(
        episode_id=message.episode_id,
        outcome=outcome_from_number(message.outcome),
        observation=message.observation,
        info_json=message.info_json,
        tools=tools_from_json(message.tools_json),
        observation_cut_bytes=message.observation_cut_bytes,
        prefix_results=[step_result(message.episode_id, r) for r in message.prefix_results],
        diagnostic=diagnostic(message),
    )


def program(message: pb.RegisterProgramResponse) -> Program:
    return Program(
        program_id=message.program_id,
        outcome=_set_outcome(message.outcome, "a program"),
        diagnostic=diagnostic(message),
        kind=_kind(message.kind),
        entry=message.entry,
        has_verify=message.has_verify,
        has_solution=message.has_solution,
        tools=tools_from_json(message.tools_json),
        limits=Limits.from_proto(message.limits),
        group_size=max(1, message.group_size),
    )


def _oracle(message: pb.OracleResult) -> OracleResult:
    return OracleResult(
        outcome=_set_outcome(message.outcome, "an oracle's play"),
        actions=tuple(message.actions),
        final_reward=message.final_reward if message.HasField("final_reward") else None,
        terminated=message.terminated,
        truncated=message.truncated,
        diagnostic=diagnostic(message),
    )


def _trial(message: pb.TrialResult) -> TrialResult:
    return TrialResult(
        outcome=_set_outcome(message.outcome, "a trial"),
        final_reward=message.final_reward if message.HasField("final_reward") else None,
        terminated=message.terminated,
        truncated=message.truncated,
    )


def verdict(episode_id: str, message: pb.Verdict) -> Verdict:
    """Build one verdict; an error in the message becomes the verdict's error."""
    if message.HasField("error"):
        return Verdict(episode_id, error=error_from_item(message.error))
    divergence = None
    if message.HasField("divergence"):
        d = message.divergence
        divergence = Divergence(d.step_index, d.field, d.recorded, d.replayed)
    return Verdict(
        episode_id=episode_id,
        reproduced=message.reproduced,
        divergence=divergence,
        has_verify=message.has_verify,
        verify_outcome=outcome_from_number(message.verify_outcome),
        verified=message.verified if message.HasField("verified") else None,
        verify_message=message.verify_message,
        oracle=_oracle(message.oracle) if message.HasField("oracle") else None,
        oracles=tuple(map(_oracle, message.oracles)),
        trials=tuple(map(_trial, message.trials)),
        diagnostic=diagnostic(message),
    )


def server_info(message: pb.GetServerInfoResponse) -> ServerInfo:
    load = message.load
    return ServerInfo(
        version=message.version,
        backend=message.backend,
        isolation=dict(message.isolation),
        runtimes={r.name: r.python_version for r in message.runtimes},
        default_limits=Limits.from_proto(message.default_limits),
        max_limits=Limits.from_proto(message.max_limits),
        max_episodes=message.max_episodes,
        max_batch_items=message.max_batch_items,
        max_pending_items=message.max_pending_items,
        live_episodes=load.live_episodes,
        pending_items=load.pending_items,
        programs=load.programs,
        jails=load.jails,
        steps_total=load.steps_total,
        ended_total=dict(load.ended_total),
        shards={shard.name: shard.address for shard in message.shards},
        group_size=max(1, message.group_size),
    )
