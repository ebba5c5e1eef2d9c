"""Callbacks: a signed HTTP POST to the depositor's system when a job completes or fails.

The headers `webhook-*` are those of Standard Webhooks, whose own library computes the signature. Secrets are
parsed here: the library treats any text as base64 and ignores invalid characters, so that a mistyped secret
would sign with a different key.

A collection's secret is in the file NAME.secret beside its profile; the setting is the default. A profile
never contains a secret, because profiles are shown to people.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.etree import ElementTree

from standardwebhooks import Webhook

from pipeline import causes
from pipeline.attempt import UNATTENDED, Attempt
from pipeline.description.metadata import final_description
from pipeline.description.xml import clean
from pipeline.http.service import FIRST_PAUSE, raise_if_transient, retry_request
from pipeline.http.session import AddressRefused, ContentSession
from pipeline.http.transfer import ConnectionFault, NotTrusted, Response, Unanswered
from pipeline.http.urls import redact_url
from pipeline.outcome import Service, caused_by, fault_of, system, transient
from pipeline.profiles.profile import Profile
from pipeline.records import Job, ResponseType, now
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, JobState

TIMEOUT = 60.0
"""Seconds to wait for the answer to a callback, including the connection."""

DELIVERY_ID = "webhook-id"
"""Header with JID-RETRIES, the same for every repetition, so that a receiver can ignore duplicates."""

TIME = "webhook-timestamp"
"""Header with the time of this request in seconds since 1970."""

SIGNATURE = "webhook-signature"
"""Header: `v1,` and the HMAC-SHA256 of `ID.TIME.BODY` in base64; one per secret, separated by blanks."""

BASE64_SECRET = b"whsec_"
"""Prefix of a secret in base64, as the Standard Webhooks libraries expect it."""

OLD_DELIVERY_ID = "Arkline-Delivery"
OLD_SIGNATURE = "Arkline-Signature"
"""Header: `sha256=` and the HMAC-SHA256 of the body alone in hexadecimal, for receivers of 0.1 and 0.2."""

SUFFIX = ".secret"
"""Suffix of the file with a collection's secret."""

MIN_SECRET_BYTES = 16
"""Minimum length of a secret in bytes; a shorter one can be guessed."""


@caused_by(causes.CONFIGURATION_INVALID(), FailureKind.SYSTEM)
def callback_secrets_of(settings: Settings, profile_name: str) -> tuple[bytes, ...]:
    """The collection's secrets, else the default one; empty if callbacks are not signed.

    While a secret is being replaced, the collection's file has the new and the old secret, one per line.
    """
    path = settings.profiles / f"{profile_name}{SUFFIX}"
    try:
        secrets, source = _lines(path.read_bytes().strip()), str(path)
    except FileNotFoundError:
        secrets = (settings.callback_secret.get_secret_value().encode(),)
        source = "the setting ARKLINE_CALLBACK_SECRET"
        if secrets == (b"",):
            return ()
    except OSError as error:
        raise system(f"the callback's secret {path} cannot be read: {error.strerror}") from error
    if min((len(_key(secret)) for secret in secrets), default=0) < MIN_SECRET_BYTES:
        raise system(
            f"the callback's secret in {source} is shorter than {MIN_SECRET_BYTES} bytes: write a longer one"
        )
    return secrets


def _lines(content: bytes) -> tuple[bytes, ...]:
    """The secrets in a file, one per line; a file of random bytes is one secret, line feeds included."""
    text = content.isascii() and content.replace(b"\r", b"").replace(b"\n", b"").decode().isprintable()
    return tuple(line for line in map(bytes.strip, content.splitlines()) if line) if text else (content,)


def signed_headers(delivery: str, sent: int, body: bytes, secrets: Sequence[bytes]) -> dict[str, str]:
    """The headers of one request, with one signature per secret.

    `sent`: seconds since 1970; `body`: UTF-8, as in every format of a callback.
    """
    headers = {DELIVERY_ID: delivery, TIME: str(sent), OLD_DELIVERY_ID: delivery}
    if not secrets:
        return headers
    time, text = datetime.fromtimestamp(sent, UTC), body.decode()
    return {
        **headers,
        SIGNATURE: " ".join(Webhook(_key(secret)).sign(delivery, time, text) for secret in secrets),
        OLD_SIGNATURE: f"sha256={hmac.new(secrets[0], body, hashlib.sha256).hexdigest()}",
    }


