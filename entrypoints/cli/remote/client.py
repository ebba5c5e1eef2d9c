"""Requests to the API of a site, and its problems as the errors that the command line shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.errors import Action, ArklineError, ErrorKind, Remedy, ServiceUnreachable, UsageRefused
from pipeline.records import Record

if TYPE_CHECKING:
    import requests

R = TypeVar("R", bound=Record)

CONNECT_TIMEOUT = 10.0
ANSWER_TIMEOUT = 300.0
"""Seconds to wait for an answer: the end of an upload is synced to the disk before it is answered."""


class RemoteFault(ArklineError):
    """The site failed to answer the request."""

    error_kind = ErrorKind.OTHER


@dataclass(frozen=True)
class Client:
    """`url` without a slash at its end."""

    url: str
    token: str

    def get(self, path: str, kind: type[R], **query: object) -> R:
        return kind.model_validate_json(self.request("GET", path, query=query).content)

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
        """The answer; ServiceUnreachable, UsageRefused or RemoteFault if it is a problem."""
        import requests  # takes a while to load

        given = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            answer = requests.request(
                method,
                f"{self.url}{path}",
                params={name: str(value) for name, value in given.items()},
                json=json,
                data=data,
                headers={"Authorization": f"Bearer {self.token}", **(headers or {})},
                timeout=(CONNECT_TIMEOUT, ANSWER_TIMEOUT),
                allow_redirects=False,  # the token is for this site alone
            )
        except requests.RequestException as error:
            raise ServiceUnreachable(
                f"{self.url} does not answer ({type(error).__name__}): check ARKLINE_URL and the network"
            ) from error
        if answer.ok:
            return answer
        raise _error_of(answer)


def _error_of(answer: requests.Response) -> ArklineError:
    """The problem of an answer with the exit code that the same error has beside the stack."""
    problem = _problem(answer)
    detail = str(problem.get("detail") or f"{answer.url} answered {answer.status_code} {answer.reason}")
    if answer.status_code in (423, 429, 503, 507):
        error: ArklineError = ServiceUnreachable(detail)
    elif 400 <= answer.status_code < 500:
        error = UsageRefused(detail)
    else:
        error = RemoteFault(detail)
    return error.with_remedies(*_remedies(problem.get("remedies")))


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
