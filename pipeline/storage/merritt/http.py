"""Requests to the Merritt storage service, and what its answers mean."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import requests
import urllib3.exceptions as faults

from pipeline.fixity import PIECE
from pipeline.http.retry import FIRST_PAUSE, PASSING, Passing, retry_after, retry_request
from pipeline.outcome import StepFailed, system, transient
from pipeline.settings import Settings
from pipeline.states import FailureKind
from pipeline.urls import redact_url

_SHOWN = 300
"""Characters of the service's own words in a message."""

Answer = TypeVar("Answer")

_LATER = "what it did is looked at by the next try"
_ADDRESS = "check ARKLINE_STORAGE_SERVICE_URL and the storage node"


class Absent(StepFailed):
    """The service has no such thing."""


class MerrittHttp:
    def __init__(self, settings: Settings, pause: float = FIRST_PAUSE) -> None:
        self._settings = settings
        self._base = settings.storage_service_url.rstrip("/")
        self._pause = pause
        self.name = f"the storage service {redact_url(self._base)}"

    def url(self, *parts: str | int) -> str:
        return "/".join([self._base, *(quote(str(part), safe="") for part in parts)])

    def shown_url(self, *parts: str | int) -> str:
        """As it may be kept and shown."""
        return redact_url(self.url(*parts))

    def get(self, *parts: str | int) -> bytes | None:
        """The body; None if there is no such thing."""

        def once() -> bytes | None:
            with self._asked("GET", parts, timeout=self._settings.read_timeout) as response:
                if response.status_code == 404:
                    return None
                self._judge(response)
                return response.content

        return retry_request(lambda: self._translated(once), self.name, self._pause)

    def pieces(self, *parts: str | int) -> Iterator[bytes]:
        """The body as it arrives; a passing fault in the middle is transient."""
        try:
            with self._asked("GET", parts, timeout=self._settings.read_timeout) as response:
                self._judge(response)
                yield from response.iter_content(PIECE)
        except (requests.RequestException, faults.HTTPError, Passing) as fault:
            raise transient(f"{self.name} did not hand {parts[-1]} over: {fault}") from fault

    def post(self, jid: str, form: Mapping[str, str], *parts: str | int) -> dict[str, Any]:
        """The version state that the service answers.

        Asked again at once only if the service cannot have begun: what it began it may still be doing when
        its answer is lost, and the job's next try looks at what became of it.
        """

        def once() -> dict[str, Any]:
            with self._asked(
                "POST", parts, form, {"JID": jid}, self._settings.storage_service_timeout
            ) as response:
                if response.status_code not in (*PASSING, 503):
                    self._judge_change(response)
                self._judge(response)
                return self._version_state(response.content)

        def judged() -> dict[str, Any]:
            try:
                return once()
            except requests.exceptions.SSLError:
                raise  # nothing was begun
            except requests.ConnectTimeout as error:
                raise Passing("does not take a connection") from error
            except requests.ConnectionError as error:
                if "refused" in str(error):
                    raise Passing("refuses the connection") from error
                raise self._unknown("broke off") from error
            except requests.Timeout as error:
                raise self._unknown("did not answer in time") from error

        return retry_request(lambda: self._translated(judged), self.name, self._pause)

    def _asked(
        self,
        method: str,
        parts: tuple[str | int, ...],
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> requests.Response:
        return requests.request(
            method,
            self.url(*parts),
            data=form,
            headers=headers,
            timeout=(self._settings.connect_timeout, timeout),
            allow_redirects=False,
            stream=True,
        )

    def _translated(self, ask: Callable[[], Answer]) -> Answer:
        """Faults of the connection as what they mean for the job."""
        try:
            return ask()
        except requests.exceptions.SSLError as error:
            raise system(
                f"{self.name} has no certificate that is trusted, or does not speak TLS: {_ADDRESS}"
            ) from error
        except requests.Timeout as error:
            raise Passing("did not answer in time") from error
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
            raise Passing("cannot be reached, or broke off") from error
        except requests.RequestException as error:
            raise system(f"{self.name} cannot be asked ({type(error).__name__}): {_ADDRESS}") from error

    def _judge(self, response: requests.Response) -> None:
        status = response.status_code
        if status >= 500 or status in PASSING:
            raise Passing(f"answered {status}", retry_after(response.headers.get("Retry-After")))
        if status >= 300:
            raise self._refused(response)

    def _judge_change(self, response: requests.Response) -> None:
        """A service that failed in the middle may have done it or not: that is looked at first."""
        if response.status_code >= 500:
            raise self._unknown(f"answered {response.status_code} ({_words(response)})")

    def _unknown(self, what: str) -> StepFailed:
        """Nobody knows whether it made the version: it may be at work on it still."""
        return transient(f"{self.name} {what}; {_LATER}", self._settings.storage_service_look_again)

    def _refused(self, response: requests.Response) -> StepFailed:
        said = f"{self.name} answered {response.status_code} ({_words(response)}): {_ADDRESS}"
        return Absent(FailureKind.SYSTEM, said) if response.status_code == 404 else system(said)

    def _version_state(self, body: bytes) -> dict[str, Any]:
        """Its fields without their prefix."""
        try:
            answer = json.loads(body)
            state = answer["ver:versionState"]
            return {str(name).rpartition(":")[2]: value for name, value in state.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unknown("answered something that is not the state of a version") from error


def _words(response: requests.Response) -> str:
    text = " ".join(response.text.split())
    return text[:_SHOWN] or response.reason or "no reason given"
