"""The records of an ingest as frozen values; zkstate stores them as JSON, field for field.

Times are ISO 8601 UTC. A reader ignores unknown fields, so that a newer release may add some while an older
one still runs; a writer preserves them when it changes a value (RewrittenRecord).

A record restored from a backup reuses numbers, so a job's number alone does not identify the job that an
entry in storage or inventory belongs to. Therefore a job also has a random key, created with the job and
entered with its version.
"""

from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Generic, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from pipeline import causes
from pipeline.causes import FailureCause
from pipeline.checks import CheckedFiles, CheckSummary
from pipeline.fixity import Digest
from pipeline.names import is_upload, name_in
from pipeline.outcome import Deposited, ObjectDescription, StepFailed, WaitsFor, read_earlier_release, system
from pipeline.principal import Interface
from pipeline.states import BatchState, Event, FailureKind, JobState, Room, S

Count = Annotated[int, Field(ge=0, le=2**53)]
"""A count or a number of bytes; every JSON reader reads it exactly (RFC 8259, section 6)."""

Seconds = Annotated[float, Field(ge=0, le=1e8)]
"""A delay: at most three years, far above every limit of a setting or of a peer."""


EXCERPT = 2000
"""Characters of a damaged znode that are kept: a status has about 500, and a history entry stays small."""


class DamagedNode(BaseModel):
    """The znode that was replaced: its path, its size, its digest and the beginning of its bytes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    path: str
    size: int
    sha256: str = ""
    """Empty if the znode was missing."""
    excerpt: str = ""
    """The first characters; bytes that are not UTF-8 become `\\xNN`."""

    @classmethod
    def of(cls, path: str, data: bytes | None) -> "DamagedNode":
        if data is None:
            return cls(path=path, size=0)
        text = data[: 4 * EXCERPT].decode("utf-8", "backslashreplace")[:EXCERPT]
        return cls(path=path, size=len(data), sha256=sha256(data).hexdigest(), excerpt=text)


NAME_LENGTH = 255
"""Maximum characters of a name."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH)]
Text = Annotated[str, StringConstraints(max_length=4000)]
Priority = Annotated[int, Field(ge=0, le=99)]
DEFAULT_PRIORITY = 5


AgreedVersions = Annotated[dict[Name, Annotated[int, Field(ge=1, le=2**53)]], Field(max_length=1000)]
"""ARK -> the version that was current when the depositor agreed that the deposit becomes the next one."""


def now() -> datetime:
    return datetime.now(UTC)


def age(moment: datetime) -> float:
    """Seconds since then; if the host's clock is wrong, so is this value, but nothing else."""
    return max(0.0, (now() - moment).total_seconds())


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_bytes="utf8")


class SentRecord(Record):
    """The body of a request: a misspelled field would be lost without a word."""

    model_config = ConfigDict(extra="forbid")


class RewrittenRecord(Record):
    """A value that is read, changed and written again, preserving the fields of other releases."""

    model_config = ConfigDict(extra="allow")


class _Spelling(StrEnum):
    """Values with underscores in the record; Merritt's forms, files and inventory spell them with hyphens."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Accept hyphens, which release 0.1.0 wrote and depositors may write."""
        spelled = str(value).replace("-", "_")
        return next((member for member in cls if member.value == spelled), None)

    @property
    def label(self) -> str:
        """The value for people and for Merritt's formats: `object-manifest`."""
        return self.value.replace("_", "-")


class SubmissionType(_Spelling):
    """What a depositor may submit."""

    FILE = "file"
    CONTAINER = "container"
    OBJECT_MANIFEST = "object_manifest"
    BATCH_MANIFEST = "batch_manifest"
    CONTAINER_BATCH_MANIFEST = "container_batch_manifest"
    SINGLE_FILE_BATCH_MANIFEST = "single_file_batch_manifest"

    @property
    def is_batch(self) -> bool:
        """Whether each row makes an object; all others make one."""
        return self.value.endswith("batch_manifest")


class PayloadType(_Spelling):
    """The kind of one job's payload."""

    FILE = "file"
    CONTAINER = "container"
    OBJECT_MANIFEST = "object_manifest"


