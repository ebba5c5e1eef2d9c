"""Removes secrets and mail addresses from text that leaves the deployment.

Two nets: the values that settings, their files and the environment have as secrets, in each form in which a
log may have them; and the forms of secrets that nobody knows here, such as tokens and passwords in URLs.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, quote, quote_plus, unquote, urlsplit

from pydantic import SecretStr

from pipeline.names import SECRET, hide_secrets
from pipeline.settings import SECRETS, Settings

REMOVED, ADDRESS = "[removed]", "[mail address]"

SHORTEST = 4
"""Characters: the removal of a shorter secret would show it by what is left of other words."""

LARGEST = 1 << 16
"""Bytes of a file of secrets."""

_VARIABLE = re.compile(
    r"(?i)pass|pwd|secret|token|credential|private|auth(?!or)|(?<![a-z])(?:key|pw)(?![a-z])"
)
"""Part of the name of a variable in the environment that is a secret. A login has others that are none, and
have words such as `user` and `path`: XDG_SESSION_CLASS, DBUS_SESSION_BUS_ADDRESS."""

_MAIL = re.compile(r"[\w.+%'-]{1,64}(?:@|%40|\\u0040)[\w-]+(?:\.[\w-]+)+")
_FORMS = re.compile(
    r"""(?isx) \bark_[a-z0-9_-]{8,} | \b(?:bearer|basic)\s+[a-z0-9+/=._~-]{8,} | \beyJ[\w-]{10,}\.[\w.-]+
    | -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z\ ]*PRIVATE\ KEY-----|\Z)
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b | (?<=://)[^\s/@"'<>]*:[^\s@"'<>]*@"""
)
_PAIR = re.compile(
    r"""(?ix) ( ["']?[\w-]*(?:password|passwd|secret|token|api[_-]?key|credential)[\w-]*\\?["']?
    \s*[:=]\s*\\?["']? ) (?!true|false|null|set\b|not\ set) ([^\s"'\\,;&}]{4,})"""
)


class Redaction:
    def __init__(self, settings: Settings, names: Iterable[str] = ()) -> None:
        """`names`: of workers, which may look like addresses and are kept."""
        secrets = {form for one in _secrets(settings) if len(one) >= SHORTEST for form in _forms(one)}
        longest_first = sorted(secrets, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._names = frozenset(names)

    def __call__(self, text: str) -> str:
        text = hide_secrets(self._secrets.sub(REMOVED, text))
        text = _PAIR.sub(rf"\1{REMOVED}", _FORMS.sub(REMOVED, text))
        return _MAIL.sub(lambda match: match[0] if match[0] in self._names else ADDRESS, text)


def _secrets(settings: Settings) -> Iterator[str]:
    for _, value in settings:
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
        elif isinstance(value, str):
            yield from _of_url(value)
    folder = os.environ.get(SECRETS)
    files = [*settings.profiles.glob("*.secret"), *(Path(folder).expanduser().glob("*") if folder else ())]
    for path in (*files, *([settings.zk_tls_key] if settings.zk_tls_key else ())):
        with suppress(OSError):  # what this user cannot read, this process cannot have written
            for row in path.read_text(errors="replace")[:LARGEST].splitlines():
                yield from (row.strip(), *_of_url(row))
    for name, value in os.environ.items():  # of plugins, S3, Flower, PostgreSQL, OpenTelemetry
        yield from _of_url(value)
        if _VARIABLE.search(name) and not value.startswith("/"):
            yield from (value, *re.split(r"[:=,\s]", value))


def _of_url(value: str) -> Iterator[str]:
    """The password of a URL, and the values of its parameters that look secret."""
    with suppress(ValueError):
        parts = urlsplit(value)
        if parts.scheme and parts.netloc:
            yield from (parts.password or "", unquote(parts.password or ""))
            secret = (texts for name, texts in parse_qs(parts.query).items() if SECRET.search(name))
            yield from (text for texts in secret for text in texts if not text.startswith("/"))


def _forms(secret: str) -> Iterator[str]:
    """As it is, escaped for a URL and for JSON, and in base64."""
    yield from (secret, quote(secret, safe=""), quote_plus(secret))
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    yield base64.b64encode(secret.encode()).decode().rstrip("=")
