"""How the server listens: TLS, and what it refuses to do in the clear."""

from __future__ import annotations

from pathlib import Path

import grpc
from sandbox_api.access import is_local

from sandbox_server.config import AddressError, ServerConfig


def check_exposure(config: ServerConfig) -> None:
    """Refuse to let anybody in, or tokens pass in the clear, where others can reach.

    Raises:
        AddressError: If the settings would do so without saying that it is meant.
    """
    address = config.address
    if config.tls_client_ca and not config.tls_certificate:
        raise AddressError("clients' certificates need TLS: give --tls-certificate and --tls-key")
    if bool(config.tls_certificate) != bool(config.tls_key):
        raise AddressError("TLS needs both --tls-certificate and --tls-key")
    if any(tenant.certificate for tenant in config.tenants) and not config.tls_client_ca:
        raise AddressError(
            "a tenant is known by its certificate: give --tls-client-ca, which says who signs them"
        )
    if is_local(address):
        return
    if not config.tenants and not config.tls_client_ca and not config.allow_unauthenticated:
        raise AddressError(
            f"{address} can be reached from other machines, and anybody there could run code "
            "here: name who may (--tenants FILE, or --tls-client-ca FILE), listen on 127.0.0.1 "
            "or unix:/path, or say --allow-unauthenticated"
        )
    if config.tenants and not config.tls_certificate and not config.allow_plaintext:
        raise AddressError(
            f"tokens to {address} would pass in the clear: give --tls-certificate and --tls-key, "
            "or say --allow-plaintext"
        )


def credentials(config: ServerConfig) -> grpc.ServerCredentials | None:
    """What the server listens with; None for plaintext.

    A certificate that was renewed on disk is taken up without a restart.

    Raises:
        AddressError: If a file cannot be read.
    """
    if not config.tls_certificate:
        return None
    seen = _contents(config)

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal seen
        try:
            now = _contents(config)
        except AddressError:
            # In the middle of being replaced: the old one serves until it is there.
            return None
        if now == seen:
            return None
        seen = now
        return _configuration(*now)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(*seen), renewed, require_client_authentication=bool(config.tls_client_ca)
    )


def _contents(config: ServerConfig) -> tuple[bytes, bytes, bytes | None]:
    key, chain = _read(config.tls_key), _read(config.tls_certificate)
    return key, chain, _read(config.tls_client_ca) if config.tls_client_ca else None


def _configuration(
    key: bytes, chain: bytes, client_ca: bytes | None
) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(key, chain)], client_ca)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise AddressError(f"cannot read {path}: {error.strerror}") from None
