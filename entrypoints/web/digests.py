"""Digests in headers, as RFC 9530 writes them: `Repr-Digest: sha-512=:BASE64:`."""

import base64
import binascii
import re
from collections.abc import Mapping

from pipeline.errors import UsageRefused
from pipeline.fixity import Digest

REPR_DIGEST = "Repr-Digest"
CONTENT_DIGEST = "Content-Digest"

_ALGORITHMS = {"sha-512": "sha512", "sha-256": "sha256", "sha": "sha1", "md5": "md5"}
"""The names of RFC 9530, the strongest first."""

_MEMBER = re.compile(r"([a-z0-9-]+)=:([A-Za-z0-9+/=]*):")


def declared_digest(headers: Mapping[str, str], *names: str) -> Digest | None:
    """The strongest digest in the first of these headers that is there; UsageRefused if none can be used."""
    header = next((name for name in names if name in headers), None)
    if header is None:
        return None
    given = dict(_MEMBER.findall(headers[header]))
    for name, algorithm in _ALGORITHMS.items():
        if name in given:
            return _digest(header, algorithm, given[name])
    raise UsageRefused(
        f"{header} has no digest that can be compared: send {' or '.join(_ALGORITHMS)}, as sha-256=:BASE64:"
    )


def _digest(header: str, algorithm: str, text: str) -> Digest:
    try:
        return Digest(algorithm=algorithm, value=base64.b64decode(text, validate=True).hex())
    except (binascii.Error, ValueError) as error:
        raise UsageRefused(f"{header}: '{text[:100]}' is not the base64 of a {algorithm} digest") from error


def written(sha512: str) -> str:
    """The value of the header for a digest of record."""
    return f"sha-512=:{base64.b64encode(bytes.fromhex(sha512)).decode()}:"
