"""HMAC signatures of callbacks: a receiver that knows the secret can verify the sender and the time.

The headers `webhook-*` are those of Standard Webhooks, whose own library computes the signature. Secrets are
read here: that library takes every text for base64 and ignores characters that are none, so that a mistyped
secret would sign with another key.

A collection's secret is in the file NAME.secret beside its profile; the setting is the default. A secret is
never in a profile, because profiles are shown to people.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook

from pipeline.outcome import system
from pipeline.settings import Settings

DELIVERY_ID = "webhook-id"
"""Header with JID-RETRIES, the same for every repetition: a receiver can ignore what it has seen."""

TIME = "webhook-timestamp"
"""Header with the time of this request in seconds since 1970."""

SIGNATURE = "webhook-signature"
"""Header: `v1,` and the HMAC-SHA256 of `ID.TIME.BODY` in base64; one for each secret, with blanks between."""

BASE64_SECRET = b"whsec_"
"""Prefix of a secret that is written in base64, as the libraries of Standard Webhooks expect it."""

OLD_DELIVERY_ID = "Arkline-Delivery"
OLD_SIGNATURE = "Arkline-Signature"
"""Header: `sha256=` and the HMAC-SHA256 of the body alone in hexadecimal, for receivers of 0.1 and 0.2."""

SUFFIX = ".secret"
"""Suffix of the file with a collection's secret."""

MIN_SECRET_BYTES = 16
"""Minimum length of a secret in bytes; a shorter one can be guessed."""


def callback_secrets_of(settings: Settings, profile_name: str) -> tuple[bytes, ...]:
    """The collection's secrets, else the default one; empty if callbacks are not signed.

    While a secret is replaced, the collection's file has the new and the old one on a line of their own.
    """
    path = settings.profiles / f"{profile_name}{SUFFIX}"
    try:
        secrets, source = _lines(path.read_bytes().strip()), str(path)
    except FileNotFoundError:
        secrets = (settings.callback_secret.get_secret_value().encode(),)
        source = "the setting ARKLINE_CALLBACK_SECRET"
        if secrets == (b"",):
            return ()
    except OSError as error:
        raise system(f"the callback's secret {path} cannot be read: {error.strerror}") from error
    if min((len(_key(secret)) for secret in secrets), default=0) < MIN_SECRET_BYTES:
        raise system(
            f"the callback's secret in {source} is shorter than {MIN_SECRET_BYTES} bytes: write a longer one"
        )
    return secrets


def _lines(content: bytes) -> tuple[bytes, ...]:
    """The secrets of a file, one on each line; a file of random bytes is one secret, line feeds included."""
    text = content.isascii() and content.replace(b"\r", b"").replace(b"\n", b"").decode().isprintable()
    return tuple(line for line in map(bytes.strip, content.splitlines()) if line) if text else (content,)


def signed_headers(delivery: str, sent: int, body: bytes, secrets: Sequence[bytes]) -> dict[str, str]:
    """The headers of one request, with a signature of every secret.

    `sent`: seconds since 1970; `body`: UTF-8, as every form of a callback is.
    """
    headers = {DELIVERY_ID: delivery, TIME: str(sent), OLD_DELIVERY_ID: delivery}
    if not secrets:
        return headers
    time, text = datetime.fromtimestamp(sent, UTC), body.decode()
    return {
        **headers,
        SIGNATURE: " ".join(Webhook(_key(secret)).sign(delivery, time, text) for secret in secrets),
        OLD_SIGNATURE: f"sha256={hmac.new(secrets[0], body, hashlib.sha256).hexdigest()}",
    }


def _key(secret: bytes) -> bytes:
    if not secret.startswith(BASE64_SECRET):
        return secret
    try:
        return base64.b64decode(secret.removeprefix(BASE64_SECRET), validate=True)
    except binascii.Error as error:
        raise system("the callback's secret starts with whsec_, but is not base64: write it again") from error
