"""HMAC signatures of callbacks: a receiver that knows the secret can verify the sender.

A collection's secret is in the file NAME.secret beside its profile; the setting is the default. A secret is
never in a profile, because profiles are shown to people.
"""

import hashlib
import hmac

from pipeline.outcome import system
from pipeline.settings import Settings

SIGNATURE = "Arkline-Signature"
"""Header: `sha256=` and the HMAC-SHA256 of the body in lower-case hexadecimal."""

SUFFIX = ".secret"
"""Suffix of the file with a collection's secret."""

MIN_SECRET_BYTES = 16
"""Minimum length of a secret in bytes; a shorter one can be guessed."""


def callback_secret_of(settings: Settings, profile_name: str) -> bytes | None:
    """The collection's secret, else the default secret; None if callbacks are not signed."""
    path = settings.profiles / f"{profile_name}{SUFFIX}"
    try:
        secret, source = path.read_bytes().strip(), str(path)
    except FileNotFoundError:
        secret = settings.callback_secret.get_secret_value().encode()
        source = "the setting ARKLINE_CALLBACK_SECRET"
        if not secret:
            return None
    except OSError as error:
        raise system(f"the callback's secret {path} cannot be read: {error.strerror}") from error
    if len(secret) < MIN_SECRET_BYTES:
        raise system(
            f"the callback's secret in {source} is shorter than {MIN_SECRET_BYTES} bytes: write a longer one"
        )
    return secret


def signature(body: bytes, secret: bytes) -> str:
    return f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"
