"""Certificates of the right authority that only look like a tenant's."""

from __future__ import annotations

import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from sandbox_server.authentication import Authenticator
from sandbox_server.certificate_names import names
from sandbox_server.config import TenantConfig

_TRAINER = "trainer.example"
_KEY = ec.generate_private_key(ec.SECP256R1())


def _certificate(common: list[str], *alternative: x509.GeneralName) -> bytes:
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, _TRAINER)]
        + [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common]
    )
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _TRAINER)]))
        .public_key(_KEY.public_key())
        .serial_number(7)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=9))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
    return builder.sign(_KEY, hashes.SHA256()).public_bytes(Encoding.PEM)


MINE = {
    "common": _certificate([_TRAINER]),
    "dns": _certificate(["x"], x509.DNSName("y"), x509.DNSName(_TRAINER)),
    "dns alone": _certificate([], x509.DNSName(_TRAINER)),
}
ANOTHERS = {
    "nul in common": _certificate([_TRAINER + "\0.evil.example"]),
    "nul in dns": _certificate(["x"], x509.DNSName(_TRAINER + "\0.evil.example")),
    "two common": _certificate([_TRAINER, "x"]),
    "mail": _certificate(["x"], x509.RFC822Name(_TRAINER)),
    "uri": _certificate(["x"], x509.UniformResourceIdentifier(_TRAINER)),
    "wildcard": _certificate(["*.example"], x509.DNSName("*.example")),
    "upper case": _certificate([_TRAINER.upper()]),
    "homoglyph": _certificate(["tr\N{CYRILLIC SMALL LETTER A}iner.example"]),
    "organisation and issuer": _certificate([]),
    "two tenants": _certificate([_TRAINER], x509.DNSName("designer.example")),
    "none": b"no certificate",
}


def _who(pem: bytes) -> str:
    tenants = (
        TenantConfig("trainer", certificate=_TRAINER),
        TenantConfig("designer", certificate="designer.example"),
    )
    found = Authenticator(tenants)._certified({"x509_pem_cert": [pem]})
    return found.name if found else ""


@pytest.mark.parametrize("pem", MINE.values(), ids=MINE)
def test_a_tenants_certificate_names_it(pem: bytes) -> None:
    assert _who(pem) == "trainer"


@pytest.mark.parametrize("pem", ANOTHERS.values(), ids=ANOTHERS)
def test_what_only_looks_like_a_tenants_certificate_is_nobodys(pem: bytes) -> None:
    assert not _who(pem)


def test_a_certificate_that_is_cut_or_garbled_names_nobody_and_raises_nothing() -> None:
    der = ssl.PEM_cert_to_DER_cert(MINE["dns"].decode())
    for cut in range(0, len(der), 3):
        pem = ssl.DER_cert_to_PEM_cert(der[:cut]).encode()
        assert not names(pem)
        names(ssl.DER_cert_to_PEM_cert(der[:cut] + b"\x84\xff" + der[cut + 2 :]).encode())
