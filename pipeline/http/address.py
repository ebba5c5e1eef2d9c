"""Requests to sources, and where their redirects may lead."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Self
from urllib.parse import unquote, urljoin

from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3 import Timeout
from urllib3.util import Url, make_headers, parse_url

from pipeline.http.connections import DEFAULT_PORT, Connections
from pipeline.http.interruptible import Exchange
from pipeline.http.networks import Networks
from pipeline.http.refusals import SourceRefused
from pipeline.http.response import Response
from pipeline.http.urls import as_sent, check_url, place_of, redact_url, url_problem
from pipeline.names import quote_name
from pipeline.outcome import content
from pipeline.profiles.sources import EVERYWHERE, Sources

REDIRECTS = 10
"""Redirects followed from one URL; browsers stop at 20, and honest chains have two or three."""

_URL = re.compile(r"(?P<server>[^/?#]*//[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_REDIRECT = frozenset({301, 302, 303, 307, 308})


class ContentSession:
    """Requests to sources: checked addresses, no cookies, nothing taken from the environment; close it.

    It may be used by several threads at a time: it keeps no state but open connections.
    """

    def __init__(self, allowed: Networks, sources: Sources = EVERYWHERE, certificates: str = "") -> None:
        """`certificates`: a file of the authorities that are trusted; empty: those of the web."""
        self._sources = sources
        self._exchange = Exchange()
        authorities = certificates or DEFAULT_CA_BUNDLE_PATH
        self._connections = Connections(allowed, sources, self._exchange, authorities)
        self._headers = {
            "User-Agent": f"arkline/{version('arkline')}",
            "Accept-Encoding": "identity",  # the bytes as they are stored, without a content coding
            "Accept": "*/*",
            "Connection": "keep-alive",
        }

    def close(self) -> None:
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def checked(
        self, check: Callable[[], None], redirected: Callable[[str], None] = lambda host: None
    ) -> Iterator[None]:
        """In this block, the connections of this thread call `check` at least each second; what it raises
        ends the request, or the reading of its answer. `redirected` as in Exchange.
        """
        self._exchange.check, self._exchange.redirected = check, redirected
        try:
            yield
        finally:
            del self._exchange.check, self._exchange.redirected

    def request(
        self,
        method: str,
        url: str,
        timeout: Timeout,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response:
        """The answer with its body unread, to be closed. Redirects are followed, unless `body` was
        sent, and their bodies are never read.

        Errors: StepFailed for a refused address or URL; urllib3's HTTPError and UnicodeError for all else.
        """
        target = self._checked_source(url)
        sent = {**self._headers, **(headers or {}), **_password(target)}
        for _ in range(REDIRECTS + 1):
            response = self._connections.send(method, target, timeout, sent, body)
            redirects = response.status in _REDIRECT and "location" in response.headers
            if body is not None or not redirects:
                return response
            response.close()
            before, target = target, self._checked_source(redirection(response))
            if place_of(before.url) != place_of(target.url):
                self._exchange.redirected(place_of(target.url))
            if not _keeps_password(before, target):
                sent.pop("Authorization", None)
        response.close()
        raise content(f"{redact_url(url)} redirects more than {REDIRECTS} times: give the URL it leads to")

    def _checked_source(self, url: str) -> Url:
        """The parts of a URL that may be requested; StepFailed of another one."""
        check_url(url)
        target = _parts(url)
        host, scheme = (target.host or "").strip("[]"), target.scheme or ""
        if not self._sources.may_have(host, target.port or DEFAULT_PORT[scheme]):
            raise SourceRefused(host, target.port or DEFAULT_PORT[scheme])
        return target


def _password(target: Url) -> dict[str, str]:
    """The header with the user and the password of a URL, if there are both."""
    if ":" not in (target.auth or ""):
        return {}
    return {"Authorization": make_headers(basic_auth=unquote(target.auth or ""))["authorization"]}


def _keeps_password(before: Url, target: Url) -> bool:
    """Whether a redirect stays with the server for which the password is; https instead of http does."""
    if before.host != target.host:
        return False
    ports = [place.port or DEFAULT_PORT[place.scheme or ""] for place in (before, target)]
    if (before.scheme, target.scheme) == ("http", "https"):
        return ports == [80, 443]
    return before.scheme == target.scheme and ports[0] == ports[1]


def _parts(url: str) -> Url:
    """The parts of a URL: those that name a server as they are compared, path and query as they are sent."""
    server, path, query = _split(url)
    return parse_url(server)._replace(
        path=as_sent(path, path=True), query=None if query is None else as_sent(query)
    )


def _split(url: str) -> tuple[str, str, str | None]:
    """Scheme and server, path, query (None without one); the fragment is not sent."""
    written = _URL.match(url)
    assert written is not None
    return written["server"], written["path"], written["query"]


def redirection(response: Response) -> str:
    """The URL to which an answer redirects, without a fragment, which is not sent."""
    location = response.headers["location"]
    try:
        # http.client read headers as latin-1: these are the bytes that were sent, whatever their encoding
        url = _joined(response.url, as_sent(location.encode("latin-1")).partition("#")[0])
    except ValueError as error:
        raise content(
            f"{redact_url(response.url)} redirects to {quote_name(location)}, which is not a URL"
        ) from error
    if problem := url_problem(url):
        raise content(f"{redact_url(response.url)} redirects to {problem}")
    return url


def _joined(asked: str, location: str) -> str:
    """As urljoin, which rewrites dot segments and drops an empty query; here a whole path stays as it is."""
    server, path, _ = _split(asked)
    if _SCHEME.match(location):
        return location
    if location.startswith("//"):
        return server.partition("//")[0] + location
    if location.startswith("/"):
        return server + location
    if location.startswith("?"):
        return server + path + location
    return urljoin(asked, location)
