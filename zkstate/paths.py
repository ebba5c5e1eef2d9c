"""Every znode's path; nothing else in the project spells one.

    /batches/BID/{submission,profile,status,history,lock,status-report}
    /batches/BID/report-parts/NNNN-NNNN further jobs of a long report: report number, part number
    /batches/BID/history/NNNN           older entries of a long history; also below /jobs/JID
    /batches/BID/states/{batch-processing,batch-failed,batch-completed,batch-deleted}/JID
    /open-batches/BID                   the batches with work left
    /jobs/JID/{bid,configuration,identifiers,status,priority,space_needed,history,lock}
    /jobs/states/STATE/PP-JID           the job queue: PP = priority, 00 first
    /waiting/JID                        a job in a working state that waits and takes no place
    /outages/NAME                       a shared service that is unavailable
    /callbacks/JID-EPOCH                the callback of a failed job that is not delivered yet
    /locks/queue/ingest                 an operator's pause
    /locks/collections/NAME             an operator's hold
    /locks/drains/NAME                  an operator's drain of a worker
    /locks/checks/NAME/N                ephemeral: a place of a check that has a limit
    /locks/leader/NAME                  ephemeral: the beat that leads, and the beats that wait to lead
    /locks/KIND/NAME                    ephemeral: one holder in the fleet
    /restore                            ephemeral: a restore is running; not in a folder that it deletes
    /locks/hosts/HOST/N                 ephemeral: a connection to a source; the parent holds its back-off
    /space/working/JID                  bytes reserved for a job; the parent holds their sum
    /space/marked                       working storage has been marked: without its mark it is not mounted
    /space/uploads-marked               the same for the folder of uploads
    /actions/queue                      operators' actions on the fleet: pauses, drains, clean-ups
    /actions/collections/NAME           operators' actions on a collection: holds and releases
    /fixity                             the sums of the fixity schedule
    /checks                             the checks of stored versions that are repeated, and how far that is
    /subscriptions/ID                   who is notified of which events
    /subscriptions/ID/KEY               an event that waits for its delivery
    /deliveries/ID                      what is being sent for a subscription, and how it went
    /audit                              the end of the last complete check of the record
    /backup                             the last complete backup
    /device-logins/KEY                  a login of a program that a person answers at a page
    /board                              the last difference between a web process's board and the record
    /ids/NAME                           counters
    /submission-keys/KEY                idempotency keys -> BID
    /deployment                         the id that storage root and inventory also have, and the mark
    /sweep                              what a sweep saves for the next: times and positions

All paths are below one root, which the session adds. Another application may have nodes of its own below the
same root, and in the record's folders.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote

from pipeline.states import QUEUED, Bucket, JobState

JID = "jid[0-9]{10,}"
"""Pattern of a job's id."""

_QUEUE_ENTRY = re.compile(f"([0-9]{{2}})-({JID})")

BATCHES = "/batches"
JOBS = "/jobs"
OPEN_BATCHES = "/open-batches"
QUEUES = "/jobs/states"
WAITING = "/waiting"
CALLBACKS = "/callbacks"
PAUSE = "/locks/queue"
HOLDS = "/locks/collections"
DRAINS = "/locks/drains"
SPACE = "/space/working"
SPACE_MARKED = "/space/marked"
UPLOADS_MARKED = "/space/uploads-marked"
DEPLOYMENT = "/deployment"
OUTAGES = "/outages"
HOSTS = "/locks/hosts"
LEADER = "/locks/leader"
RESTORE = "/restore"
SWEEP = "/sweep"
FIXITY = "/fixity"
CHECKS = "/checks"
RECHECKS = "/rechecks"
SUBSCRIPTIONS = "/subscriptions"
DELIVERIES = "/deliveries"
AUDIT = "/audit"
BACKUP = "/backup"
BOARD = "/board"
DEVICE_LOGINS = "/device-logins"

TOP = (
    BATCHES,
    OPEN_BATCHES,
    QUEUES,
    JOBS,
    WAITING,
    CALLBACKS,
    "/locks",
    "/space",
    "/actions",
    FIXITY,
    CHECKS,
    RECHECKS,
    SUBSCRIPTIONS,
    DELIVERIES,
    AUDIT,
    BACKUP,
    BOARD,
    DEVICE_LOGINS,
    "/ids",
    "/submission-keys",
    DEPLOYMENT,
    OUTAGES,
    SWEEP,
)
"""The nodes directly below the root, and the queues, which are below `/jobs`."""

_OWN_NAMES = {
    folder: re.compile(pattern)
    for folder, pattern in {
        BATCHES: "bid[0-9]{10,}",
        OPEN_BATCHES: "bid[0-9]{10,}",
        JOBS: JID,
        WAITING: JID,
        CALLBACKS: f"{JID}-[0-9]+",
        "/locks": "queue|collections|drains|hosts|checks|leader|single-flight|localid|storage",
        PAUSE: "ingest",
        "/space": "working|marked|uploads-marked",
        "/actions": "queue|collections",
        "/ids": r"batch|job|ark-\S+",
        "/submission-keys": "[0-9a-f]{64}",
        DEVICE_LOGINS: "[0-9a-f]{64}",
        SUBSCRIPTIONS: "[0-9a-f]{16}",
        DELIVERIES: "[0-9a-f]{16}",
    }.items()
}
"""Folder -> pattern of the record's own names in it; in other folders every name is the record's own."""


