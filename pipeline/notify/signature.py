"""By what a receiver of a callback knows that it is ours: a signature with a secret that both know.

The secret of one collection is in NAME.secret beside its profile; there or in the setting, never in a
profile, which is shown.
"""

import hashlib
import hmac

from pipeline.outcome import system
from pipeline.settings import Settings

SIGNATURE = "Arkline-Signature"
"""Header with `sha256=` and the HMAC-SHA256 of the body in hexadecimal, in small letters."""

SUFFIX = ".secret"
"""Ending of the file with a collection's secret."""

SHORTEST = 16
"""Bytes of a secret at least; shorter ones can be found by trying."""


def secret_of(settings: Settings, profile_name: str) -> bytes | None:
    """The collection's secret, or else everybody's; None if nothing is to be signed."""
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
    if len(secret) < SHORTEST:
        raise system(
            f"the callback's secret in {source} is shorter than {SHORTEST} bytes: write a longer one"
        )
    return secret


def signature(body: bytes, secret: bytes) -> str:
    return f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"
