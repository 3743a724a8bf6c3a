"""Requests that are no messages of the contract, or too many in one: told so, as any other.

gRPC itself would answer UNKNOWN, which stands for a fault of the server, and log a traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from sandbox_api.errors import InvalidRequestError

from sandbox_server import pieces

_UNREADABLE = "the request is no message of sandbox_api.v1; does the client speak another version?"


def tolerant(read: Callable[[bytes], Any], verb: MethodDescriptor) -> Callable[[bytes], Any]:
    """A reader of a verb's messages; gives an InvalidRequestError for what is none."""
    kind = verb.input_type

    def call(data: bytes) -> Any:
        try:
            pieces.check(kind, data)
            return read(data)
        except InvalidRequestError as error:
            return error
        except DecodeError:
            return InvalidRequestError(_UNREADABLE)

    return call