def owned(folder: str, names: Iterable[str]) -> list[str]:
    """The names in `folder` that are the record's own, sorted."""
    pattern = _OWN_NAMES.get(folder)
    return sorted(names if pattern is None else filter(pattern.fullmatch, names))


SKELETON = (
    BATCHES,
    OPEN_BATCHES,
    *(f"{QUEUES}/{state}" for state in QUEUED),
    PAUSE,
    HOLDS,
    DRAINS,
    WAITING,
    OUTAGES,
    CALLBACKS,
    SPACE,
    "/ids",
    "/submission-keys",
    SWEEP,
)
"""The nodes that exist before the first batch."""


def _each(pattern: str) -> Callable[[str], str]:
    """The function from the id of a batch or job to the path of one of its nodes; `{}` is the id."""
    return pattern.format


batch = _each("/batches/{}")
submission = _each("/batches/{}/submission")
profile_snapshot = _each("/batches/{}/profile")
batch_status = _each("/batches/{}/status")
batch_history = _each("/batches/{}/history")
batch_lock = _each("/batches/{}/lock")
status_report = _each("/batches/{}/status-report")
report_parts = _each("/batches/{}/report-parts")
buckets = _each("/batches/{}/states")
open_batch = _each("/open-batches/{}")

job = _each("/jobs/{}")
job_bid = _each("/jobs/{}/bid")
configuration = _each("/jobs/{}/configuration")
identifiers = _each("/jobs/{}/identifiers")
job_status = _each("/jobs/{}/status")
priority = _each("/jobs/{}/priority")
space_needed = _each("/jobs/{}/space_needed")
history = _each("/jobs/{}/history")
job_lock = _each("/jobs/{}/lock")

waiting = _each("/waiting/{}")
device_login = _each("/device-logins/{}")
subscription = _each("/subscriptions/{}")
delivery = _each("/deliveries/{}")
reservation = _each("/space/working/{}")


def bucket(bid: str, name: Bucket) -> str:
    return f"{BATCHES}/{bid}/states/{name}"


def batch_entry(bid: str, name: Bucket, jid: str) -> str:
    return f"{BATCHES}/{bid}/states/{name}/{jid}"


_is_jid = re.compile(JID).fullmatch


def is_jid(name: str) -> bool:
    """Whether `name` has the form of a job's id."""
    return _is_jid(name) is not None


def queue(state: JobState) -> str:
    return f"{QUEUES}/{state}"


def queue_entry(state: JobState, pp: int, jid: str) -> str:
    return f"{QUEUES}/{state}/{pp:02d}-{jid}"


def read_queue_entries(names: Iterable[str]) -> Iterator[tuple[int, str]]:
    """`05-jid0000000001` -> (5, 'jid0000000001'); skips names that are not the record's."""
    for name in names:
        if entry := _QUEUE_ENTRY.fullmatch(name):
            yield int(entry[1]), entry[2]


def owed_callback(jid: str, epoch: int) -> str:
    return f"{CALLBACKS}/{jid}-{epoch}"


def read_owed_callback(name: str) -> tuple[str, int]:
    """`jid0000000001-7` -> ('jid0000000001', 7)."""
    jid, _, epoch = name.partition("-")
    return jid, int(epoch)


def outage(name: str) -> str:
    return f"{OUTAGES}/{quote(name, safe='')}"


def waiting_event(subscription_id: str, key: str) -> str:
    return f"{SUBSCRIPTIONS}/{subscription_id}/{key}"


def hold(collection: str | None) -> str:
    """The hold of a collection; with None the pause of the queue."""
    return "/locks/queue/ingest" if collection is None else f"{HOLDS}/{quote(collection, safe='')}"


def drain(worker: str) -> str:
    return f"{DRAINS}/{quote(worker, safe='')}"


def actions(collection: str | None) -> str:
    return "/actions/queue" if collection is None else f"/actions/collections/{quote(collection, safe='')}"


def exclusive(kind: str, name: str) -> str:
    return f"/locks/{kind}/{quote(name, safe='')}"


def host(name: str) -> str:
    return f"{HOSTS}/{quote(name, safe='')}"


def place(folder: str, number: int) -> str:
    return f"{folder}/{number}"


def check_places(name: str) -> str:
    return f"/locks/checks/{quote(name, safe='')}"


def counter(name: str) -> str:
    return f"/ids/{quote(name, safe='')}"


def submission_key(key: str, owner: str = "") -> str:
    """The key is hashed, so that it may be any text of any length; without an owner as release 0.1.0 did."""
    scoped = f"{owner}\0{key}" if owner else key
    return f"/submission-keys/{hashlib.sha256(scoped.encode()).hexdigest()}"