def _key(secret: bytes) -> bytes:
    if not secret.startswith(BASE64_SECRET):
        return secret
    try:
        return base64.b64decode(secret.removeprefix(BASE64_SECRET), validate=True)
    except binascii.Error as error:
        raise system("the callback's secret starts with whsec_, but is not base64: write it again") from error


NAMESPACE = "http://uc3.cdlib.org/ontology/mrt/ingest/job"
RESOLVER = "https://n2t.net/"


Facts = Mapping[str, str | int]


@dataclass(frozen=True)
class Payload:
    body: bytes
    media_type: str


def callback_facts(job: Job, version: int | None) -> Facts:
    """The facts of a callback; facts without a value are left out.

    Callbacks are sent only for jobs that have completed or failed.
    """
    configuration, status = job.configuration, job.status
    failed = status.status is JobState.FAILED
    ark = job.identifiers.primary_id
    description = final_description(configuration, job.identifiers)
    facts = {
        "jobID": job.jid,
        "batchID": job.bid,
        "depositName": configuration.deposit_name,
        "jobStatus": "FAILED" if failed else "COMPLETED",
        "jobStatusMessage": status.message if failed else None,
        "primaryID": ark,
        "localID": "; ".join(job.identifiers.local_id),
        "versionID": version,
        "packageName": configuration.payload_name,
        "objectCreator": description.who,
        "objectTitle": description.what,
        "objectDate": description.when,
        "note": configuration.note,
        "submissionDate": configuration.submitted_at.isoformat(),
        "completionDate": _work_ended(job).isoformat(),
        "persistentURL": f"{RESOLVER}{ark}" if ark else None,
    }
    return {name: value for name, value in facts.items() if value is not None and value != ""}


def _work_ended(job: Job) -> datetime:
    """When the job failed or its object was recorded, so that a repeated callback has the same date."""
    if job.status.status is not JobState.FAILED:
        for entry in reversed(job.history):
            if (entry.state, entry.event) == (JobState.NOTIFY, Event.SUCCEED):
                return entry.at
    return job.status.since


def test_facts(collection: str) -> Facts:
    """The facts of a test, with a `jobStatus` that no job has."""
    return {
        "jobID": "test",
        "jobStatus": "TEST",
        "jobStatusMessage": f"a test of the callbacks of the collection {collection}; nothing was deposited",
        "completionDate": now().isoformat(),
    }


def response_format(job: Job, profile: Profile) -> ResponseType:
    """The format that the submission asks for, else the collection's, else JSON."""
    if job.configuration.response_type is not ResponseType.JSON:
        return job.configuration.response_type
    return profile.notification_format or ResponseType.JSON


def render(facts: Facts, response_type: ResponseType) -> Payload:
    match response_type:
        case ResponseType.JSON:
            return Payload(_json(facts), "application/json")
        case ResponseType.XML:
            return Payload(_xml(facts), "application/xml")
        case ResponseType.TURTLE:
            return Payload(_turtle(facts), "text/turtle")


def _json(facts: Facts) -> bytes:
    fields = {f"job:{name}": value for name, value in facts.items()}
    return json.dumps({"job:jobState": {"xmlns:job": NAMESPACE, **fields}}, ensure_ascii=False).encode()


def _xml(facts: Facts) -> bytes:
    root = ElementTree.Element("job:jobState", {"xmlns:job": NAMESPACE})
    for name, value in facts.items():
        ElementTree.SubElement(root, f"job:{name}").text = clean(str(value))
    document: bytes = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    return document.replace(b"\r", b"&#13;")  # an unescaped CR would be read as a line end


def _turtle(facts: Facts) -> bytes:
    # JSON's escapes are a subset of Turtle's as long as no character beyond U+FFFF is escaped
    fields = [f"    job:{name} {json.dumps(value, ensure_ascii=False)}" for name, value in facts.items()]
    head = f"@prefix job: <{NAMESPACE}#> .\n\n[] a job:jobState ;\n"
    return (head + " ;\n".join(fields) + " .\n").encode()


