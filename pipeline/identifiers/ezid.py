"""ARKs registered at EZID: numbered by our own counter, reserved, then published with their metadata.

Rule: EZID never chooses a name. So every request can be retried after a crash or a lost answer with the same
result, and a job uses one ARK (docs/decisions/0017).
"""

from collections.abc import Mapping
from urllib.parse import quote

import requests
from requests.auth import HTTPBasicAuth

from pipeline import causes
from pipeline.attempt import UNATTENDED, ArkRecord
from pipeline.description import anvl
from pipeline.http import service
from pipeline.http.service import FIRST_PAUSE, raise_if_transient, retry_request, translated
from pipeline.http.urls import redact_url
from pipeline.identifiers.minter import (
    Assignment,
    Claim,
    Known,
    LastCheck,
    Minter,
    no_claim,
    none_known,
)
from pipeline.outcome import Service, ServiceDown, StepFailed, caused_by, fault_of, system, transient
from pipeline.profiles.profile import MinterName, Profile
from pipeline.records import Identifiers, Job
from pipeline.settings import Settings
from pipeline.states import FailureKind

UNUSED = "arkline-doctor"
"""The end of a name that has no check character, so that no minter gives it out."""

TIMEOUT = 30.0
"""Seconds to wait for an answer."""

MARK = "arkline.job"
"""The element that names the job that an identifier was registered for."""

_QUOTED = 300
"""Characters of EZID's answer that a message quotes."""

_LOGIN = "check ARKLINE_EZID_USER and ARKLINE_EZID_PASSWORD, and that this user may write below the shoulder"
_REFUSES = causes.SERVICE_REFUSED(service=Service.IDENTIFIERS)
_PERMANENT = ("bad request", "method not allowed", "not found")
_EXISTS = "identifier already exists"
_NOT_KNOWN = "no such identifier"


class _Refused(StepFailed):
    """EZID understood the request and refused it: a system failure, unless the caller expected it."""


