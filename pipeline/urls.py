"""URLs as text: how they are shown to people, and which can be fetched at all."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pipeline.outcome import content

_SECRET = re.compile(r"(?i)sig|token|secret|pass|credential|key|auth")


_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")


def redact_url(url: str) -> str:
    """The URL as people may see it: without user, password, and values of the query that look secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    host = parts.netloc.rpartition("@")[2]
    query = parts.query
    if _SECRET.search(query):
        pairs = parse_qsl(query, keep_blank_values=True)
        query = urlencode([(name, "..." if _SECRET.search(name) else value) for name, value in pairs])
    return urlunsplit((parts.scheme, host, parts.path, query, ""))


def host_of(url: str) -> str:
    """The host that a URL names, in lower case and without its port; '' if it names none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def check_url(url: str) -> None:
    """Raise a content failure unless `url` is an http or https URL with a host."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise content(f"'{redact_url(url)}' is not a URL: {error}") from error
    if parts.scheme.lower() not in ("http", "https"):
        raise content(f"'{redact_url(url)}': content is fetched by http and https only; give such a URL")
    if not host:
        raise content(f"'{redact_url(url)}' names no host")
    if _UNPRINTABLE.search(url):
        raise content(
            f"'{redact_url(url)}' holds a space or a control character: write it as %20 and the like"
        )
