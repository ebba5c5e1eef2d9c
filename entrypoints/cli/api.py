"""The API of a site: what every command asks, and its problems as the errors that the command line shows.

It is asked over the network where ARKLINE_URL and ARKLINE_TOKEN name a web process. Where none is named, and
where that of the stack on this machine does not answer, the same application is called in this process.

Objects over the API: their records and the recorded custody of their files.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import TypeAdapter

from entrypoints.cli.command_table import deferring, load_all
from entrypoints.cli.reach import TOKEN, URL, is_own_stack
from operations.objects.objects import ObjectView
from pipeline.errors import Action, ArklineError, ErrorKind, Remedy, ServiceUnreachable, UsageRefused
from pipeline.preservation.custody import Custody
from pipeline.records import Record

if TYPE_CHECKING:
    import requests

    from entrypoints.web.in_process import InProcess

R = TypeVar("R", bound=Record)

CONNECT_TIMEOUT = 10.0
PROBE_TIMEOUT = 2.0
"""Seconds to wait for the web process of the stack on this machine to take a connection."""

ANSWER_TIMEOUT = 300.0
"""Seconds to wait for an answer: the end of an upload is synced to the disk before it is answered."""


class RemoteFault(ArklineError):
    """The site failed to answer the request, or the job or batch has moved."""


class RemoteDamage(ArklineError):
    """The site's storage does not have the bytes that were stored."""

    error_kind = ErrorKind.DAMAGED


class RemoteInterruption(ArklineError):
    """The caller stopped the work; the message says what was done."""

    error_kind = ErrorKind.INTERRUPTED


_CLASSES: dict[ErrorKind, type[ArklineError]] = {
    ErrorKind.REFUSED: UsageRefused,
    ErrorKind.UNREACHABLE: ServiceUnreachable,
    ErrorKind.DAMAGED: RemoteDamage,
    ErrorKind.INTERRUPTED: RemoteInterruption,
    ErrorKind.OTHER: RemoteFault,
}


