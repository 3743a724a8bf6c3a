"""Every attack, on every backend: it comes to what it must, and leaves nothing."""

from __future__ import annotations

import asyncio
import json
import time

import grpc
import pytest
from sandbox_api.v1 import sandbox_pb2 as pb

from tests.security import test_copies, test_tenants
from tests.security.attack import Attack
from tests.security.attacks import BY_THEME
from tests.security.conftest import Target
from tests.security.promises import enforced, promises
from tests.wire import Wire

ATTACKS = [attack for theme in BY_THEME.values() for attack in theme]
AT_LEAST = 80

# Promises that one program alone cannot attack, and the tests that do.
ATTACKED_ELSEWHERE = {
    "what is one tenant's is not there for another": test_tenants,
    "a copy is a copy, of its own original": test_copies,
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_attack(wire: Wire, target: Target, attack: Attack) -> None:
    faults = await _faults(wire, target, attack)
    if enforced(attack.promise, target.column):
        assert not faults, f"{target.column} broke {attack.promise!r}: {faults}"
    else:
        assert faults, (
            f"SECURITY.md says that {target.column} does not keep {attack.promise!r}, and it did"
        )


async def _faults(wire: Wire, target: Target, attack: Attack) -> str:
    """Play an attack; returns what of it is not as it must be."""
    limits = dict(attack.limits)
    refused = not target.forks and limits.get("max_processes", 1) > 1
    if refused:
        with pytest.raises(grpc.aio.AioRpcError, match="max_processes over 1 needs a user id"):
            await wire.describe(attack.program, **limits)
        del limits["max_processes"]
    program = await wire.describe(attack.program, **limits)
    if program.outcome != pb.OUTCOME_COMPLETED:
        return attack.faults(program)
    (episode,) = await wire.reset(pb.ResetItem(program_id=program.program_id))
    if episode.outcome != pb.OUTCOME_COMPLETED:
        return attack.faults(episode) if episode.outcome else str(episode.error)
    for index in range(attack.steps):
        started = time.monotonic()
        action = json.dumps({**target.facts, "index": index})
        (result,) = await wire.act((episode.episode_id, index, action))
        took_s = time.monotonic() - started
        if result.outcome != pb.OUTCOME_COMPLETED:
            break
        await asyncio.sleep(attack.pause_s)
    await wire.close(episode.episode_id)
    if result.HasField("error"):
        return f"the service failed: {result.error}"
    if took_s > attack.within_s:
        return f"it took {took_s:.1f} s"
    if refused and attack not in BY_THEME["kernel"]:
        # Without what it was refused it may come to anything that is not its aim.
        return "went through" if result.observation.startswith("went through") else ""
    return attack.faults(result)


def test_names_are_unique() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)


def test_every_promise_is_attacked_and_every_attack_has_a_promise() -> None:
    attacked = {attack.promise for attack in ATTACKS}
    assert attacked | set(ATTACKED_ELSEWHERE) == set(promises())
    assert not attacked & set(ATTACKED_ELSEWHERE)


def test_there_are_enough_attacks(record_property: pytest.RecordProperty) -> None:
    counts = {theme: len(attacks) for theme, attacks in BY_THEME.items()}
    for theme, count in counts.items():
        record_property(theme, count)
    told = ", ".join(f"{theme} {count}" for theme, count in counts.items())
    print(f"{sum(counts.values())} attacks: {told}")
    assert sum(counts.values()) >= AT_LEAST
