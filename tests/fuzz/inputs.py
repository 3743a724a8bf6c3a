"""Inputs to fuzz with: protobuf messages of any kind, JSON, replies of processes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_EDGES = (0, 1, 2, 3, 255, 65_535)

TEXTS = st.text(max_size=40) | st.sampled_from(
    ["", "\x00", "\N{BOMB}", "x" * 70_000, "../..", "1e999", "\u2028", "NaN"]
)

# Values that JSON has, and some that only Python's reader takes.
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)

_BROKEN_JSON = [
    b"[" * 30_000,
    b'{"a":' * 3_000,
    b"9" * 5_000,
    b'"\\ud800"',
    b"\xff",
    b"1e999",
    b"",
]


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


JSON_BYTES = JSON.map(dumped) | st.sampled_from(_BROKEN_JSON) | st.binary(max_size=200)


def message(
    descriptor: Descriptor, known: Mapping[str, Sequence[Any]] | None = None
) -> st.SearchStrategy[Any]:
    """Any message of a type.

    Args:
        descriptor: Of the type.
        known: By field name, values worth trying beside any others.
    """
    known = known or {}

    def build(values: dict[str, Any]) -> Message:
        made = GetMessageClass(descriptor)()
        for name, value in values.items():
            field = descriptor.fields_by_name[name]
            if field.is_repeated:
                # Maps are left out: none is in a request.
                getattr(made, name).extend(value)
            elif field.message_type is not None:
                getattr(made, name).CopyFrom(value)
            else:
                setattr(made, name, value)
        return made

    fields = {
        field.name: _of_field(field, known)
        for field in descriptor.fields
        if not (field.message_type and field.message_type.GetOptions().map_entry)
    }
    return st.fixed_dictionaries({}, optional=fields).map(build)


def _of_field(
    field: FieldDescriptor, known: Mapping[str, Sequence[Any]]
) -> st.SearchStrategy[Any]:
    one = _of_one(field, known)
    return st.lists(one, max_size=4) if field.is_repeated else one


def _of_one(field: FieldDescriptor, known: Mapping[str, Sequence[Any]]) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return message(field.message_type, known)
    kind = field.cpp_type
    found: st.SearchStrategy[Any]
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        edges = [*(e for e in _EDGES if low <= e <= high), low, high]
        found = st.sampled_from(edges) | st.integers(low, high)
    elif kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        found = st.floats() | st.sampled_from([0.0, 1e-300, 0.5, 1.0, 3.0])
    elif kind == FieldDescriptor.CPPTYPE_BOOL:
        found = st.booleans()
    elif kind == FieldDescriptor.CPPTYPE_ENUM:
        numbers = [value.number for value in field.enum_type.values]
        found = st.sampled_from(numbers) | st.integers(-(2**31), 2**31 - 1)
    elif field.type == FieldDescriptor.TYPE_BYTES:
        found = JSON_BYTES
    else:
        found = TEXTS
    if wanted := known.get(field.name):
        return st.sampled_from(list(wanted)) | found
    return found


_HEADER = struct.Struct("<BIBBdQIII")


@st.composite
def replies(draw: st.DrawFn) -> bytes:
    """Bytes like those of a reply: most of it as it must be, some of it not."""
    parts = [draw(JSON_BYTES | st.binary(max_size=100)) for _ in range(3)]
    lengths = [len(part) for part in parts]
    if draw(st.booleans()):
        lengths[draw(st.integers(0, 2))] = draw(st.integers(0, 2**32 - 1))
    header = _HEADER.pack(
        draw(st.integers(0, 9)),
        draw(st.integers(0, 4)),
        draw(st.sampled_from([0, 1, 1, 2, 6, 7, 8, 255])),
        draw(st.sampled_from([0, 0, 1, 3, 4, 255])),
        draw(st.floats()),
        draw(st.integers(0, 2**64 - 1)),
        *lengths,
    )
    whole = header + b"".join(parts)
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


def mutated(data: bytes, draw: st.DrawFn) -> bytes:
    """The bytes with some of them changed, doubled or taken away."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(changed)))
        what = draw(st.integers(0, 2))
        if what == 0 and at < len(changed):
            changed[at] = draw(st.integers(0, 255))
        elif what == 1:
            changed[at:at] = draw(st.binary(max_size=8))
        else:
            del changed[at : at + draw(st.integers(0, 8))]
    return bytes(changed)
