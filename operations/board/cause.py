"""The cause of a failure from its message: what stays once ids, numbers, names and URLs are left out."""

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from pipeline.states import FailureKind

TEMPLATE_LIMIT = 300
"""Characters of a template."""

_URL = re.compile(r"\bhttps?://[^\s'\"<>]+")
_REPLACEMENTS = (
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\""), "'…'"),
    (re.compile(r"\bark:/?\d[^\s,;:)]*"), "ARK"),
    (re.compile(r"\b(?:jid|bid)\d+\b"), "ID"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE), "#"),
    (re.compile(r"(?<![\w.])/[\w.+-]+(?:/[\w.+-]+)+"), "PATH"),
    (re.compile(r"(?<!HTTP )(?<!answered )\b\d+(?:[.,:]\d+)*"), "#"),
)
"""An HTTP status stays, because it tells causes apart."""


@dataclass(frozen=True)
class CauseOfFailure:
    id: str
    template: str
    host: str


def cause_of(kind: FailureKind, message: str) -> CauseOfFailure:
    """Failures with the same kind, template and host have the same cause.

    >>> cause_of(FailureKind.TRANSIENT, "http://a.org/1.txt answered 503").template
    'URL answered 503'
    """
    url = _URL.search(message)
    host = _host(url[0]) if url else ""
    template = _URL.sub("URL", message)
    for pattern, instead in _REPLACEMENTS:
        template = pattern.sub(instead, template)
    template = " ".join(template.split())[:TEMPLATE_LIMIT]
    digest = hashlib.sha256("\0".join((kind, template, host)).encode()).hexdigest()
    return CauseOfFailure(digest[:12], template, host)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
