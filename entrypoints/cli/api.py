"""Client of a site's API: sends every command's requests, and raises the problems as errors.

Requests go over the network if ARKLINE_URL and ARKLINE_TOKEN, or else the current login of `arkline login`,
name a web process. If none is named, or the web process of the stack on this machine does not answer, the
same application is called in this process.
"""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit

import certifi
import urllib3
from pydantic import ConfigDict, TypeAdapter

from entrypoints.cli import context, logins
from entrypoints.cli.command_table import load_all
from entrypoints.cli.reach import TOKEN, URL, is_own_stack
from entrypoints.web import in_process
from pipeline import codes
from pipeline.attempt import Progress
from pipeline.codes import ErrorKind
from pipeline.errors import Action, ArklineError, Remedy, ServiceUnreachable, UsageRefused
from pipeline.fixity import READ_CHUNK
from pipeline.http import service, urls

if TYPE_CHECKING:
    from entrypoints.web.in_process import InProcess
    from pipeline.records import Record

R = TypeVar("R", bound="Record")

CONNECT_TIMEOUT = 10.0
PROBE_TIMEOUT = 2.0
"""Seconds to wait for the web process of this machine's stack to accept a connection."""

ANSWER_TIMEOUT = 300.0
"""Seconds to wait for an answer: an upload is synced to disk before it is acknowledged."""


class Away(ServiceUnreachable):
    """The site did not answer, or has no time now; `wait`: the seconds that it asks for, if any."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class RefusedBySite(UsageRefused):
    """The site refuses the request."""


_PROGRESS: TypeAdapter[Progress | None] = TypeAdapter(Progress | None, config=ConfigDict(defer_build=True))

_ERRORS: Mapping[ErrorKind, Callable[[str], ArklineError]] = {
    ErrorKind.REFUSED: RefusedBySite,
    ErrorKind.UNREACHABLE: ServiceUnreachable,
    ErrorKind.DAMAGED: partial(ArklineError, code=codes.REMOTE_DAMAGE),
    ErrorKind.INTERRUPTED: partial(ArklineError, code=codes.REMOTE_INTERRUPTION),
    ErrorKind.OTHER: partial(ArklineError, code=codes.REMOTE_FAULT),
}


def quoted(name: str) -> str:
    """A name as one path segment."""
    return quote(name, safe="")


def path_of(name: str) -> str:
    """The path of a job or a batch, from its id."""
    return f"/v1/{'batches' if name.startswith('bid') else 'jobs'}/{name}"


def if_match(version: int | None) -> dict[str, str]:
    """The If-Match header, so that the verb is refused if the status has changed since `version`."""
    return {} if version is None else {"If-Match": f'"{version}"'}


@dataclass(frozen=True)
class Client:
    """`url` has no trailing slash. `here`: the application in this process, instead of a host."""

    url: str
    token: str
    here: InProcess | None = None
    timeout: float = ANSWER_TIMEOUT
    """Seconds to wait for an answer."""
    source: str = f"{URL} and {TOKEN}"
    """Where the address and the token come from."""

    def get(self, path: str, kind: type[R], **query: object) -> R:
        return kind.model_validate_json(self.request("GET", path, query=query))

    def get_json(self, path: str) -> Any:
        return json.loads(self.request("GET", path))

    def progress(self, jid: str) -> Progress | None:
        """The progress of a download; fields of a later release are ignored."""
        return _PROGRESS.validate_json(self.request("GET", f"/v1/jobs/{jid}/progress"))

    def post(self, path: str, kind: type[R], body: Mapping[str, object], **headers: str) -> R:
        return kind.model_validate_json(self._post(path, body, headers))

    def post_json(self, path: str, body: Mapping[str, object], **headers: str) -> Any:
        return json.loads(self._post(path, body, headers))

    def _post(self, path: str, body: Mapping[str, object], headers: Mapping[str, str]) -> bytes:
        sent = {"Content-Type": "application/json", **headers}
        return self.request("POST", path, data=json.dumps(body).encode(), headers=sent)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        data: Iterable[bytes] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The body of the answer; raises the error that the site returned, or ServiceUnreachable."""
        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        with self._answer(method, target, data, headers or {}) as answer:
            return answer.data

    def head(self, path: str) -> Mapping[str, str]:
        """The headers of the answer."""
        with self._answer("HEAD", path, None, {}) as answer:
            return answer.headers

    def pieces(self, path: str) -> Generator[bytes]:
        """The body of an answer as it arrives; ServiceUnreachable after `timeout` seconds without data."""
        with self.answered(path) as answer:
            while part := answer.read1(READ_CHUNK):  # without a number, an early end is no error
                yield part

    @contextmanager
    def answered(self, path: str, headers: Mapping[str, str] = {}) -> Iterator[urllib3.BaseHTTPResponse]:
        """The answer to a GET, to be read within the block; errors as `request`, also while it is read."""
        with self._answer("GET", path, None, headers) as answer:
            yield answer

    @contextmanager
    def _answer(
        self,
        method: str,
        target: str,
        data: Iterable[bytes] | bytes | None,
        headers: Mapping[str, str],
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """The site's answer, to be read within the block."""
        authorization = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            answer = self._sender.request(
                method,
                f"{self.url}{target}",
                body=data,
                headers={**authorization, **headers},
                timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT, self.timeout), read=self.timeout),
                redirect=False,
                retries=False,
                preload_content=False,
            )
            with closing(answer):
                if not 200 <= answer.status < 300:
                    raise _error_of(answer, target, self)
                yield answer
        except urllib3.exceptions.HTTPError as error:
            why = getattr(error.__cause__, "strerror", None) or _FAULTS.get(type(error), "no connection")
            raise Away(
                f"{self.url} does not answer ({why}): check the network and the address, from {self.source}"
            ) from error

    @cached_property
    def _sender(self) -> InProcess | urllib3.PoolManager:
        return self.here or _pool(self.url)