class SubmissionMode(StrEnum):
    ADD = "add"
    UPDATE = "update"
    RESET = "reset"


class ResponseType(StrEnum):
    JSON = "json"
    XML = "xml"
    TURTLE = "turtle"


class _Deposit(Record):
    """The fields that a submission shares with its jobs."""

    profile_name: Name
    deposit_name: Name | None = None
    """The name of the folder or table, or another one given. Absent in 0.3.0 and before."""
    submitter: Text = ""
    response_type: ResponseType = ResponseType.JSON
    submission_mode: SubmissionMode = SubmissionMode.ADD
    digest: Digest | None = None
    size: int | None = Field(default=None, ge=0)
    erc_who: Text = ""
    erc_what: Text = ""
    erc_when: Text = ""
    erc_where: Text = ""
    dublin_core: dict[str, tuple[Text, ...]] = Field(default_factory=dict)
    notification: tuple[Text, ...] = ()
    note: Text = ""
    submitted_at: datetime = Field(default_factory=now)
    owner: Text = ""
    """Identity of the principal that submitted; idempotency keys belong to it. Empty in records of 0.1.0, and
    of jobs up to 0.3.0."""
    new_version: bool | None = None
    """Whether an object that is here already may get a new version. None: submitted before 0.2.1."""

    @property
    def may_add_version(self) -> bool:
        """None counts as yes: the depositor was not asked. Update and reset imply an existing object."""
        return self.new_version is not False or self.submission_mode is not SubmissionMode.ADD


class Submission(_Deposit):
    """What a depositor submitted; `/batches/BID/submission`, never changed.

    Release 0.1.0 wrote `payload_type` for `type` and `payload_name` for `payload_filename`.
    """

    payload_url: Annotated[str, StringConstraints(min_length=1, max_length=8192)]
    type: SubmissionType = Field(validation_alias=AliasChoices("type", "payload_type"))
    payload_filename: Text = Field(
        default="", validation_alias=AliasChoices("payload_filename", "payload_name")
    )
    local_id: tuple[Text, ...] = ()
    primary_id: Text | None = None
    priority: Priority | None = None
    idempotency_key: Text | None = None
    new_version_of: AgreedVersions = Field(default_factory=dict)
    """Where `new_version` is no: the objects that may get a version all the same. Absent up to 0.3.0."""

    @property
    def payload_name(self) -> str:
        """The payload's name, for people."""
        return self.payload_filename or name_in(self.payload_url)

    @property
    def name(self) -> str:
        """The deposit's name, else the payload's, for people."""
        return self.deposit_name or self.payload_name


def digest_of(message: str) -> str:
    return sha256(message.encode(errors="replace")).hexdigest()[:16]


class FencedStatus(RewrittenRecord):
    """The fields shared by the status of jobs and of batches; the node's version fences every change.

    `op`: a new token for every write, by which a writer whose answer was lost recognizes its own write.
    `epoch` grows with every move and dispatch, and voids older tickets. `delay`: seconds by the server's
    clock until the next dispatch. Absent before 0.2.1: the fields from `handed_back` on.
    """

    message: str = ""
    kind: FailureKind | None = None
    epoch: Count = 1
    op: str = ""
    attempt: Count = 0
    dispatched_at: datetime | None = None
    redispatches: Count = 0
    tries: Count = 0
    delay: Seconds = 0
    handed_back: bool = False
    waits_for: WaitsFor | None = None
    service_faults: Count = 0
    probe: str = ""
    deposited: Deposited | None = None
    cause: FailureCause | None = None
    """Of a failure; read `failure_cause`. Absent before 0.4.0, as is `cause_of`."""
    cause_of: str | None = None
    """The digest of the message that `cause` belongs to."""

    _of_earlier_releases = model_validator(mode="before")(read_earlier_release)

    @property
    def failure_cause(self) -> FailureCause | None:
        """The cause of the failure; None if there is none, or it was not recorded.

        A release before 0.4.0 preserves the cause of an earlier failure beside the message of a new one.
        """
        return self.cause if self.kind and self.cause_of == digest_of(self.message) else None