@dataclass(frozen=True)
class _Request:
    """A callback to send; every repetition is signed anew."""

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

        Raises AttemptOver at most a second after the attempt is over.
        """
        if profile.callback_url is None:
            return
        request = self._request(job, profile, version)
        with fault_of(Service.CALLBACK, profile.callback_url.host or ""):
            retry_request(lambda: self._send(request, attempt), self._pause, attempt)

    def deliver_once(self, job: Job, profile: Profile, version: int | None) -> int:
        """Like `deliver`, without retries; returns the HTTP status. StepFailed unless accepted."""
        return self._send(self._request(job, profile, version), UNATTENDED)

    def send_test(self, profile: Profile) -> int:
        """POST a test, signed like a callback; returns the HTTP status. StepFailed as in `deliver_once`."""
        payload = render(test_facts(profile.name), profile.notification_format or ResponseType.JSON)
        return self._send(self._signed(f"test-{secrets.token_hex(8)}", profile, payload), UNATTENDED)

    def _request(self, job: Job, profile: Profile, version: int | None) -> _Request:
        payload = render(callback_facts(job, version), response_format(job, profile))
        return self._signed(f"{job.jid}-{job.status.retry_count}", profile, payload)

    def _signed(self, delivery: str, profile: Profile, payload: Payload) -> _Request:
        secrets_of_collection = callback_secrets_of(self._settings, profile.name)
        return _Request(str(profile.callback_url), payload, delivery, secrets_of_collection)

    def _send(self, request: _Request, attempt: Attempt) -> int:
        """Sign the request with the current time, because receivers refuse old ones, and send it."""
        payload = request.payload
        signed = signed_headers(request.delivery, int(time.time()), payload.body, request.secrets)
        headers = {"Content-Type": payload.media_type, **signed}
        return post(self._settings, Receiver(request.url), payload.body, headers, attempt)


@dataclass(frozen=True)
class Receiver:
    """Where requests are sent; `what` and `where` are for messages: what it is, and where its URL is kept."""

    url: str
    what: str = "callback"
    where: str = "the profile"
    seconds: float | None = None
    """To wait for the answer; None: TIMEOUT."""

    def __str__(self) -> str:
        return f"the {self.what} {redact_url(self.url)}"


@caused_by(causes.SERVICE_REFUSED(service=Service.CALLBACK), FailureKind.SYSTEM)
def post(
    settings: Settings, to: Receiver, body: bytes, headers: dict[str, str], attempt: Attempt = UNATTENDED
) -> int:
    """POST once, to an allowed address and without following redirects; StepFailed unless accepted."""
    timeout = to.seconds or TIMEOUT
    deadline = time.monotonic() + timeout

    def check() -> None:
        attempt.check()
        if time.monotonic() > deadline:
            raise transient(f"{to} did not answer in time")

    session = ContentSession(
        settings.allow_networks, connect_timeout=settings.connect_timeout, read_timeout=timeout
    )
    try:
        with session:
            # the URL's user and password become Basic authentication; the answer's body is not read
            response = session.request(to.url, headers, body, check)
            response.close()
            _judge(to, response)
            return response.status
    except ConnectionFault as fault:
        raise transient(f"{to} {_problem(fault, to.where)}") from fault
    except AddressRefused as error:
        raise system(
            f"{to} is at an address that is not public: "
            "an operator may allow its network by the setting ARKLINE_ALLOW_NETWORKS"
        ) from error


def _problem(fault: ConnectionFault, where: str) -> str:
    match fault:
        case NotTrusted():
            return f"has no trusted certificate, or does not speak TLS: check the URL in {where}"
        case Unanswered(waited=True):
            return "did not answer in time"
        case _:
            return "cannot be reached, or the connection broke"


def _judge(to: Receiver, response: Response) -> None:
    status = response.status
    raise_if_transient(status, response.headers, str(to))
    if status < 300:
        return
    if status < 400:
        remedy = f"write the URL that it redirects to in {to.where}"
    else:
        remedy = f"check the URL in {to.where} and what its receiver expects"
    raise system(f"{to} answered {status}: {remedy}")
