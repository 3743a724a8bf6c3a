"""How a client shows who it is: a token, TLS, a client certificate."""

from __future__ import annotations

import functools
import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc

from sandbox_api.errors import InvalidRequestError
from sandbox_api.v1 import sandbox_pb2 as pb

_METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["SandboxService"].methods]


@dataclass(frozen=True)
class Access:
    """What a client connects with.

    Attributes:
        token: Bearer token; empty for none. Never shown.
        ca_file: PEM of what signs the server's certificate: the connection is then TLS,
            except to a Unix socket.
        certificate_file: PEM of the client's own certificate chain, for mutual TLS.
        key_file: PEM of its key.
        allow_plaintext: Send the token without TLS to another machine.
    """

    token: str = field(default="", repr=False)
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    allow_plaintext: bool = False

    @classmethod
    def from_environment(cls) -> Access:
        """What the variables SPADEWORK_TOKEN, SPADEWORK_TLS_CA, SPADEWORK_TLS_CERTIFICATE,
        SPADEWORK_TLS_KEY and SPADEWORK_ALLOW_PLAINTEXT=1 say."""
        variable = os.environ.get
        return cls(
            token=variable("SPADEWORK_TOKEN", "").strip(),
            ca_file=variable("SPADEWORK_TLS_CA", ""),
            certificate_file=variable("SPADEWORK_TLS_CERTIFICATE", ""),
            key_file=variable("SPADEWORK_TLS_KEY", ""),
            allow_plaintext=variable("SPADEWORK_ALLOW_PLAINTEXT", "") == "1",
        )

    def channel(self, address: str, options: Any) -> grpc.aio.Channel:
        """Open a channel to a server.

        Raises:
            InvalidRequestError: If a file cannot be read, or the token would pass in the clear.
        """
        if self.ca_file and not address.startswith("unix:"):
            credentials = grpc.ssl_channel_credentials(
                _read(self.ca_file),
                _read(self.key_file) if self.key_file else None,
                _read(self.certificate_file) if self.certificate_file else None,
            )
            return grpc.aio.secure_channel(address, credentials, options=options)
        if self.token and not self.allow_plaintext and not is_local(address):
            raise InvalidRequestError(
                f"the token would pass to {address} in the clear: set SPADEWORK_TLS_CA to what "
                "signs the server's certificate, or SPADEWORK_ALLOW_PLAINTEXT=1"
            )
        return grpc.aio.insecure_channel(address, options=options)

    def authorized(self, stub: Any) -> Any:
        """The stub's methods, with the token in each call's metadata."""
        if not self.token:
            return stub
        metadata = (("authorization", f"Bearer {self.token}"),)
        methods = {n: functools.partial(getattr(stub, n), metadata=metadata) for n in _METHODS}
        return SimpleNamespace(**methods)


def is_local(address: str) -> bool:
    """Whether only this machine can reach an address."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"cannot read {path}: {error.strerror}") from None