class BatchStatus(FencedStatus):
    """`/batches/BID/status`. `total` is set once the batch is split; `created` counts jobs until then."""

    status: BatchState
    last_modified: datetime = Field(default_factory=now)
    total: Count | None = None
    created: Count = 0
    plan_sha256: str | None = None
    reports: Count = 0
    checked: tuple[CheckedFiles, ...] | None = None
    """What checks found in the files of its jobs, as of the last report. Absent before that, and in 0.3.0."""

    @property
    def since(self) -> datetime:
        return self.last_modified


class StatusReport(RewrittenRecord):
    """`/batches/BID/status-report`: the last report. Before 0.2.1 unfinished jobs are in `failed_jobs`."""

    last_modified: datetime = Field(default_factory=now)
    failed_jobs: tuple[str, ...] = ()
    successful_jobs: tuple[str, ...] = ()
    unfinished_jobs: tuple[str, ...] = ()
    parts: tuple[str, ...] | None = None
    """The nodes with further jobs of a long report. Absent before 0.2.1, and in short reports."""
    mailed: bool = True


class JobConfiguration(_Deposit):
    """`/jobs/JID/configuration`, never changed: one object to be made."""

    batch_id: str = Field(pattern=r"^(bid\d+)?$")
    key: str = ""
    """128 random bits in hex: the job's identity, whatever its number. Empty in records before 0.2.1."""
    payload_url: str
    payload_type: PayloadType
    payload_name: Text = ""
    named_by_source: bool = False
    """The depositor gave no name: the name that the source states comes first. Absent before 0.2.1."""
    working_dir: str
    submission_type: SubmissionType = SubmissionType.FILE

    @property
    def is_uploaded(self) -> bool:
        """Whether the content itself was uploaded, and so cannot be corrected at a source."""
        return is_upload(self.payload_url) and self.payload_type is not PayloadType.OBJECT_MANIFEST

    @property
    def name(self) -> str:
        """The payload's name, for people."""
        return self.payload_name or name_in(self.payload_url)


class Identifiers(RewrittenRecord):
    """`/jobs/JID/identifiers`: the ARK, given or minted, and the depositor's own names.

    `assigned`: the depositor gave no ARK. Only one that was given can contradict a local id.
    `nodes`: storage nodes where storing the job's version began, for a service that has several; absent
    before 0.2.1.
    """

    primary_id: str | None = None
    local_id: tuple[str, ...] = ()
    assigned: bool = False
    nodes: tuple[int, ...] | None = None
    description: ObjectDescription | None = None
    """As stored with the object; None until the version is recorded. Absent before 0.2.1."""


class JobStatus(FencedStatus):
    """`/jobs/JID/status`."""

    status: JobState
    last_successful_status: JobState | None = None
    last_modification_date: datetime = Field(default_factory=now)
    retry_count: Count = 0
    priority: Priority = DEFAULT_PRIORITY
    remark: str = ""  # a note for the depositor to check, although nothing failed; absent before 0.2.1
    room: Room = Room.KEPT
    """What a failed job has of working storage. Absent before 0.2.1."""
    checks: tuple[CheckSummary, ...] | None = None
    """The last run of each check; None: no check has run. Absent before 0.3.0."""

    @property
    def since(self) -> datetime:
        return self.last_modification_date

    def with_remarks(self, *new: str) -> str | None:
        """The remarks with the new ones added; None if none is new."""
        added = [remark for remark in new if remark not in self.remark]
        return "; ".join(filter(None, (self.remark, *added))) if added else None


class Entry(RewrittenRecord, Generic[S]):
    """One committed move, or one try with a transient fault; the list is the record's timeline."""

    state: S
    event: Event | None = None
    at: datetime = Field(default_factory=now)
    by: str = ""
    message: str = ""
    kind: FailureKind | None = None
    """The kind of the failure, or of the fault that a try met: it says who has to act."""
    cause: FailureCause | None = None  # of a failure; absent before 0.4.0
    table: int = 1  # the version of the state table that allowed the move
    via: Interface | None = None  # of a person; None for workers and scheduled work
    request_id: str | None = None  # of a person's request to the API or a page
    damaged: tuple[DamagedNode, ...] | None = None  # znodes that a repair replaced

    @property
    def reason(self) -> str:
        """The reason that a person gave for the move, from the message `VERB by NAME: REASON`."""
        verb, _, rest = self.message.partition(f" by {self.by}")
        return rest.removeprefix(": ") if verb and rest.startswith(": ") else ""

    def named(self, *, first: bool) -> str:
        """The event, for people, or else the kind of entry. `first`: it is the first of its history."""
        if self.event is not None:
            return self.event.value
        if self.damaged is not None:
            return "repaired"
        return "try" if self.kind else "created" if first else "note"


