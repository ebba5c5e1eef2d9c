"""Signatures of messages: with a key of the site, whoever can only write to Redis can order no work.

The signature covers the body and the headers, which name the task; a message that is sent again keeps it. A
release without keys ignores the header.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import Any

from pipeline.settings import Settings
from tasks.message import Foreign

HEADER = "arkline_signature"

OPTION = "message_keys"
"""Name of the transport option with the keys. Celery shows its settings, but no value of a name with KEY."""

_CHANGED_ON_THE_WAY = frozenset({HEADER, "redelivered"})
"""Headers that are no part of the signature; kombu sets `redelivered`."""


@dataclass(frozen=True)
class Keys:
    """The first key signs; a signature of any of them is accepted. Without a key nothing is signed."""

    keys: tuple[bytes, ...] = field(default=(), repr=False)
    unsigned: bool = False
    """Whether messages without a signature are accepted as well."""
    fingerprint: str = ""
    """kombu shares connections among equal options, which it compares by their text."""

    def __json__(self) -> str:
        """For workers' answers about themselves, which have all transport options."""
        return f"{len(self.keys)} keys"

    def sign(self, message: dict[str, Any]) -> dict[str, Any]:
        """The message with a signature, if there is a key."""
        if not self.keys:
            return message
        signature = _signature(message, self.keys[0])
        return {**message, "headers": {**message["headers"], HEADER: signature}}

    def verify(self, message: dict[str, Any]) -> None:
        """Foreign if somebody without a key has sent or changed the message."""
        if not self.keys:
            return
        given = message["headers"].get(HEADER)
        if given is None and self.unsigned:
            return
        if not isinstance(given, str):
            raise Foreign("it has no signature, and ARKLINE_MESSAGE_KEY is set")
        offered = given.encode("utf-8", "replace")  # JSON may have characters that UTF-8 lacks
        expected = [_signature(message, key).encode() for key in self.keys]
        if not any([hmac.compare_digest(offered, signature) for signature in expected]):
            raise Foreign("its signature is not of a key in ARKLINE_MESSAGE_KEY")


def keys_of(settings: Settings) -> Keys:
    keys = tuple(part.encode() for part in settings.message_keys)
    fingerprint = hmac.new(keys[0], b"fingerprint", hashlib.sha256).hexdigest()[:8] if keys else ""
    return Keys(keys, settings.message_unsigned, fingerprint)


def _signature(message: dict[str, Any], key: bytes) -> str:
    headers = {name: value for name, value in message["headers"].items() if name not in _CHANGED_ON_THE_WAY}
    signed = json.dumps([message["body"], headers], sort_keys=True, separators=(",", ":"), default=str)
    return hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()
