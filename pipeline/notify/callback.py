"""Callbacks: an HTTP POST to the depositor's system when a job completes or fails."""

import secrets
import time
from dataclasses import dataclass

from urllib3 import Timeout

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.http.address import ContentSession
from pipeline.http.refusals import AddressRefused
from pipeline.http.response import Response
from pipeline.http.retry import FIRST_PAUSE, raise_if_transient, retry_request, translated
from pipeline.http.urls import redact_url
from pipeline.notify.callback_payload import Payload, callback_facts, render, response_format, test_facts
from pipeline.notify.signature import callback_secrets_of, signed_headers
from pipeline.outcome import fault_of, system, transient
from pipeline.profiles.profile import Profile
from pipeline.records import Job, ResponseType
from pipeline.services import Service
from pipeline.settings import Settings


@dataclass(frozen=True)
class _Request:
    """What is sent; every repetition is signed anew."""

    url: str
    payload: Payload
    delivery: str
    secrets: tuple[bytes, ...]


class HttpCallback:
    def __init__(self, settings: Settings, pause: float = FIRST_PAUSE) -> None:
        self._settings = settings
        self._pause = pause

    def deliver(self, job: Job, profile: Profile, version: int | None, attempt: Attempt = UNATTENDED) -> None:
        """POST the job's state to the profile's callback URL; do nothing if the profile has none.

        AttemptOver once the attempt is over, at most a second late.
        """
        if profile.callback_url is None:
            return
        request = self._request(job, profile, version)
        with fault_of(Service.CALLBACK, profile.callback_url.host or ""):
            retry_request(lambda: self._send(request, attempt), self._pause, attempt)

    def deliver_once(self, job: Job, profile: Profile, version: int | None) -> int:
        """As `deliver`, by one request; the status of the answer. StepFailed unless the receiver took it."""
        return self._send(self._request(job, profile, version), UNATTENDED)

    def send_test(self, profile: Profile) -> int:
        """POST a test, signed as a callback is; the status of the answer. StepFailed as `deliver_once`."""
        payload = render(test_facts(profile.name), profile.notification_format or ResponseType.JSON)
        return self._send(self._signed(f"test-{secrets.token_hex(8)}", profile, payload), UNATTENDED)

    def _request(self, job: Job, profile: Profile, version: int | None) -> _Request:
        payload = render(callback_facts(job, version), response_format(job, profile))
        return self._signed(f"{job.jid}-{job.status.retry_count}", profile, payload)

    def _signed(self, delivery: str, profile: Profile, payload: Payload) -> _Request:
        secrets_of_collection = callback_secrets_of(self._settings, profile.name)
        return _Request(str(profile.callback_url), payload, delivery, secrets_of_collection)

    def _send(self, request: _Request, attempt: Attempt) -> int:
        """Signed at its own time: a receiver refuses what is old."""
        payload = request.payload
        signed = signed_headers(request.delivery, int(time.time()), payload.body, request.secrets)
        return self._post(request.url, payload.body, {"Content-Type": payload.media_type, **signed}, attempt)

    def _post(self, url: str, body: bytes, headers: dict[str, str], attempt: Attempt) -> int:
        timeout = Timeout(connect=self._settings.connect_timeout, read=self._settings.callback_timeout)
        deadline = time.monotonic() + self._settings.callback_timeout

        def check() -> None:
            attempt.check()
            if time.monotonic() > deadline:
                raise transient(f"{_name(url)} did not answer in time")

        try:
            with (
                translated(_name(url), "check the URL in the profile"),
                ContentSession(self._settings.allow_networks) as session,
                session.checked(check),
            ):
                # user and password of the URL become Basic authentication; the answer's body is not read
                response = session.request("POST", url, timeout, headers, body)
                response.close()
                _judge(url, response)
                return response.status
        except AddressRefused as error:
            raise system(
                f"{_name(url)} is at an address that is not public: "
                "an operator may allow its network by the setting ARKLINE_ALLOW_NETWORKS"
            ) from error


def _name(url: str) -> str:
    return f"the callback {redact_url(url)}"


def _judge(url: str, response: Response) -> None:
    status = response.status
    raise_if_transient(status, response.headers, _name(url))
    if status < 300:
        return
    if status < 400:
        remedy = "write the URL that it redirects to in the profile"
    else:
        remedy = "check the URL in the profile and what its receiver expects"
    raise system(f"{_name(url)} answered {status}: {remedy}")
