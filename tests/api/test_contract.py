"""The contract's own rules: everything commented, everything exported, nothing else."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import sandbox_api
from sandbox_api import errors, types
from sandbox_api.v1 import sandbox_pb2 as pb

PROTO = Path(sandbox_api.__file__).parent / "v1" / "sandbox.proto"


def test_every_field_and_enum_value_of_the_proto_has_a_comment():
    bare = []
    commented = False
    for number, line in enumerate(PROTO.read_text().splitlines(), 1):
        text = line.strip()
        if re.match(r"(optional |repeated )?[\w.<>, ]+ = \d+;|\w+ = \d+;", text):
            if not commented and not re.search(r";\s*//", text):
                bare.append(f"{number}: {text}")
            commented = False
        else:
            commented = text.startswith("//")
    assert bare == []


def test_the_export_list_is_exact():
    public = {
        name
        for module in (errors, types)
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    clients = {"AsyncSandboxClient", "AsyncStepPipeline", "SandboxClient", "StepPipeline"}
    assert set(sandbox_api.__all__) == public | clients | {"Access"}
    assert sandbox_api.__all__ == sorted(sandbox_api.__all__)
    exported = {
        name
        for name, value in vars(sandbox_api).items()
        if isinstance(value, type) and not name.startswith("_")
    }
    assert exported == set(sandbox_api.__all__)


def test_every_error_reason_has_its_own_exception():
    reasons = {cls.reason for cls in errors.SandboxError.__subclasses__()}
    assert reasons >= set(pb.ErrorReason.values()) - {pb.ERROR_REASON_UNSPECIFIED}
    for cls in errors.SandboxError.__subclasses__():
        if cls.reason != pb.ERROR_REASON_UNSPECIFIED:
            item = errors.item_from_error(cls("why", 1.5))
            back = errors.error_from_item(item)
            assert (type(back), str(back), back.retry_delay_s) == (cls, "why", 1.5)


def test_limits_match_the_message_field_by_field():
    names = [f.name for f in dataclasses.fields(types.Limits)]
    assert names == [f.name for f in pb.Limits.DESCRIPTOR.fields]
    limits = types.Limits(**{name: n + 1 for n, name in enumerate(names)})
    assert types.Limits.from_proto(limits.to_proto()) == limits


def test_the_wire_enums_and_ours_are_the_same():
    for ours, wire, prefix in (
        (types.Outcome, pb.Outcome, "OUTCOME_"),
        (types.Phase, pb.Phase, "PHASE_"),
        (types.ProgramKind, pb.ProgramKind, "PROGRAM_KIND_"),
    ):
        wire_values = {name.removeprefix(prefix): number for name, number in wire.items()}
        del wire_values["UNSPECIFIED"]
        assert {member.name: member.value for member in ours} == wire_values