def quoted(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def path_of(name: str) -> str:
    """The path of a job or of a batch, by its id."""
    return f"/v1/{'batches' if name.startswith('bid') else 'jobs'}/{name}"


def if_match(version: int | None) -> dict[str, str]:
    """The header of a verb that must not meet a later state than its caller saw."""
    return {} if version is None else {"If-Match": f'"{version}"'}


@dataclass(frozen=True)
class Client:
    """`url` without a slash at its end. `here`: the application in this process, instead of a host."""

    url: str
    token: str
    here: InProcess | None = None

    def get(self, path: str, kind: type[R], **query: object) -> R:
        return kind.model_validate_json(self.request("GET", path, query=query).content)

    def get_list(self, path: str, kind: type[R]) -> tuple[R, ...]:
        return tuple(map(kind.model_validate, self.request("GET", path).json()))

    def post(self, path: str, kind: type[R], body: Mapping[str, object], **headers: str) -> R:
        return kind.model_validate_json(self.request("POST", path, json=body, headers=headers).content)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        json: object = None,
        data: Iterable[bytes] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """The answer; the error that the site answered, or ServiceUnreachable if it does not answer."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return self._send(
            method,
            path,
            params={name: str(value) for name, value in given.items()},
            json=json,
            data=data,
            headers=headers or {},
            timeout=(CONNECT_TIMEOUT, ANSWER_TIMEOUT),
        )

    def open_stream(self, path: str, last: str, silence: float) -> Generator[str]:
        """The lines of a stream of events after the event `last`, until the site ends it.

        ServiceUnreachable if the site does not answer, or sends nothing for `silence` seconds.
        """
        import requests

        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        timeout = (CONNECT_TIMEOUT, silence)
        with self._send("GET", path, headers=headers, timeout=timeout, stream=True) as answer:
            try:
                answer.encoding = "utf-8"
                # without a size, what the site sends is passed on at once
                yield from answer.iter_lines(chunk_size=None, decode_unicode=True)
            except requests.RequestException as error:
                raise self._unreachable(error) from error

    def _send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        timeout: tuple[float, float],
        **options: Any,
    ) -> requests.Response:
        import requests  # takes a while to load

        from pipeline.http import service

        try:
            answer = service.request(
                method,
                f"{self.url}{path}",
                headers={**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **headers},
                timeout=timeout,
                adapter=self.here,
                **options,
            )
        except requests.RequestException as error:
            raise self._unreachable(error) from error
        if answer.ok:
            return answer
        raise _error_of(answer)

    def _unreachable(self, error: Exception) -> ServiceUnreachable:
        return ServiceUnreachable(
            f"{self.url} does not answer ({type(error).__name__}): check ARKLINE_URL and the network"
        )


@contextmanager
def site(by: str = "", *, record: bool = True) -> Iterator[Client]:
    """The site that the command asks; `by`: the person who acts, where the site is called in this process.

    `record`: False for a command that is answered without ZooKeeper.
    """
    named = client()
    if named is not None and not (is_own_stack() and not _takes_connections(named.url)):
        with deferring():
            yield named
        return
    from entrypoints.cli import context
    from entrypoints.web.in_process import in_process  # FastAPI and all routes take more than a second

    load_all()
    context.quiet_logs()
    settings = context.settings()
    timeout = context.CONNECT_TIMEOUT if record else None
    with in_process(settings, context.principal(by), timeout) as here:
        yield Client("http://arkline", "", here)


def client() -> Client | None:
    """The client of the web process in ARKLINE_URL; None if none is named."""
    url, token = os.environ.get(URL, ""), os.environ.get(TOKEN, "")
    if not url and not token:
        return None
    if not url or not token:
        lacking, given = (URL, TOKEN) if token else (TOKEN, URL)
        raise UsageRefused(f"{given} is set without {lacking}: set both to use a site's API, or none")
    from pipeline.http import urls

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


def _error_of(answer: requests.Response) -> ArklineError:
    """The problem of an answer with the exit code that the same error has beside the stack."""
    problem = _problem(answer)
    detail = str(problem.get("detail") or f"{answer.url} answered {answer.status_code} {answer.reason}")
    if _lacks_reason(problem.get("errors")):
        detail = "a reason is required, and kept in the history: add --reason WHY"
    error = _CLASSES[_kind(problem, answer.status_code)](detail)
    return error.with_remedies(*_remedies(problem.get("remedies")))


def _lacks_reason(errors: object) -> bool:
    rows = errors if isinstance(errors, list) else []
    return any(isinstance(row, dict) and row.get("at") == ["body", "reason"] for row in rows)


def _kind(problem: Mapping[str, Any], status: int) -> ErrorKind:
    """The kind that a site of this release answers; for an answer of a proxy, what its status means."""
    if status == 429:  # beside the stack nothing is limited
        return ErrorKind.UNREACHABLE
    if (given := problem.get("kind")) in set(ErrorKind):
        return ErrorKind(given)
    if status in (423, 429, 502, 503, 504, 507):
        return ErrorKind.UNREACHABLE
    return ErrorKind.REFUSED if 400 <= status < 500 else ErrorKind.OTHER


def _problem(answer: requests.Response) -> dict[str, Any]:
    try:
        problem = answer.json()
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def _remedies(given: object) -> Iterable[Remedy]:
    for row in given if isinstance(given, list) else []:
        if isinstance(row, dict) and row.get("action") in set(Action):
            yield Remedy(Action(row["action"]), str(row.get("target", "")))


_VIEW: TypeAdapter[ObjectView] = TypeAdapter(ObjectView)


class _Answer(Record):
    object: dict[str, Any]
    custody: dict[str, Any]
    timeline: tuple[dict[str, Any], ...]


def object_view(client: Client, ark: str, version: int | None, *, every: bool) -> ObjectView:
    """The object; its custody as recorded, of one version or of `every` version: no byte is read."""
    first = _read(client, ark, version)
    if not every:
        return first
    numbers = [held.number for held in first.versions]
    custody = _whole([_read(client, ark, number).custody for number in numbers])
    return ObjectView(**{**vars(first), "custody": custody})


def _read(client: Client, ark: str, version: int | None) -> ObjectView:
    answer = client.get(f"/v1/objects/{quote(ark, safe=':')}", _Answer, version=version)
    facts = {**answer.object, "custody": answer.custody, "timeline": answer.timeline}
    return _VIEW.validate_python(facts)


def _whole(parts: Sequence[Custody]) -> Custody:
    return Custody(
        versions=tuple(number for part in parts for number in part.versions),
        began=min(part.began for part in parts),
        ended=max(part.ended for part in parts),
        bytes_read=0,
        read=False,
        complete=all(part.complete for part in parts),
        agrees=all(part.agrees for part in parts),
        files=tuple(file for part in parts for file in part.files),
    )
