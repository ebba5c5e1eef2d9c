"""Requests to the Merritt storage service, and the interpretation of its responses."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

import requests

from pipeline.fixity import READ_CHUNK
from pipeline.http import service
from pipeline.http.service import FIRST_PAUSE, raise_if_transient, retry_request, translated
from pipeline.http.urls import redact_url
from pipeline.outcome import OutcomeUnknown, Service, ServiceDown, StepFailed, fault_of, system
from pipeline.settings import Settings
from pipeline.states import FailureKind
from plugins.merritt.settings import MerrittSettings

_QUOTED = 300
"""Maximum characters of the service's response quoted in a message."""

_LATER = "the next attempt checks whether the version was created"
_ADDRESS = "check ARKLINE_STORAGE_SERVICE_URL and the storage node"


class Absent(StepFailed):
    """The service has no such object, version or file."""


class MerrittHttp:
    def __init__(self, settings: Settings, own: MerrittSettings, pause: float = FIRST_PAUSE) -> None:
        self._settings = settings
        self._own = own
        self._base = own.storage_service_url.rstrip("/")
        self._pause = pause
        self.name = f"the storage service {redact_url(self._base)}"

    def url(self, *parts: str | int) -> str:
        return "/".join([self._base, *(quote(str(part), safe="") for part in parts)])

    def shown_url(self, *parts: str | int) -> str:
        """The URL without secrets, for messages and records."""
        return redact_url(self.url(*parts))

    @fault_of(Service.STORAGE)
    def get(self, *parts: str | int) -> bytes | None:
        """The body; None if the service has no such resource."""
        with suppress(Absent):
            return retry_request(lambda: b"".join(self.pieces(*parts)), self._pause)
        return None

    def pieces(self, *parts: str | int) -> Iterator[bytes]:
        """The body as it arrives; a retryable fault midway is transient."""
        with (
            translated(f"{self.name} did not deliver {parts[-1]}: it", _ADDRESS),
            self._request("GET", parts, self._settings.read_timeout) as response,
        ):
            self._check(response)
            yield from response.iter_content(READ_CHUNK)

    @fault_of(Service.STORAGE)
    def post(self, jid: str, form: Mapping[str, str], *parts: str | int) -> dict[str, Any]:
        """The version state in the service's response.

        Retried at once only if the service cannot have begun. Otherwise it may still be creating the version
        after its answer was lost: the job's next attempt looks for that version.
        """
        return retry_request(lambda: self._post(jid, form, parts), self._pause)

    def _post(self, jid: str, form: Mapping[str, str], parts: tuple[str | int, ...]) -> dict[str, Any]:
        timeout = self._own.storage_service_timeout
        with (
            translated(self.name, _ADDRESS),
            self._begun_unless_refused(),
            self._request("POST", parts, timeout, data=form, headers={"JID": jid}) as response,
        ):
            if response.status_code >= 500 and response.status_code != 503:
                raise self._unknown(f"answered {response.status_code} ({_words(response)})")
            self._check(response)
            return self._version_state(response.content)

    @contextmanager
    def _begun_unless_refused(self) -> Iterator[None]:
        """Raise a lost answer as transient, with the delay of the next attempt; other faults pass through."""
        try:
            yield
        except (requests.exceptions.SSLError, requests.ConnectTimeout):
            raise
        except requests.ConnectionError as error:
            if "refused" in str(error):
                raise
            raise self._unknown("broke the connection") from error
        except requests.Timeout as error:
            raise self._unknown("did not answer in time") from error

    def _request(
        self, method: str, parts: tuple[str | int, ...], timeout: float, **given: Any
    ) -> requests.Response:
        timeouts = (self._settings.connect_timeout, timeout)
        return service.request(method, self.url(*parts), timeout=timeouts, stream=True, **given)

    def _check(self, response: requests.Response) -> None:
        """Raise unless the status means success."""
        raise_if_transient(response.status_code, response.headers, self.name)
        if response.status_code >= 300:
            words = f"{self.name} answered {response.status_code} ({_words(response)}): {_ADDRESS}"
            if response.status_code in (401, 403):
                raise ServiceDown(Service.STORAGE, words)  # it refuses every request
            raise Absent(FailureKind.SYSTEM, words) if response.status_code == 404 else system(words)

    def _unknown(self, what: str) -> OutcomeUnknown:
        """The error for a version that the service may have created, or may still be creating."""
        return OutcomeUnknown(f"{self.name} {what}; {_LATER}", self._own.storage_service_recheck_after)

    def _version_state(self, body: bytes) -> dict[str, Any]:
        """The fields of the version state, without their prefix."""
        try:
            answer = json.loads(body)
            state = answer["ver:versionState"]
            return {str(name).rpartition(":")[2]: value for name, value in state.items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._unknown("gave a response that is not a version state") from error


def _words(response: requests.Response) -> str:
    text = " ".join(response.text.split())
    return text[:_QUOTED] or response.reason or "no reason given"
