"""Callbacks: an HTTP POST to the depositor's system when a job completes or fails."""

import time

import requests

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.http.address import AddressRefused, ContentSession
from pipeline.http.retry import FIRST_PAUSE, raise_if_transient, retry_request, translated
from pipeline.http.urls import redact_url
from pipeline.notify.callback_payload import callback_facts, render, response_format
from pipeline.notify.signature import callback_secret_of, signed_headers
from pipeline.outcome import fault_of, system, transient
from pipeline.profiles.profile import Profile
from pipeline.records import Job
from pipeline.services import Service
from pipeline.settings import Settings


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
        url = str(profile.callback_url)
        payload = render(callback_facts(job, version), response_format(job, profile))
        secret = callback_secret_of(self._settings, profile.name)

        def post() -> None:
            """Signed at its own time: a receiver refuses what is old."""
            delivery = f"{job.jid}-{job.status.retry_count}"
            signed = signed_headers(delivery, int(time.time()), payload.body, secret)
            self._post(url, payload.body, {"Content-Type": payload.media_type, **signed}, attempt)

        with fault_of(Service.CALLBACK, profile.callback_url.host or ""):
            retry_request(post, self._pause, attempt)

    def _post(self, url: str, body: bytes, headers: dict[str, str], attempt: Attempt) -> None:
        timeouts = (self._settings.connect_timeout, self._settings.callback_timeout)
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
                # user and password of the URL become Basic authentication; the answer's body is not read
                session.post(url, body, headers=headers, timeout=timeouts, stream=True) as response,
            ):
                _judge(url, response)
        except AddressRefused as error:
            raise system(
                f"{_name(url)} is at an address that is not public: "
                "an operator may allow its network by the setting ARKLINE_ALLOW_NETWORKS"
            ) from error


def _name(url: str) -> str:
    return f"the callback {redact_url(url)}"


def _judge(url: str, response: requests.Response) -> None:
    raise_if_transient(response, _name(url))
    status = response.status_code
    if status < 300:
        return
    if status < 400:
        remedy = "write the URL that it redirects to in the profile"
    else:
        remedy = "check the URL in the profile and what its receiver expects"
    raise system(f"{_name(url)} answered {status}: {remedy}")
