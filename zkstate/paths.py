"""Every znode's path; nothing else in the project spells one.

    /batches/BID/{submission,profile,status,history,lock,status-report}
    /batches/BID/states/{batch-processing,batch-failed,batch-completed,batch-deleted}/JID
    /open-batches/BID                   the batches with work left
    /jobs/JID/{bid,configuration,identifiers,status,priority,space_needed,history,lock}
    /jobs/states/STATE/PP-JID           the job queue: PP = priority, 00 first
    /callbacks/JID-EPOCH                the callback of a failed job that is not delivered yet
    /locks/queue/ingest                 an operator's pause
    /locks/collections/NAME             an operator's hold
    /locks/KIND/NAME                    ephemeral: one holder in the fleet
    /locks/hosts/HOST/N                 ephemeral: a connection to a source; the parent holds its back-off
    /space/working/JID                  bytes reserved for a job; the parent holds their sum
    /actions/queue                      what operators did to the queue: pauses
    /actions/collections/NAME           what operators did to a collection: holds and releases
    /ids/NAME                           counters
    /submission-keys/KEY                idempotency keys -> BID

All of it lies below one root, which the session adds.
"""

import hashlib
from urllib.parse import quote

from pipeline.states import JOB, Bucket, JobState

BATCHES = "/batches"
JOBS = "/jobs"
OPEN_BATCHES = "/open-batches"
QUEUES = "/jobs/states"
CALLBACKS = "/callbacks"
PAUSE = "/locks/queue/ingest"
HOLDS = "/locks/collections"
SPACE = "/space/working"
LEADER = "/locks/leader"
QUEUE_ACTIONS = "/actions/queue"

SKELETON = (
    BATCHES,
    OPEN_BATCHES,
    *(f"{QUEUES}/{state}" for state in JOB.where(lambda facts: facts.queued)),
    "/locks/queue",
    HOLDS,
    CALLBACKS,
    SPACE,
    "/ids",
    "/submission-keys",
)
"""The nodes that exist before the first batch."""


def batch(bid: str) -> str:
    return f"{BATCHES}/{bid}"


def submission(bid: str) -> str:
    return f"{BATCHES}/{bid}/submission"


def profile_snapshot(bid: str) -> str:
    return f"{BATCHES}/{bid}/profile"


def batch_status(bid: str) -> str:
    return f"{BATCHES}/{bid}/status"


def batch_lock(bid: str) -> str:
    return f"{BATCHES}/{bid}/lock"


def status_report(bid: str) -> str:
    return f"{BATCHES}/{bid}/status-report"


def buckets(bid: str) -> str:
    return f"{BATCHES}/{bid}/states"


def bucket(bid: str, name: Bucket) -> str:
    return f"{BATCHES}/{bid}/states/{name}"


def batch_entry(bid: str, name: Bucket, jid: str) -> str:
    return f"{BATCHES}/{bid}/states/{name}/{jid}"


def open_batch(bid: str) -> str:
    return f"{OPEN_BATCHES}/{bid}"


def is_job(name: str) -> bool:
    """Whether this child of /jobs is a job; the queue is its only other child."""
    return f"{JOBS}/{name}" != QUEUES


def job(jid: str) -> str:
    return f"{JOBS}/{jid}"


def job_bid(jid: str) -> str:
    return f"{JOBS}/{jid}/bid"


def configuration(jid: str) -> str:
    return f"{JOBS}/{jid}/configuration"


def identifiers(jid: str) -> str:
    return f"{JOBS}/{jid}/identifiers"


def job_status(jid: str) -> str:
    return f"{JOBS}/{jid}/status"


def priority(jid: str) -> str:
    return f"{JOBS}/{jid}/priority"


def space_needed(jid: str) -> str:
    return f"{JOBS}/{jid}/space_needed"


def batch_history(bid: str) -> str:
    return f"{BATCHES}/{bid}/history"


def history(jid: str) -> str:
    return f"{JOBS}/{jid}/history"


def job_lock(jid: str) -> str:
    return f"{JOBS}/{jid}/lock"


def queue(state: JobState) -> str:
    return f"{QUEUES}/{state}"


def queue_entry(state: JobState, pp: int, jid: str) -> str:
    return f"{QUEUES}/{state}/{pp:02d}-{jid}"


def read_queue_entry(name: str) -> tuple[int, str]:
    """`05-jid0000000001` -> (5, 'jid0000000001')."""
    pp, _, jid = name.partition("-")
    return int(pp), jid


def owed_callback(jid: str, epoch: int) -> str:
    return f"{CALLBACKS}/{jid}-{epoch}"


def read_owed_callback(name: str) -> tuple[str, int]:
    """`jid0000000001-7` -> ('jid0000000001', 7)."""
    jid, _, epoch = name.partition("-")
    return jid, int(epoch)


def hold(profile_name: str) -> str:
    return f"{HOLDS}/{quote(profile_name, safe='')}"


def collection_actions(profile_name: str) -> str:
    return f"/actions/collections/{quote(profile_name, safe='')}"


def exclusive(kind: str, name: str) -> str:
    return f"/locks/{kind}/{quote(name, safe='')}"


def host(name: str) -> str:
    return f"/locks/hosts/{quote(name, safe='')}"


def connection(name: str, number: int) -> str:
    return f"{host(name)}/{number}"


def reservation(jid: str) -> str:
    return f"{SPACE}/{jid}"


def counter(name: str) -> str:
    return f"/ids/{quote(name, safe='')}"


def submission_key(key: str, owner: str = "") -> str:
    """Hashed, so that a key may be any text of any length; without an owner as 0.1.0 wrote it."""
    scoped = f"{owner}\0{key}" if owner else key
    return f"/submission-keys/{hashlib.sha256(scoped.encode()).hexdigest()}"