class HistoryEntry(Entry[JobState]):
    """One entry of `/jobs/JID/history`."""

    overruled: str | None = None  # digests of findings that an operator overruled with this move


class BatchHistoryEntry(Entry[BatchState]):
    """One entry of `/batches/BID/history`."""


class Job(Record):
    """A job as read at one moment; `version` is its status node's."""

    jid: str
    bid: str
    configuration: JobConfiguration
    identifiers: Identifiers
    status: JobStatus
    version: int
    priority: int
    space_needed: int
    identifiers_version: int | None = None  # of their node; None in a job that was not read from the record
    history: tuple[HistoryEntry, ...] = ()
    history_parts: tuple[int, ...] = ()  # entries in each part of a long history, oldest first
    unended: int | None = None  # jobs of its batch that have not ended, if its last move counted them

    @property
    def id(self) -> str:
        return self.jid

    @property
    def profile_name(self) -> str:
        return self.configuration.profile_name


class Batch(Record):
    """A batch as read at one moment; `version` is its status node's."""

    bid: str
    submission: Submission
    status: BatchStatus
    version: int
    report: StatusReport | None = None
    history: tuple[BatchHistoryEntry, ...] = ()
    history_parts: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        return self.bid

    @property
    def profile_name(self) -> str:
        return self.submission.profile_name

    @property
    def failed(self) -> BatchHistoryEntry | None:
        """The entry of the failure of the split, or of the person who cancelled; not the end of a report."""
        failures = (entry for entry in reversed(self.history) if entry.event is Event.FAIL)
        return next((entry for entry in failures if entry.via or entry.state is not BatchState.FAILED), None)

    @property
    def failure(self) -> tuple[str, FailureCause | None]:
        """Message and cause of the failed split; the status may have those of a later wait of the report."""
        entry, status = self.failed, self.status
        if status.kind is None or entry is None or entry.via:
            return (status.message if status.kind else ""), status.failure_cause
        return entry.message, entry.cause


class Ticket(Record):
    """The content of a Celery message: a hint that this job (or batch) may be in this state."""

    id: str
    state: str
    epoch: int


def number_of(name: str) -> int:
    """The number of a JID or BID; 0 if the text is neither.

    >>> number_of("jid0000000041"), number_of("bid0000000007"), number_of("")
    (41, 7, 0)
    """
    number = name.removeprefix("jid").removeprefix("bid")
    return int(number) if number.isdecimal() else 0


def same_key(one: str, other: str) -> bool:
    """Whether two keys may be the same job's: jobs and entries of releases before 0.2.1 have none."""
    return not one or not other or one == other


def same_job(job: Job, key: str, bid: str, payload_name: str) -> bool:
    """Whether an entry with the job's number is the job's own.

    Jobs and entries of releases before 0.2.1 have no key, so batch and payload are compared.
    """
    own = job.configuration.key
    if own and key:
        return own == key
    return (bid, payload_name) == (job.bid, job.configuration.payload_name)


def derived(job: Job, *parts: str) -> bytes:
    """32 bytes derived from the job and `parts`, the same in every process."""
    return sha256("\0".join((job.jid, job.configuration.key, *parts)).encode()).digest()


def trace_id(job: Job) -> int:
    """The job's constant trace id; a job with the same number in a restored record has another one."""
    return int.from_bytes(derived(job)[:16])


def reused(jid: str, evidence: str) -> StepFailed:
    return system(
        f"the number {jid} belongs to another job ({evidence}): the record was restored from a backup and "
        "gave the number again; submit this object again, and it gets another number"
    ).because(causes.NUMBER_REUSED())
