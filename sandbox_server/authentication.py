"""Who calls: a tenant known by a bearer token, by its client certificate, or by both."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence

import grpc
from sandbox_api.errors import UnauthenticatedError

from sandbox_server import certificate_names
from sandbox_server.config import DEFAULT_TENANT, TenantConfig

_HEADER = "authorization"
_SCHEME = "bearer "
_CERTIFICATE = "x509_pem_cert"

Metadata = Iterable[tuple[str, str | bytes]]


def token_sha256(token: str) -> str:
    """What the server keeps of a token.

    Tokens are random and long (`spadework token`), so a plain hash cannot be reversed.
    """
    return hashlib.sha256(token.encode()).hexdigest()


class Authenticator:
    """Tells tenants apart.

    Args:
        tenants: Those there are; with none, everybody is the one default tenant.
    """

    def __init__(self, tenants: Sequence[TenantConfig]) -> None:
        self._tenants = tenants
        self._by_certificate = any(tenant.certificate for tenant in tenants)

    def tenant(self, context: grpc.aio.ServicerContext) -> str:
        """The name of the tenant that makes a call.

        Raises:
            UnauthenticatedError: If it is none of them.
        """
        if not self._tenants:
            return DEFAULT_TENANT
        certified = self._certified(context.auth_context()) if self._by_certificate else None
        presented = self._presented(context.invocation_metadata() or ())
        who = presented or certified
        if who is None:
            raise UnauthenticatedError(
                "this server needs a token: set SPADEWORK_TOKEN, or give the client "
                "access=Access(token=...)"
            )
        if certified is not who and who.certificate:
            raise UnauthenticatedError("this tenant must also show its client certificate")
        if presented is not who and who.token_sha256:
            raise UnauthenticatedError("this tenant must also present its token")
        return who.name

    def may_speak(self, metadata: Metadata) -> bool:
        """Whether a call is worth reading: where only tokens count, only with a right one."""
        if not self._tenants or self._by_certificate:
            return True
        try:
            return self._presented(metadata) is not None
        except UnauthenticatedError:
            return False

    def _presented(self, metadata: Metadata) -> TenantConfig | None:
        """Whose token came with a call; None if none did.

        Raises:
            UnauthenticatedError: If it is nobody's.
        """
        header = dict(metadata).get(_HEADER)
        if header is None:
            return None
        text = header.decode(errors="replace") if isinstance(header, bytes) else header
        digest = token_sha256(text[len(_SCHEME) :])
        found = None
        for tenant in self._tenants:
            # All of them, each in constant time: how long it takes tells nothing.
            if hmac.compare_digest(digest, tenant.token_sha256):
                found = tenant
        if found is None or text[: len(_SCHEME)].lower() != _SCHEME:
            raise UnauthenticatedError("the token is not that of any tenant of this server")
        return found

    def _certified(self, shown: Mapping[str, Iterable[bytes]]) -> TenantConfig | None:
        named = {
            name for pem in shown.get(_CERTIFICATE, ()) for name in certificate_names.names(pem)
        }
        found = [t for t in self._tenants if t.certificate and t.certificate in named]
        # One that names several is nobody's: which of them is meant is not to be guessed.
        return found[0] if len(found) == 1 else None
