"""Why a job or a batch is where it is, and how healthy the fleet is, as facts with stable codes.

No sentence and no command stands here: `entrypoints/cli/render` spells them, a page draws buttons, an API
returns the values as they are.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from pipeline.attempt import Progress
from pipeline.errors import Documented, Remedy
from pipeline.outcome import WaitKind
from pipeline.records import Batch, Job, Record
from pipeline.states import FailureKind


class Reason(Documented):
    """Codes are stable: scripts, pages and alerts read them."""

    # waiting before the first step
    QUEUE_PAUSED = "queue-paused", "An operator paused the queue: no new job starts."
    COLLECTION_ON_HOLD = "collection-on-hold", "An operator put the collection on hold."
    HOLD_ENDED = "hold-ended", "It is held although its collection is not on hold any more."
    COLLECTION_AT_QUOTA = (
        "collection-at-quota",
        "The collection has as many active jobs as its profile allows.",
    )
    SHARE_TAKEN = "share-taken", "Its collection or its submitter has its share of the places in the fleet."
    WAITING_FOR_TURN = "waiting-for-turn", "Other jobs come first, or every place in the fleet is taken."
    STARTING = "starting", "Its turn has come: it starts within seconds."
    # waiting in a working state
    BEING_DISPATCHED = "being-dispatched", "It was handed to the workers a moment ago."
    BEING_WORKED_ON = "being-worked-on", "A worker is working on it."
    WAITING_FOR_HOST = "waiting-for-host", "All connections allowed to the source are in use."
    HOST_DOWN = "host-down", "The source does not answer; it is asked again."
    HOST_BACKING_OFF = "host-backing-off", "The source asked clients to slow down (Retry-After)."
    WAITING_FOR_SPACE = "waiting-for-space", "It does not fit into working storage now."
    EXCEEDS_SPACE = "exceeds-space", "It is larger than working storage can hold."
    BETWEEN_TRIES = "between-tries", "A step met a transient fault and is tried again."
    WAITING_FOR_OBJECT = "waiting-for-object", "Another job of the same object works on it."
    RECORD_FULL = "record-full", "ZooKeeper has no room for its jobs until other batches leave."
    SERVICE_DOWN = "service-down", "A shared service it needs is unavailable."
    RECORD_DAMAGED = "record-damaged", "A znode it needs cannot be read."
    WORKERS_BUSY = "workers-busy", "Every worker of its queue is busy."
    LOST_WORKER = "lost-worker", "Its worker or its message was lost; the scheduler dispatches it again."
    # the fleet cannot continue it
    NO_WORKER = "no-worker-for-queue", "No worker consumes its queue."
    BROKER_UNREACHABLE = "broker-unreachable", "Redis does not answer."
    BROKER_REFUSES = "broker-refuses", "Redis refuses writes."
    BROKER_FOREIGN = "broker-foreign", "The prefix in Redis is another deployment's: workers wait."
    NO_BEAT = "no-beat", "No beat is running, so scheduled work has stopped."
    SWEEP_LATE = "sweep-late", "A beat runs, and the scheduled work is not done."
    RECORD_OUTDATED = "record-outdated", "The record was restored from an older backup: nothing is processed."
    RECORD_FOREIGN = "record-foreign", "The record is not that of the storage root and the inventory."
    RECORD_LIMIT = "record-limit", "ZooKeeper accepts smaller changes than arkline may make."
    # stored objects
    FIXITY_DAMAGED = "fixity-damaged", "A fixity check found damage in storage."
    FIXITY_OVERDUE = "fixity-overdue", "Stored files were not read again within their period."
    # a batch
    BEING_SPLIT = "being-split", "A worker reads its payload and creates its jobs."
    WAITING_FOR_JOBS = "waiting-for-jobs", "Jobs of the batch have not ended."
    REPORTING = "reporting", "A worker writes and sends the report."
    BEING_REMOVED = "being-removed", "It was deleted and is being removed from ZooKeeper."
    JOBS_RESUMED = "jobs-resumed", "Jobs that failed were resumed after the report and have not ended."
    REPORT_MISSING = "report-missing", "No report of the batch was sent."
    REPORT_OUTDATED = "report-outdated", "Jobs ended otherwise than the last report says."
    # ended
    FAILED_CONTENT = "failed-content", "The submitted content is wrong."
    FAILED_SYSTEM = "failed-system", "A service or a machine is at fault."
    FAILED_TRANSIENT = "failed-transient", "A transient fault outlasted its retries."
    JOBS_FAILED = "jobs-failed", "Jobs of the batch failed."
    REPORT_NOT_SENT = "report-not-sent", "The report could not be mailed to the depositor."
    COMPLETED = "completed", "Done."
    ARCHIVED = "archived", "It left ZooKeeper; the archive has what is known."


REASON_OF_WAIT: dict[str, Reason] = {
    WaitKind.HOST: Reason.WAITING_FOR_HOST,
    WaitKind.SERVICE: Reason.SERVICE_DOWN,
    WaitKind.OBJECT: Reason.WAITING_FOR_OBJECT,
    WaitKind.SPACE: Reason.WAITING_FOR_SPACE,
    WaitKind.RETRY: Reason.BETWEEN_TRIES,
    WaitKind.RECORD: Reason.RECORD_FULL,
    WaitKind.REPAIR: Reason.RECORD_DAMAGED,
}


class Obstacle(Record):
    """Something besides the reason itself that keeps a job or a batch from moving."""

    reason: Reason
    waits_for: str = ""
    message: str = ""
    """Why, in the words of the server or the process that said so."""


class Cause(Record):
    """Why something is where it is. Which of the optional facts are given depends on `reason`."""

    reason: Reason
    message: str = ""
    """The last fault, from the record."""
    waits_for: str = ""
    """The subject of `reason`: a collection, a host, a queue, a server."""
    holder: str = ""
    """The worker that has it, or the person who put it on hold."""
    holder_since: datetime | None = None
    hold_reason: str = ""
    limit: int | None = None
    """The maximum of places, jobs, connections, processes, bytes or tries, according to `reason`."""
    taken: int | None = None
    """How much of `limit` is in use."""
    needed: int | None = None
    """Bytes of working storage that the job needs; 0 if its size is not known."""
    ahead: int | None = None
    """Jobs before it in the queue."""
    moves_itself: bool = False
    """True if it moves without anyone's action."""
    when: datetime | None = None
    """The earliest moment of the next attempt."""
    failed_in: str = ""
    """The state in which it failed."""
    failure: FailureKind | None = None
    content_gone: bool = False
    """What was downloaded is not in working storage any more: a resume downloads it again."""
    resumes_in: str = ""
    """The state that a resume leads to."""
    jobs: dict[str, int] = Field(default_factory=dict)
    """Jobs of a batch, by state or by kind of failure."""
    total: int | None = None
    users: dict[str, int] = Field(default_factory=dict)
    """Who uses what it waits for: id -> connections to the host, or bytes of working storage."""
    changed_fields: tuple[str, ...] = ()
    """Fields of the profile that were changed after the batch started."""
    ark: str = ""
    outage_since: datetime | None = None
    """When the outage of the service `waits_for` began."""
    obstacles: tuple[Obstacle, ...] = ()
    """Further obstacles, which remain once `reason` is over."""
    remedies: tuple[Remedy, ...] = ()
    """In the order in which they are to be applied, now."""
    afterwards: tuple[Remedy, ...] = ()
    """To be applied once the jobs have ended."""
    progress: Progress | None = None
    """The progress of a download, as last reported by the worker."""
    first: Explanation | None = None
    """For a batch: one of the jobs that it waits for, or that failed."""


class Explanation(Cause):
    """The situation of a job or a batch: reason, holder, time and remedies."""

    id: str
    kind: str
    """`job` or `batch`."""
    name: str = ""
    """Of the payload."""
    bid: str = ""
    """The batch of a job."""
    profile: str = ""
    state: str = ""
    """Empty if the record cannot be read."""
    since: datetime | None = None
    attempt: int = 0
    tries: int = 0
    """Attempts that met a transient fault, in this state."""
    redispatches: int = 0
    """Times that its worker or its message was lost, in this state."""

    @classmethod
    def of(cls, record: Job | Batch, cause: Cause) -> Explanation:
        status, facts = record.status, dict(cause)
        if isinstance(record, Job):
            facts |= {"kind": "job", "bid": record.bid, "name": record.configuration.name}
        else:
            facts |= {"kind": "batch", "name": record.submission.name}
        return cls(
            **facts,
            id=record.id,
            profile=record.profile_name,
            state=status.status,
            since=status.since,
            attempt=status.attempt,
            tries=status.tries,
            redispatches=status.redispatches,
        )
