"""The causes of failures: a closed list of codes, each with a title, an owner and a remedy.

A failure is given its cause where it arises, never by its message. The parameters that the title names
identify a group of failures with one cause, so that the title is true for all of them; further parameters
are facts of one failure. Codes are stable: none is removed, and none changes its meaning.
docs/operators/causes.md shows this table.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from string import Formatter
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from pipeline.machine import FailureKind

PARAMETER_LIMIT = 250
"""Characters of a parameter: a host has at most 253, and is not shown in full."""

Parameter = Annotated[str, StringConstraints(max_length=PARAMETER_LIMIT)]


class FailureCause(BaseModel):
    """The cause of one failure, as the record keeps it; the code may be another release's."""

    model_config = ConfigDict(frozen=True, extra="allow")
    code: Parameter
    parameters: dict[Parameter, Parameter] = {}


Owner = Literal["depositor", "operator", "source", "wait"]
"""Who has to act. `source`: the operators of the host that has the content; `wait`: nobody before a retry."""

DEPOSITOR: Owner = "depositor"
OPERATOR: Owner = "operator"
SOURCE: Owner = "source"

OWNERS: dict[FailureKind, Owner] = {
    FailureKind.CONTENT: "depositor",
    FailureKind.SYSTEM: "operator",
    FailureKind.TRANSIENT: "wait",
}
"""Who has to act after a failure of this kind whose cause does not say it."""


@dataclass(frozen=True)
class CauseCode:
    """`title` follows the number of objects, and is true for one and for many.

    `owner`: None if the kind of the failure says it. `resume`: whether a resume can help once the remedy was
    applied; None if that depends on more than the cause.
    """

    name: str
    title: str
    owner: Owner | None
    resume: bool | None
    remedy: str

    @property
    def identifying(self) -> tuple[str, ...]:
        return tuple(name for _, name, _, _ in Formatter().parse(self.title) if name)

    def __call__(self, **parameters: object) -> FailureCause:
        texts = {name: str(value)[:PARAMETER_LIMIT] for name, value in parameters.items()}
        return FailureCause(code=self.name, parameters=texts)


_Rest = tuple[Owner, bool, str]
_WAIT: _Rest = SOURCE, True, "Wait until the source works, then resume."
_CORRECT: _Rest = DEPOSITOR, False, "Correct what the message names, and deposit again."
_REPAIR: _Rest = OPERATOR, True, "Repair what the message names, then resume."

# fmt: off
# Files that are not as declared
DIGEST_DIFFERS = CauseCode("digest-differs", "the digest of a file differs from the declared one",
    DEPOSITOR, None, "Correct digest or file, and deposit again; or resume if the source was corrected.")
SIZE_DIFFERS = CauseCode("size-differs", "the size of a file differs from the declared one", DEPOSITOR, None,
    "Correct size or file, and deposit again; or resume if the source was corrected.")
UPLOAD_MISSING = CauseCode("upload-missing", "an uploaded file is missing or incomplete", *_CORRECT)
UPLOAD_DAMAGED = CauseCode("upload-damaged", "an uploaded file changed after the upload", OPERATOR, True,
    "Restore the file in the folder of uploads, then resume.")

# Sources
SOURCE_ANSWERED = CauseCode("source-answered", "the source {host} answered {status}", DEPOSITOR, True,
    "Check the URL, and that it may be read without a login; then resume or deposit again.")
SOURCE_FAILED = CauseCode("source-failed", "the source {host} answered {status} each time", *_WAIT)
SOURCE_SILENT = CauseCode("source-silent", "the source {host} did not answer", *_WAIT)
SOURCE_BROKE = CauseCode("source-broke", "the source {host} sent no whole file", *_WAIT)
SOURCE_UNUSABLE = CauseCode("source-unusable", "the answer of the source {host} cannot be used",
    DEPOSITOR, True, "Have the source send the file as it is, then resume; or give another URL.")
TLS_FAILED = CauseCode("tls-failed", "there is no secure connection to the source {host}", DEPOSITOR, True,
    "Have the source's certificate corrected and resume, or correct http or https in the URL.")
HOST_UNKNOWN = CauseCode("host-unknown", "the host {host} does not exist", DEPOSITOR, True,
    "Correct the URL and deposit again, or resume once the host has an address.")
ADDRESS_REFUSED = CauseCode("address-refused", "the host {host} has no public address", OPERATOR, True,
    "Allow its network by ARKLINE_ALLOW_NETWORKS and resume, or have another URL given.")
SOURCE_REFUSED = CauseCode("source-refused", "{host} is none of the sources of the collection",
    DEPOSITOR, True, "Give a URL of the collection's sources; or list the host in the profile and resume.")
URL_INVALID = CauseCode("url-invalid", "a URL cannot be fetched", *_CORRECT)

# What the deposit consists of
LIMIT_EXCEEDED = CauseCode("limit-exceeded", "more than the limit {limit}", DEPOSITOR, False,
    "Divide the deposit, or ask for a higher limit.")
