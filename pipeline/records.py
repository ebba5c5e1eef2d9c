"""The records of an ingest as frozen values; zkstate stores them as JSON, field for field.

Times are ISO 8601 UTC. A reader ignores fields it does not know, so that a newer release may add some
while an older one still runs.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Generic, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints

from pipeline.fixity import Digest
from pipeline.principal import Interface
from pipeline.states import BatchState, Event, FailureKind, JobState, S

Name = Annotated[str, StringConstraints(min_length=1, max_length=255)]
Text = Annotated[str, StringConstraints(max_length=4000)]
Priority = Annotated[int, Field(ge=0, le=99)]
DEFAULT_PRIORITY = 5


def now() -> datetime:
    return datetime.now(UTC)


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_bytes="utf8")


class _Spelling(StrEnum):
    """Values with underscores in the record; Merritt's forms, files and inventory spell them with hyphens."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Accept the hyphens: release 0.1.0 wrote them, and depositors may."""
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


class Submission(Record):
    """What a depositor submitted; `/batches/BID/submission`, never changed.

    Release 0.1.0 wrote `payload_type` for `type` and `payload_name` for `payload_filename`.
    """

    profile_name: Name
    submitter: Text = ""
    payload_url: Annotated[str, StringConstraints(min_length=1, max_length=8192)]
    type: SubmissionType = Field(validation_alias=AliasChoices("type", "payload_type"))
    payload_filename: Text = Field(
        default="", validation_alias=AliasChoices("payload_filename", "payload_name")
    )
    submission_mode: SubmissionMode = SubmissionMode.ADD
    response_type: ResponseType = ResponseType.JSON
    erc_who: Text = ""
    erc_what: Text = ""
    erc_when: Text = ""
    erc_where: Text = ""
    dublin_core: dict[str, tuple[Text, ...]] = Field(default_factory=dict)
    digest: Digest | None = None
    size: int | None = Field(default=None, ge=0)
    local_id: tuple[Text, ...] = ()
    primary_id: Text | None = None
    notification: tuple[Text, ...] = ()
    priority: Priority | None = None
    note: Text = ""
    submitted_at: datetime = Field(default_factory=now)
    idempotency_key: Text | None = None
    owner: Text = ""
    """Identity of the principal that submitted; idempotency keys belong to it. Empty in 0.1.0's records."""


class FencedStatus(Record):
    """The fields shared by the status of jobs and of batches; the node's version fences every change.

    `op` is a fresh token in every write, so that a writer whose answer was lost recognises its own write;
    `epoch` grows when the record moves or is dispatched again, so that older tickets are void.
    `delay`: seconds after this write before the record may be dispatched again. The sweep counts from the
    node's mtime, which is the server's clock, so that no host's wrong clock loses or hurries a record.
    `in_line`: the delay is a rate limit's, not that of a fault.
    """

    message: str = ""
    kind: FailureKind | None = None
    epoch: int = 1
    op: str = ""
    attempt: int = 0
    dispatched_at: datetime | None = None
    redispatches: int = 0
    tries: int = 0
    delay: float = 0
    in_line: bool = False


class BatchStatus(FencedStatus):
    """`/batches/BID/status`. `total` is set once the batch is split; `created` counts jobs until then."""

    status: BatchState
    last_modified: datetime = Field(default_factory=now)
    total: int | None = None
    created: int = 0
    plan_sha256: str | None = None
    reports: int = 0


class StatusReport(Record):
    """`/batches/BID/status-report`: the content of the last report."""

    last_modified: datetime = Field(default_factory=now)
    failed_jobs: tuple[str, ...] = ()
    successful_jobs: tuple[str, ...] = ()


class JobConfiguration(Record):
    """`/jobs/JID/configuration`, never changed: one object to be made."""

    batch_id: str
    profile_name: Name
    submitter: Text = ""
    payload_url: str
    payload_type: PayloadType
    payload_name: Text = ""
    response_type: ResponseType = ResponseType.JSON
    submission_mode: SubmissionMode = SubmissionMode.ADD
    working_dir: str
    digest: Digest | None = None
    size: int | None = None
    erc_who: Text = ""
    erc_what: Text = ""
    erc_when: Text = ""
    erc_where: Text = ""
    dublin_core: dict[str, tuple[Text, ...]] = Field(default_factory=dict)
    notification: tuple[Text, ...] = ()
    note: Text = ""
    submission_type: SubmissionType = SubmissionType.FILE
    submitted_at: datetime = Field(default_factory=now)


class Identifiers(Record):
    """`/jobs/JID/identifiers`: the ARK, given or minted, and the depositor's own names.

    `assigned` is written before arkline looks for an ARK because the depositor gave none: only an ARK
    that was given can contradict a local id.
    """

    primary_id: str | None = None
    local_id: tuple[str, ...] = ()
    assigned: bool = False


class JobStatus(FencedStatus):
    """`/jobs/JID/status`."""

    status: JobState
    last_successful_status: JobState | None = None
    last_modification_date: datetime = Field(default_factory=now)
    retry_count: int = 0
    priority: Priority = DEFAULT_PRIORITY


class Entry(Record, Generic[S]):
    """One committed move, or one try that met a transient fault; the list is the record's timeline."""

    state: S
    event: Event | None = None
    at: datetime = Field(default_factory=now)
    by: str = ""
    message: str = ""
    kind: FailureKind | None = None
    """The kind of the failure, or of the fault that a try met: it says who has to act."""
    table: int = 1
    """The version of the state table that allowed the move."""
    via: Interface | None = None
    """The interface by which a person acted; None for workers and scheduled work."""


class HistoryEntry(Entry[JobState]):
    """One entry of `/jobs/JID/history`."""


class BatchHistoryEntry(Entry[BatchState]):
    """One entry of `/batches/BID/history`."""


class OwedCallback(Record):
    """`/callbacks/JID-EPOCH`: a failed job's callback that has still to be delivered."""

    tries: int = 0
    delay: float = 60.0
    """Seconds from the node's last change after which the sweep gives it to a worker."""


class Job(Record):
    """A job as it was read at one moment; `version` is that of its status node."""

    jid: str
    bid: str
    configuration: JobConfiguration
    identifiers: Identifiers
    status: JobStatus
    version: int
    priority: int
    space_needed: int
    history: tuple[HistoryEntry, ...] = ()

    @property
    def id(self) -> str:
        return self.jid


class Batch(Record):
    """A batch as it was read at one moment; `version` is that of its status node."""

    bid: str
    submission: Submission
    status: BatchStatus
    version: int
    report: StatusReport | None = None
    history: tuple[BatchHistoryEntry, ...] = ()

    @property
    def id(self) -> str:
        return self.bid


class Ticket(Record):
    """The content of a Celery message: a hint that this job (or batch) may be in this state."""

    id: str
    state: str
    epoch: int
