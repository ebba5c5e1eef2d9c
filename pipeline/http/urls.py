"""URLs as text: how they are shown to people, and which of them can be fetched."""

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlsplit

from pipeline import causes
from pipeline.names import hide_secrets, is_upload, upload_problem
from pipeline.outcome import content

SCHEMES = ("http", "https")

_IN_QUERY = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"<>')
_IN_PATH = "".join(sign for sign in _IN_QUERY if sign not in "`{}")
"""Characters of a URL that browsers send unchanged; they escape all others."""

_DIVIDERS = re.compile(r"[\s|]")
_AUTHORITY = re.compile(r"((?:\s*[A-Za-z][A-Za-z0-9+.-]*:)?[/\\]*)([^/\\?#]*)")
_SERVER = re.compile(r"[^/?#]*//[^/?#]*")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")


def redact_url(url: str) -> str:
    """The URL for display: without user, password, and query values that look secret.

    Also works for an invalid URL, since a password is often written without escapes.
    """
    address, mark, query = _without_user(url).partition("#")[0].partition("?")
    return hide_secrets(address + mark + _DIVIDERS.sub(lambda sign: quote(sign[0]), query))


def _without_user(url: str) -> str:
    match = _AUTHORITY.match(url)
    assert match is not None  # it matches the empty text
    start, authority, rest = match[1], match[2], url[match.end() :]
    if "@" in authority:
        return start + authority.rpartition("@")[2] + rest
    name, colon, port = authority.rpartition(":")
    if not colon or not port or port.isdecimal() or authority.endswith("]"):
        return url
    # Not a port, so a password that contains a '/', '?' or '#'.
    _, at, host = rest.rpartition("@")
    return f"{start}...@{host}" if at else f"{start}{name}:...{rest}"


def as_sent(written: str | bytes, *, path: bool = False) -> str:
    """A URL's text, or its path, as browsers send it: escapes only what HTTP cannot carry.

    Escapes, dot segments and other characters stay as they are: a signature may cover them (decision 75).
    """
    return quote(written, safe=_IN_PATH if path else _IN_QUERY)


@dataclass(frozen=True)
class _Server:
    host: str = ""
    place: str = ""
    problem: str = ""
    """Why nothing can be fetched from there: the end of a sentence that begins with the URL."""


def host_of(url: str) -> str:
    """The host that a URL names, in lower case and without its port; '' if it names none."""
    return _server_of(url).host


def place_of(url: str) -> str:
    """Host and port of a URL, the key of back-offs and host limits; the host alone for port 443."""
    return _server_of(url).place


def _server_of(url: str) -> _Server:
    named = _SERVER.match(url)
    return _parsed(named[0] if named else url)


@lru_cache(maxsize=128)  # the files of an object mostly have one server
def _parsed(beginning: str) -> _Server:
    """The server that the beginning of a URL names."""
    try:
        parts = urlsplit(beginning)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # the error's text may quote a password
        return _Server(problem=" is not a URL: its host or its port is not valid, or a sign needs an escape")
    scheme = parts.scheme.lower()
    problem = ""
    if scheme not in SCHEMES:
        problem = ": content is fetched by http and https only; give such a URL"
    elif not host:
        problem = " names no host"
    elif not _may_exist(host):
        problem = " names a host that cannot exist: correct the URL"
    port = port or (80 if scheme == "http" else 443)
    name = f"[{host}]" if ":" in host else host
    return _Server(host, name if port == 443 or not host else f"{name}:{port}", problem)


def url_problem(url: str) -> str | None:
    """Why nothing can be fetched from `url`, with the remedy; None if the text is a usable URL."""
    return upload_problem(url) if is_upload(url) else web_problem(url)


def web_problem(url: str) -> str | None:
    """Why `url` cannot be requested, with the remedy; None if the text is a usable URL."""
    problem = _server_of(url).problem
    if not problem and "#" in url:
        problem = " is followed by a '#', after which nothing is sent: write '#' as %23"
    if not problem and _UNPRINTABLE.search(url):
        problem = " contains a space or a control character: write a space as %20"
    return f"'{redact_url(url)}'{problem}" if problem else None


def _may_exist(host: str) -> bool:
    """False for names with an empty or too long label (RFC 1035, 2.3.4); addresses are checked later."""
    labels = host.removesuffix(".").split(".")
    return ":" in host or (len(host) <= 254 and all(0 < len(label) <= 63 for label in labels))


def check_url(url: str) -> None:
    """Raise StepFailed(content) if the text of `url` shows that it cannot be fetched."""
    if problem := url_problem(url):
        raise content(problem).because(causes.URL_INVALID())


def has_password(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.username or parts.password)