NAME_REFUSED = CauseCode("name-refused", "a file name cannot be used", *_CORRECT)
NO_FILE = CauseCode("no-file", "there is no file to store", *_CORRECT)
MANIFEST_INVALID = CauseCode("manifest-invalid", "the manifest is not valid", *_CORRECT)
CONTAINER_INVALID = CauseCode("container-invalid", "a container cannot be unpacked", *_CORRECT)
LISTS_INVALID = CauseCode("lists-invalid", "a bag, a list or a description in it is not valid", *_CORRECT)
CHECK_STOPPED = CauseCode("check-stopped", "the check {check} stopped it ({findings})", DEPOSITOR, False,
    "Replace or remove the files, and deposit again; or overrule the finding.")
SEVERAL = CauseCode("several", "files failed for different causes ({codes})", DEPOSITOR, None,
    "Correct what the message names, and deposit again.")

# Objects and identifiers
VERSION_REFUSED = CauseCode("version-refused", "the object exists, and no new version was allowed",
    DEPOSITOR, False, "Deposit again and allow a new version, or correct the identifier.")
UPDATE_INVALID = CauseCode("update-invalid", "an update or a reset does not fit the object", *_CORRECT)
IDENTIFIER_INVALID = CauseCode("identifier-invalid", "an identifier is not valid", *_CORRECT)
IDENTIFIER_REFUSED = CauseCode("identifier-refused", "an identifier must not be used for the object",
    DEPOSITOR, False, "Correct or leave out the identifier, or deposit in the collection that it belongs to.")

# The repository
SERVICE_DOWN = CauseCode("service-down", "the service {service} was unavailable", *_REPAIR)
SERVICE_REFUSED = CauseCode("service-refused", "the service {service} refused a request", *_REPAIR)
STORAGE_DAMAGED = CauseCode("storage-damaged", "storage does not have what was stored", OPERATOR, True,
    "Restore the object from a copy, then resume.")
CONTENT_LOST = CauseCode("content-lost", "content in working storage is gone or changed", OPERATOR, True,
    "See who changes files in working storage, then resume.")
SPACE_EXCEEDED = CauseCode("space-exceeded", "more bytes than working storage can hold", OPERATOR, True,
    "Enlarge working storage and resume, or have the object divided.")
CONFIGURATION_INVALID = CauseCode("configuration-invalid", "a profile or a setting is not valid", *_REPAIR)
NUMBER_REUSED = CauseCode("number-reused", "a number or an ARK was given twice after a restore",
    OPERATOR, False, "Set the counter beyond the last number, and have the objects deposited again.")
RECORD_DAMAGED = CauseCode("record-damaged", "a znode of the record cannot be read", *_REPAIR)
WORKER_LOST = CauseCode("worker-lost", "workers ended again and again during the work", OPERATOR, True,
    "See the workers' logs, then resume.")
MISTAKE = CauseCode("mistake", "an unexpected error ({error})", OPERATOR, True,
    "Report the error with the worker's log; resume once it is corrected.")

# People, and failures without a code of their own
STOPPED = CauseCode("stopped", "a person stopped the work", OPERATOR, True,
    "Ask the person who stopped it; then resume or delete.")
REJECTED = CauseCode("rejected", "the review rejected it", *_CORRECT)
OTHER = CauseCode("other", "{message}", None, None, "Follow the message.")
NOT_RECORDED = CauseCode("not-recorded", "the cause was not recorded", None, None, "Follow each message.")
# fmt: on
"""OTHER: equal messages are a group. NOT_RECORDED: of releases before 0.4.0; never in the record."""

CODES: dict[str, CauseCode] = {
    code.name: code for code in tuple(globals().values()) if isinstance(code, CauseCode)
}


@dataclass(frozen=True)
class Described:
    """A cause for people; failures with the same id have the same cause, which `parameters` identify."""

    id: str
    code: str
    title: str
    parameters: dict[str, str]
    owner: Owner
    remedy: str
    resume: bool | None


def describe(cause: FailureCause | None, kind: FailureKind, message: str) -> Described:
    """`cause`: None if it was not recorded.

    >>> describe(SOURCE_ANSWERED(host="a.org", status=404), FailureKind.CONTENT, "").title
    'the source a.org answered 404'
    """
    recorded = cause or NOT_RECORDED()
    code = CODES.get(recorded.code) or replace(OTHER, name=recorded.code, title="{code}")  # a newer release's
    known = recorded.parameters | {"code": recorded.code, "message": message[:PARAMETER_LIMIT]}
    named = {name: known.get(name, "?") for name in code.identifying}
    parts = "\0".join((kind, code.name, *named.values()))
    return Described(
        id=sha256(parts.encode()).hexdigest()[:12],
        code=code.name,
        title=code.title.format_map(named),
        parameters={} if code is OTHER else named,
        owner=code.owner or OWNERS[kind],
        remedy=code.remedy,
        resume=code.resume,
    )


def common(causes: Iterable[FailureCause | None]) -> FailureCause:
    """The cause of an object whose files failed by these: theirs, if it is the same for all."""
    known = [cause or OTHER() for cause in causes]
    same = len({describe(cause, FailureKind.CONTENT, "").id for cause in known}) == 1
    return known[0] if same else SEVERAL(codes=", ".join(sorted({cause.code for cause in known})))
