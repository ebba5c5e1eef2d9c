"""Why a job or a batch is where it is, and what is wrong with the fleet."""

from __future__ import annotations

from typing import Self

from pipeline.errors import Documented
from pipeline.outcome import WaitKind


class Reason(Documented):
    """What keeps a job, a batch or the fleet from moving; each entry holds everything said about its reason.

    The code, which is stable: scripts, pages and alerts read it. The meaning. The sentence about a job or a
    batch, a template of the facts with `by`, `fault`, `soon` and `states`; empty where `explanation` has a
    function for it. The sentence if the reason is an additional obstacle. The phrase if it is a problem of
    the fleet; in both, `{}` is what it waits for.
    """

    sentence: str
    also: str
    of_fleet: str

    def __new__(
        cls, value: str, doc: str = "", sentence: str = "", also: str = "", of_fleet: str = ""
    ) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.doc = value, doc
        member.sentence, member.also, member.of_fleet = sentence, also, of_fleet
        return member

    # waiting before the first step
    QUEUE_PAUSED = (
        "queue-paused",
        "An operator paused the queue: no new job starts.",
        "The queue was paused{by}: no new job starts.",
        "The queue is paused as well.",
        "the queue is paused: no new job starts",
    )
    COLLECTION_ON_HOLD = (
        "collection-on-hold",
        "An operator put the collection on hold.",
        "Collection {waits_for} was put on hold{by}.",
        "Collection {} is on hold as well.",
        "collection {} is on hold: its jobs do not start",
    )
    HOLD_ENDED = (
        "hold-ended",
        "It is held although its collection is not on hold.",
    )
    COLLECTION_AT_QUOTA = (
        "collection-at-quota",
        "The collection has as many active jobs as its profile allows.",
        (
            "Collection {waits_for} has {active}, and its profile allows {limit} "
            "(limits.jobs_at_work). It starts when one of them ends."
        ),
    )
    SHARE_TAKEN = (
        "share-taken",
        "Its collection or its submitter has its share of the places in the fleet.",
        (
            "The {waits_for} has {active}, which is its share of the places "
            "(ARKLINE_SHARE_OF_PLACES). It starts when one of them ends."
        ),
    )
    WAITING_FOR_TURN = (
        "waiting-for-turn",
        "Other jobs come first, or every place in the fleet is taken.",
    )
    STARTING = (
        "starting",
        "Its turn has come: it starts within seconds.",
        "It can continue now and starts within seconds.",
    )
    # waiting in a working state
    BEING_DISPATCHED = (
        "being-dispatched",
        "It was handed to the workers a moment ago.",
        "It is being sent to a worker.",
    )
    BEING_WORKED_ON = (
        "being-worked-on",
        "A worker is working on it.",
    )
    WAITING_FOR_HOST = (
        "waiting-for-host",
        "All connections allowed to the source are in use.",
    )
    HOST_DOWN = (
        "host-down",
        "The source does not answer; it is asked again.",
    )
    HOST_BACKING_OFF = (
        "host-backing-off",
        "The source asked clients to slow down (Retry-After).",
    )
    WAITING_FOR_SPACE = (
        "waiting-for-space",
        "It does not fit into working storage now.",
        "",
        "",
        "jobs that wait for working storage: {}",
    )
    EXCEEDS_SPACE = (
        "exceeds-space",
        "It is larger than working storage can hold.",
    )
    BETWEEN_TRIES = (
        "between-tries",
        "A step met a transient fault and is tried again.",
        "",
        "",
        "jobs wait for a retry: {message}",
    )
    WAITING_FOR_OBJECT = (
        "waiting-for-object",
        "Another job of the same object works on it.",
        (
            "Another job of the same object works on it: {fault}. It tries again {soon}, "
            "and the wait counts as no try."
        ),
    )
    WAITING_FOR_CHECK = (
        "waiting-for-check",
        "As many runs of the check are in progress as the fleet may do at once.",
        (
            "Its files have to be checked: {fault}. It tries again {soon}, and the wait counts as no try. "
            "The limit is at_once of the check in the profile."
        ),
    )
    RECORD_FULL = (
        "record-full",
        "ZooKeeper has no room for its jobs until other batches leave.",
        (
            "Its jobs do not fit into ZooKeeper now: {fault}. It tries again {soon}, and "
            "the wait counts as no try."
        ),
        "",
        "ZooKeeper has room for {} jobs and has them: nothing is submitted or split",
    )
    SERVICE_DOWN = (
        "service-down",
        "A shared service it needs is unavailable.",
        "",
        "",
        "{} is unavailable: jobs that need it wait",
    )
    RECORD_DAMAGED = (
        "record-damaged",
        "A znode it needs cannot be read.",
        (
            "{fault}. Restore this znode from a backup, or have it replaced, which ends the job as "
            "failed. A check of the record lists every damaged znode."
        ),
    )
    WORKERS_BUSY = (
        "workers-busy",
        "Every worker of its queue is busy.",
        (
            "Its message is in queue '{waits_for}', and all {limit} processes that consume this "
            "queue are busy. More workers would help."
        ),
    )
    LOST_WORKER = (
        "lost-worker",
        "Its worker or its message was lost; the scheduler dispatches it again.",
    )
    WAITING_FOR_REVIEW = (
        "waiting-for-review",
        "A person decides before its version is stored.",
        "It waits for a review: approve or reject it. Downloaded: {fault}.{found}",
    )
    # the fleet cannot continue it
    NO_WORKER = (
        "no-worker-for-queue",
        "No worker consumes its queue.",
        "",
        "But no worker consumes queue '{}'.",
        "no worker consumes queue '{}'",
    )
    BROKER_UNREACHABLE = (
        "broker-unreachable",
        "Redis does not answer.",
        (
            "Redis at {waits_for} does not answer, so no worker receives work. Nothing is lost: "
            "it continues by itself once Redis is back."
        ),
        "But Redis at {} does not answer.",
        "Redis at {} does not answer",
    )
    BROKER_REFUSES = (
        "broker-refuses",
        "Redis refuses writes.",
        (
            "Redis at {waits_for} refuses writes, so no worker receives work: {fault}. Nothing is "
            "lost: it continues by itself once Redis accepts writes."
        ),
        "But Redis at {} refuses writes: {message}",
        "Redis at {} refuses writes: {message}",
    )
    BROKER_FOREIGN = (
        "broker-foreign",
        "The prefix in Redis is another deployment's: workers wait.",
        "The workers of this deployment wait, because {fault}. Nothing is lost.",
        "But its workers wait: {message}.",
        "no job moves: {message}",
    )
    NO_BEAT = (
        "no-beat",
        "No beat is running, so scheduled work has stopped.",
        "No beat is running, so nothing is dispatched, retried or cleaned up on schedule.",
        "But no beat is running, so the job is not scheduled again.",
        "no beat is running: nothing is scheduled or retried",
    )
    SWEEP_LATE = (
        "sweep-late",
        "A beat runs, and the scheduled work is not done.",
        (
            "{waits_for} runs, but no scheduled work was done for {message}: nothing is dispatched, "
            "retried or cleaned up on schedule."
        ),
        "But no scheduled work was done for {message}, although {} runs.",
        "{} runs, and no scheduled work was done for {message}: nothing is retried",
    )
    RECORD_OUTDATED = (
        "record-outdated",
        "The record is older than it was: nothing is processed.",
        "",
        "",
        "the {} is older than it was: nothing is processed",
    )
    RECORD_FOREIGN = (
        "record-foreign",
        "The record is not that of the storage root and the inventory.",
        "",
        "",
        "the {} is not that of the storage root and the inventory: nothing is processed",
    )
    RECORD_LIMIT = (
        "record-limit",
        "ZooKeeper accepts smaller changes than arkline may make.",
        "{reason.doc}",
        "",
        "ZooKeeper at {} accepts no change of {message} (jute.maxbuffer): large jobs fail",
    )
    # stored objects
    FIXITY_DAMAGED = (
        "fixity-damaged",
        "A fixity check found damage in storage.",
        "{reason.doc}",
        "",
        "damage in storage: objects that are damaged: {}",
    )
    FIXITY_OVERDUE = (
        "fixity-overdue",
        "Stored files were not read again within their period.",
        "{reason.doc}",
        "",
        "objects that were not read again within their period: {}",
    )
    # a batch
    BEING_SPLIT = (
        "being-split",
        "A worker reads its payload and creates its jobs.",
    )
    WAITING_FOR_JOBS = (
        "waiting-for-jobs",
        "Jobs of the batch have not ended.",
        "It waits for its jobs: {states}, of {total} in all.",
    )
    REPORTING = (
        "reporting",
        "A worker writes and sends the report.",
    )
    BEING_REMOVED = (
        "being-removed",
        "It was deleted and is being removed from ZooKeeper.",
        "It was deleted and is being removed from ZooKeeper.",
    )
    JOBS_RESUMED = (
        "jobs-resumed",
        "Jobs that failed were resumed after the report and have not ended.",
        "Jobs were resumed after its report and have not ended ({states}).",
    )
    REPORT_MISSING = (
        "report-missing",
        "No report of the batch was sent.",
        "Its jobs have ended ({states}), but no report was sent: {fault}.",
    )
    REPORT_OUTDATED = (
        "report-outdated",
        "Jobs ended otherwise than the last report says.",
        "The state of its jobs has changed since its last report ({states}).",
    )
    # ended
    FAILED_CONTENT = (
        "failed-content",
        "The submitted content is wrong.",
    )
    FAILED_SYSTEM = (
        "failed-system",
        "A service or a machine is at fault.",
    )
    FAILED_TRANSIENT = (
        "failed-transient",
        "A transient fault outlasted its retries.",
    )
    JOBS_FAILED = (
        "jobs-failed",
        "Jobs of the batch failed.",
        "",
        "",
        "jobs that failed: {}",
    )
    REPORT_NOT_SENT = (
        "report-not-sent",
        "The report could not be mailed to the depositor.",
        "Its jobs have ended ({states}), but {fault}. Forward the report by hand.",
        "Its report could not be mailed: use update-report, or forward it by hand.",
    )
    COMPLETED = (
        "completed",
        "Done.",
    )
    ARCHIVED = (
        "archived",
        "It left ZooKeeper; the archive has what is known.",
        "It was removed from ZooKeeper{by}; the archive has its record. Nothing is left to do.",
    )


REASON_OF_WAIT: dict[str, Reason] = {
    WaitKind.HOST: Reason.WAITING_FOR_HOST,
    WaitKind.SERVICE: Reason.SERVICE_DOWN,
    WaitKind.CHECK: Reason.WAITING_FOR_CHECK,
    WaitKind.OBJECT: Reason.WAITING_FOR_OBJECT,
    WaitKind.SPACE: Reason.WAITING_FOR_SPACE,
    WaitKind.RETRY: Reason.BETWEEN_TRIES,
    WaitKind.RECORD: Reason.RECORD_FULL,
    WaitKind.REPAIR: Reason.RECORD_DAMAGED,
}
