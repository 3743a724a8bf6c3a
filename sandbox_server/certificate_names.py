"""Whom a client's certificate names, read from the certificate itself.

gRPC hands names on as C strings: it cuts "trainer.example", a NUL and anything else to
"trainer.example", and tells no kind of alternative name from another. TLS has verified the
certificate; whatever is not laid out as expected names nobody.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator

_UTF8, _PRINTABLE = 0x0C, 0x13
_VERSION, _EXTENSIONS, _DNS_NAME = 0xA0, 0xA3, 0x82
_COMMON_NAME, _ALTERNATIVE_NAMES = b"\x55\x04\x03", b"\x55\x1d\x11"
# Fields of a certificate before its subject: serial number, algorithm, issuer, validity.
_BEFORE_SUBJECT = 4


@functools.lru_cache(maxsize=256)
def names(pem: bytes) -> frozenset[str]:
    """The common name, if there is one and no other, and the DNS names; none if it is odd."""
    try:
        der = ssl.PEM_cert_to_DER_cert(pem.decode())
        return frozenset(name.decode() for name in _names(der))
    except (ValueError, IndexError):
        return frozenset()


def _names(der: bytes) -> Iterator[bytes]:
    ((_, certificate),) = _parts(der)
    (_, told), *_ = _parts(certificate)
    fields = _parts(told)
    if fields[0][0] == _VERSION:
        del fields[0]
    _, subject = fields[_BEFORE_SUBJECT]
    common = [
        (kind, value)
        for _, attributes in _parts(subject)
        for _, attribute in _parts(attributes)
        for (_, oid), (kind, value) in [_parts(attribute)]
        if oid == _COMMON_NAME
    ]
    if len(common) == 1 and common[0][0] in (_UTF8, _PRINTABLE):
        yield common[0][1]
    for tag, wrapped in fields:
        if tag != _EXTENSIONS:
            continue
        ((_, extensions),) = _parts(wrapped)
        for _, extension in _parts(extensions):
            (_, oid), *_, (_, value) = _parts(extension)
            if oid == _ALTERNATIVE_NAMES:
                ((_, alternatives),) = _parts(value)
                yield from (name for kind, name in _parts(alternatives) if kind == _DNS_NAME)


def _parts(der: bytes) -> list[tuple[int, bytes]]:
    """Tag and value of each element; IndexError where they do not fill it exactly."""
    found, at = [], 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length >= 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[at : at + size], "big")
            at += size
        if at + length > len(der):
            raise IndexError("an element is longer than what it is in")
        found.append((tag, der[at : at + length]))
        at += length
    return found
