"""Where a gRPC server listens, and what its channels bear."""

from __future__ import annotations

import contextlib
import socket

import grpc

from sandbox_server import transport
from sandbox_server.config import AddressError, ServerConfig

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    # Past about 1,000 calls in flight the defaults cancel silently.
    ("grpc.server.max_pending_requests", 16_384),
    ("grpc.server.max_pending_requests_hard_limit", 32_768),
    ("grpc.so_reuseport", 0),
    # Clients ping while they wait for a slow batch; by default that is an offence.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 20_000),
]


def listen(server: grpc.aio.Server, config: ServerConfig) -> int:
    """Have a server listen where its settings say, with TLS where they have it.

    Returns:
        The port; 1 for a Unix socket.

    Raises:
        AddressError: If the address cannot be had, or a certificate not be used.
    """
    address = config.address
    _refuse_taken(address)
    credentials = transport.credentials(config)
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError:
        if credentials is None:
            what = "name another as host:port or unix:/path"
        else:
            what = (
                f"see whether {config.tls_certificate} and {config.tls_key} are PEM "
                "files of one certificate and its own key"
            )
        raise AddressError(f"cannot listen on {address}; {what}") from None


def told(address: str, port: int) -> str:
    """What clients are told of an address, with the port that was chosen."""
    if address.startswith("unix:"):
        return address
    return f"{address.rpartition(':')[0]}:{port}"


def _refuse_taken(address: str) -> None:
    """Find out before gRPC does, which logs more than a reader wants, or takes it over.

    Raises:
        AddressError: If a server listens there. What a killed one left is no matter.
    """
    if address.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(address.removeprefix("unix:"))
            raise AddressError(f"cannot listen on {address}: another server does; stop it first")
        return
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, int(port)), family=family).close()
    except (ValueError, OverflowError):
        raise AddressError(
            f"cannot listen on {address}: its port is no number from 0 to 65535 (0: any free one)"
        ) from None
    except OSError as error:
        # The library adds the address, which is in the message anyway.
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise AddressError(
            f"cannot listen on {address} ({reason}): it is taken, or not this machine's; name "
            "another as host:port (port 0: any free one) or unix:/path"
        ) from None
