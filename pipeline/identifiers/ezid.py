"""ARKs registered at EZID: chosen by our own counter, reserved there, made public with their metadata.

Rule: EZID is never asked to choose a name. What it is asked can be asked again after a crash or a lost
answer and comes out the same, so that a job costs one ARK (docs/decisions/0017).
"""

from collections.abc import Mapping
from urllib.parse import quote

import requests
from requests.auth import HTTPBasicAuth

from pipeline.description import anvl
from pipeline.http.retry import (
    FIRST_PAUSE,
    TransientError,
    raise_if_transient,
    retry_request,
    translated,
)
from pipeline.identifiers.minter import Chosen, Claim, LocalMinter, nothing
from pipeline.job_record import JobRecord
from pipeline.outcome import StepFailed, system
from pipeline.profiles.profile import Profile
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.urls import redact_url

MARK = "arkline.job"
"""The element that says which job an identifier was registered for."""

_SHOWN = 300
"""Characters of EZID's own words in a message."""

_LOGIN = "check ARKLINE_EZID_USER and ARKLINE_EZID_PASSWORD, and that this user may write below the shoulder"
_PERMANENT = ("bad request", "method not allowed", "not found")


_EXISTS = "identifier already exists"


class _Refused(Exception):
    """EZID understood, and will not do it."""


class EzidMinter:
    def __init__(self, settings: Settings, pause: float = FIRST_PAUSE) -> None:
        self._settings = settings
        self._url = settings.ezid_url.rstrip("/")
        self._service = f"EZID ({redact_url(self._url)})"
        self._pause = pause
        self._name = LocalMinter()

    def mint(self, job: Job, profile: Profile, job_record: JobRecord, claim: Claim = nothing) -> str:
        """The name is in the record before EZID hears of it; it is reserved there until it is announced."""
        ark = self._name.mint(job, profile, job_record, claim)
        try:
            self._ask("PUT", ark, {**_registration(job, profile), "_status": "reserved"})
        except _Refused as refusal:
            if _EXISTS not in str(refusal):
                raise self._failure(ark, refusal) from refusal
            self._check_ours(ark, _mark(job))
        return ark

    def announce(self, ark: str, profile: Profile, erc: anvl.Pairs, chosen: Chosen | None = None) -> None:
        """A name that EZID keeps as reserved becomes public; one that a curator withdrew stays withdrawn.

        One that EZID was away for when it was minted is registered now, for whichever job comes first.
        """
        if not ark.startswith(f"ark:/{profile.naan}/{profile.shoulder}"):
            return
        metadata = {"erc": anvl.write(erc).decode()}
        if profile.context:
            metadata["mrt.creator"] = profile.context
        if self._settings.ezid_target:
            metadata["_target"] = self._settings.ezid_target.replace("{ark}", quote(ark, safe=""))
        found = self._found(ark)
        if found is None:
            if chosen is None:
                return
            try:
                self._ask("PUT", ark, {**_registration(chosen.job, profile), "_status": "reserved"})
            except _Refused as refusal:
                # the answer to this very request may have been lost before
                if _EXISTS not in str(refusal):
                    raise self._failure(ark, refusal) from refusal
            found = self._found(ark) or {}
        if chosen is not None and MARK not in found and chosen.is_first():
            raise _taken(ark)
        status = {"_status": "public"} if found.get("_status") == "reserved" else {}
        try:
            self._ask("POST", ark, metadata | status)
        except _Refused as refusal:
            raise self._failure(ark, refusal) from refusal

    def _found(self, ark: str) -> dict[str, str] | None:
        """What EZID knows of the ARK; None if nothing."""
        try:
            return self._ask("GET", ark)
        except _Refused as refusal:
            if "no such identifier" in str(refusal):
                return None
            raise self._failure(ark, refusal) from refusal

    def _check_ours(self, ark: str, mark: str) -> None:
        """The name may be there because our own earlier try reached EZID, and for no other reason."""
        try:
            found = self._ask("GET", ark)
        except _Refused as refusal:
            raise self._failure(ark, refusal) from refusal
        if found.get(MARK) != mark:
            raise _taken(ark)

    def _ask(self, method: str, ark: str, metadata: Mapping[str, str] | None = None) -> dict[str, str]:
        """EZID's answer without its first line; _Refused if it says no."""
        body = None if metadata is None else _written(metadata)
        answer = retry_request(lambda: self._send(method, ark, body), self._service, self._pause)
        name = answer.pop("success").split(" ")[0]
        if name != ark:
            raise system(
                f"{self._service} answered for {name} when it was asked about {ark}: check ARKLINE_EZID_URL"
            )
        return answer

    def _send(self, method: str, ark: str, body: bytes | None) -> dict[str, str]:
        settings = self._settings
        with translated(self._service, "check ARKLINE_EZID_URL"):
            response = requests.request(
                method,
                f"{self._url}/id/{quote(ark, safe=':/')}",
                data=body,
                headers={"Content-Type": "text/plain; charset=UTF-8", "Accept": "text/plain"},
                auth=HTTPBasicAuth(
                    settings.ezid_user.encode(), settings.ezid_password.get_secret_value().encode()
                ),
                timeout=(settings.connect_timeout, settings.ezid_timeout),
                allow_redirects=False,
            )
        return self._judge(response)

    def _judge(self, response: requests.Response) -> dict[str, str]:
        status = response.status_code
        if status in (401, 403):
            raise system(f"{self._service} refuses the login ({status}): {_LOGIN}")
        raise_if_transient(response)
        try:
            pairs = anvl.parse(response.content, "the answer")
        except StepFailed:
            pairs = ()
        word, said = pairs[0] if pairs else ("", "")
        if word == "error":
            raise _of_error(" ".join(said.split()))
        if status >= 300:
            raise system(f"{self._service} answered {status}: check ARKLINE_EZID_URL")
        if word != "success":
            raise TransientError("answered something that is not EZID's: another service may stand in for it")
        return {**dict(pairs[1:]), "success": said}

    def _failure(self, ark: str, refusal: _Refused) -> StepFailed:
        return system(f"{self._service} refuses {ark}: {refusal}")


def _mark(job: Job) -> str:
    return f"{job.bid}/{job.jid} {job.configuration.submitted_at.isoformat()}"


def _registration(job: Job, profile: Profile) -> dict[str, str]:
    owner = {"_owner": profile.ezid_co_owner} if profile.ezid_co_owner else {}
    return {"_profile": "erc", MARK: _mark(job), **owner}


def _taken(ark: str) -> StepFailed:
    return system(
        f"{ark} was just minted, but EZID has it already, registered for something else: give the "
        "profile a shoulder that nobody else mints below, or set the counter of minted identifiers "
        "beyond the last ARK there; then submit again"
    )


def _of_error(said: str) -> Exception:
    """`unauthorized` and the like may come with any status."""
    if said.startswith(("unauthorized", "forbidden")):
        return system(f"EZID says '{said[:_SHOWN]}': {_LOGIN}")
    if said.startswith(_PERMANENT):
        return _Refused(said[:_SHOWN])
    return TransientError(f"says '{said[:_SHOWN]}'")


def _written(metadata: Mapping[str, str]) -> bytes:
    """ANVL as EZID reads it: a line an element, `%`, and what would end a line, escaped."""
    return "".join(f"{name}: {anvl.escape(value)}\n" for name, value in metadata.items()).encode()