_FAULTS = {
    urllib3.exceptions.ReadTimeoutError: "no answer in time",
    urllib3.exceptions.ProtocolError: "the connection ended without an answer",
}


def _pool(url: str) -> urllib3.PoolManager:
    """Connections to this host, through the proxy and with the certificates named in the environment."""
    certificates = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or certifi.where()
    folder = certificates if Path(certificates).is_dir() else None
    file = None if folder else certificates
    address, proxies = urlsplit(url), urllib.request.getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if proxy is None or urllib.request.proxy_bypass(address.hostname or ""):
        return urllib3.PoolManager(ca_certs=file, ca_cert_dir=folder)
    user = urlsplit(proxy)
    login = f"{unquote(user.username)}:{unquote(user.password or '')}" if user.username else None
    headers = urllib3.make_headers(proxy_basic_auth=login) if login else None
    return urllib3.ProxyManager(proxy, proxy_headers=headers, ca_certs=file, ca_cert_dir=folder)


@contextmanager
def site(by: str = "", *, record: bool = True, local: bool = False) -> Iterator[Client]:
    """The site for a command; `by`: the person acting, if the site is called in this process.

    `record`: False for a command that works without ZooKeeper. `local`: call the site in this process if the
    shell belongs to the stack, without a time limit and with an administrator's rights.
    """
    named = client()
    if named is not None and not (is_own_stack() and (local or not _takes_connections(named.url))):
        yield named
        return
    load_all()
    context.quiet_logs()
    timeout = context.CONNECT_TIMEOUT if record else None
    with in_process.in_process(context.settings(), context.principal(by), timeout) as here:
        yield Client("http://arkline", "", here, source="none: this shell acts on the stack itself")


def client() -> Client | None:
    """The client for ARKLINE_URL, or for the current login; None if there is neither.

    A login is not used in the shell of a stack: there, a command without ARKLINE_URL acts on that stack.
    """
    url, token = os.environ.get(URL, ""), os.environ.get(TOKEN, "")
    if not url and not token:
        of_stack = any(name.startswith("ARKLINE_") for name in os.environ.keys() - {URL, TOKEN})
        saved = logins.SavedLogins() if of_stack else logins.read()
        if (login := saved.servers.get(saved.current)) is None:
            return None
        return Client(saved.current, login.token, source=f"the login in {logins.file()}")
    if not url or not token:
        lacking, given = (URL, TOKEN) if token else (TOKEN, URL)
        raise UsageRefused(f"{given} is set without {lacking}: set both to use a site's API, or none")
    if problem := urls.web_problem(url):
        raise UsageRefused(f"{URL}: {problem}")
    if urls.has_password(url):
        raise UsageRefused(f"{URL} has a user or a password: a site is asked with {TOKEN} alone")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageRefused(f"{TOKEN} has a space or a sign that no token has: copy the token again")
    return Client(url.rstrip("/"), token)


def _takes_connections(url: str) -> bool:
    address = urlsplit(url)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), PROBE_TIMEOUT).close()
    except OSError:
        return False
    return True


def _error_of(answer: urllib3.BaseHTTPResponse, target: str, site: Client) -> ArklineError:
    """The problem in an answer as an error, with the exit code it would have in this process."""
    problem = _problem(answer.data)
    detail = str(problem.get("detail") or f"{target} was answered {answer.status} {answer.reason}")
    if answer.status == 413 and not problem:
        detail += ": a server before the site takes no body of this size (nginx: client_max_body_size)"
    if _lacks_reason(problem.get("errors")):
        detail = "a reason is required, and kept in the history: add --reason WHY"
    if answer.status == 401:
        detail = f"{detail} (asked: {site.url}, with the token from {site.source})"
    kind = _kind(problem, answer.status)
    # a full disk, and an older record, are for people
    by_itself = answer.status != 507 and problem.get("code") != codes.RECORD_OUTDATED.name
    if kind is ErrorKind.UNREACHABLE and by_itself:
        error: ArklineError = Away(detail, service.retry_after(answer.headers.get("Retry-After")) or 0.0)
    else:
        error = _ERRORS[kind](detail)
    return error.with_remedies(*_remedies(problem.get("remedies")))


def _lacks_reason(errors: object) -> bool:
    rows = errors if isinstance(errors, list) else []
    return any(isinstance(row, dict) and row.get("at") == ["body", "reason"] for row in rows)


def _kind(problem: Mapping[str, Any], status: int) -> ErrorKind:
    """The error kind that a site of this release sends; for a proxy's answer, derived from its status."""
    if status == 429:  # in this process nothing is rate-limited
        return ErrorKind.UNREACHABLE
    if (given := problem.get("kind")) in set(ErrorKind):
        return ErrorKind(given)
    if status in (423, 429, 502, 503, 504, 507):
        return ErrorKind.UNREACHABLE
    return ErrorKind.REFUSED if 400 <= status < 500 else ErrorKind.OTHER


def _problem(body: bytes) -> dict[str, Any]:
    try:
        problem = json.loads(body)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _remedies(given: object) -> Iterable[Remedy]:
    for row in given if isinstance(given, list) else []:
        if isinstance(row, dict) and row.get("action") in set(Action):
            yield Remedy(Action(row["action"]), str(row.get("target", "")))