class EzidMinter(Minter):
    """Registers the ARKs of profiles with minter ezid, or with none if EZID is set up; others are local."""

    def __init__(self, settings: Settings, pause: float = FIRST_PAUSE) -> None:
        self._settings = settings
        self._url = settings.ezid_url.rstrip("/")
        self._service = f"EZID ({redact_url(self._url)})"
        self._pause = pause

    def mint(
        self,
        job: Job,
        profile: Profile,
        job_record: ArkRecord,
        claim: Claim = no_claim,
        known: Known = none_known,
        identifiers: Identifiers | None = None,
    ) -> str:
        """Record the name, then reserve it at EZID, where it stays reserved until it is announced."""
        registers = self._registers(profile)
        ark = super().mint(job, profile, job_record, claim, known, identifiers)
        if (
            registers
            and not self._reserve(ark, job, profile)
            and (self._registered(ark) or {}).get(MARK) != _mark(job)
        ):
            raise _taken(ark)
        return ark

    def announce(
        self,
        ark: str,
        profile: Profile,
        erc: anvl.Pairs,
        assigned: Assignment | None = None,
        last_check: LastCheck = UNATTENDED.check,
    ) -> None:
        """Publish a reserved name with its metadata; a name that a curator withdrew stays withdrawn.

        A name that could not be reserved when it was minted is registered now.
        """
        if not (self._registers(profile) and ark.startswith(f"ark:/{profile.naan}/{profile.shoulder}")):
            return
        last_check()
        entry = self._registered(ark)
        if entry is None and assigned is None:
            return
        if entry is None and assigned is not None:
            # False if the answer to an earlier request of this job was lost
            self._reserve(ark, assigned.job, profile)
            entry = self._registered(ark)
        elements = entry or {}
        if assigned is not None and MARK not in elements and assigned.is_first():
            raise _taken(ark)
        status = {"_status": "public"} if elements.get("_status") == "reserved" else {}
        self._ask("POST", ark, self._metadata(ark, profile, erc) | status)

    def check(self, profile: Profile) -> None:
        """Ask EZID, once, for a name of the profile's shoulder that is never given out.

        StepFailed or ServiceDown if EZID does not answer, or refuses the login.
        """
        if not self._registers(profile):
            return
        try:
            self._send("GET", f"ark:/{profile.naan}/{profile.shoulder}{UNUSED}", None)
        except _Refused as refusal:
            if _NOT_KNOWN not in refusal.message:
                raise

    def uses_service(self, profile: Profile) -> bool:
        return bool(self._url) and profile.minter is not MinterName.LOCAL

    def _registers(self, profile: Profile) -> bool:
        """Whether ARKs of the profile are registered at EZID."""
        if profile.minter is MinterName.EZID and not self._url:
            raise system(
                f"profile {profile.name} has minter: ezid, but ARKLINE_EZID_URL is not set: set it for the "
                "workers, or change the profile to minter: local"
            )
        return self.uses_service(profile)

    def _metadata(self, ark: str, profile: Profile, erc: anvl.Pairs) -> dict[str, str]:
        metadata = {"erc": anvl.write(erc).decode()}
        if profile.context:
            metadata["mrt.creator"] = profile.context
        if self._settings.ezid_target:
            metadata["_target"] = self._settings.ezid_target.replace("{ark}", quote(ark, safe=""))
        return metadata

    def _reserve(self, ark: str, job: Job, profile: Profile) -> bool:
        """Register the ARK as reserved for the job; False if EZID already has the ARK."""
        try:
            self._ask("PUT", ark, {**_registration(job, profile), "_status": "reserved"})
        except _Refused as refusal:
            if _EXISTS not in refusal.message:
                raise
            return False
        return True

    def _registered(self, ark: str) -> dict[str, str] | None:
        """The elements that EZID has for the ARK; None if EZID does not know the ARK."""
        try:
            return self._ask("GET", ark)
        except _Refused as refusal:
            if _NOT_KNOWN in refusal.message:
                return None
            raise

    @caused_by(_REFUSES, FailureKind.SYSTEM)
    @fault_of(Service.IDENTIFIERS)
    def _ask(self, method: str, ark: str, metadata: Mapping[str, str] | None = None) -> dict[str, str]:
        """The elements of EZID's answer; _Refused if EZID refuses the request."""
        body = None if metadata is None else _encode(metadata)
        answer = retry_request(lambda: self._send(method, ark, body), self._pause)
        name = answer.pop("success").split(" ")[0]
        if name != ark:
            raise system(f"{self._service} answered for {name}, not for {ark}: check ARKLINE_EZID_URL")
        return answer

    def _send(self, method: str, ark: str, body: bytes | None) -> dict[str, str]:
        settings = self._settings
        with translated(self._service, "check ARKLINE_EZID_URL"):
            response = service.request(
                method,
                f"{self._url}/id/{quote(ark, safe=':/')}",
                data=body,
                headers={"Content-Type": "text/plain; charset=UTF-8", "Accept": "text/plain"},
                auth=HTTPBasicAuth(
                    settings.ezid_user.encode(), settings.ezid_password.get_secret_value().encode()
                ),
                timeout=(settings.connect_timeout, TIMEOUT),
            )
        return self._parse(ark, response)

    def _parse(self, ark: str, response: requests.Response) -> dict[str, str]:
        status = response.status_code
        if status in (401, 403):
            raise ServiceDown(Service.IDENTIFIERS, f"{self._service} refused the login ({status}): {_LOGIN}")
        raise_if_transient(response.status_code, response.headers, self._service)
        try:
            pairs = anvl.parse(response.content, "the answer")
        except StepFailed:
            pairs = ()
        outcome, text = pairs[0] if pairs else ("", "")
        if outcome == "error":
            raise self._error(ark, " ".join(text.split())[:_QUOTED])
        if status >= 300:
            raise system(f"{self._service} answered {status}: check ARKLINE_EZID_URL")
        if outcome != "success":
            raise transient(
                f"{self._service} gave an answer that is not EZID's: another server may answer in its place"
            )
        return {**dict(pairs[1:]), "success": text}

    def _error(self, ark: str, text: str) -> StepFailed | ServiceDown:
        """The meaning of EZID's error; `unauthorized` may come with any HTTP status."""
        if text.startswith(("unauthorized", "forbidden")):
            return ServiceDown(Service.IDENTIFIERS, f"EZID answered '{text}': {_LOGIN}")
        if text.startswith(_PERMANENT):
            return _Refused(FailureKind.SYSTEM, f"{self._service} refused {ark}: {text}")
        return transient(f"{self._service} answered '{text}'")


def _mark(job: Job) -> str:
    return f"{job.bid}/{job.jid} {job.configuration.submitted_at.isoformat()}"


def _registration(job: Job, profile: Profile) -> dict[str, str]:
    owner = {"_owner": profile.ezid_co_owner} if profile.ezid_co_owner else {}
    return {"_profile": "erc", MARK: _mark(job), **owner}


def _taken(ark: str) -> StepFailed:
    return system(
        f"{ark} was just minted, but EZID has this ARK registered for something else: give the profile a "
        "shoulder that nobody else uses, or set the counter of minted identifiers beyond the last ARK at "
        "EZID; then submit again"
    ).because(causes.NUMBER_REUSED())


def _encode(metadata: Mapping[str, str]) -> bytes:
    """ANVL for EZID: one line per element, with `%` and line ends escaped."""
    return "".join(f"{name}: {anvl.escape(value)}\n" for name, value in metadata.items()).encode()
