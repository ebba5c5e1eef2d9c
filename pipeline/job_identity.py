"""Which job an entry in storage or in the inventory belongs to: a record restored from a backup gives numbers
again, so the number alone says nothing.

The key of a job is random, made with the job, and entered with its version.
"""

from hashlib import sha256

from pipeline.outcome import StepFailed, system
from pipeline.records import Job


def number_of(name: str) -> int:
    """The number of a JID or BID; 0 if the text is neither.

    >>> number_of("jid0000000041"), number_of("bid0000000007"), number_of("")
    (41, 7, 0)
    """
    number = name.removeprefix("jid").removeprefix("bid")
    return int(number) if number.isdecimal() else 0


def same_key(one: str, other: str) -> bool:
    """Whether two keys may be of one job: jobs and entries of releases before 0.2.1 have none."""
    return not one or not other or one == other


def same_job(job: Job, key: str, bid: str, payload_name: str) -> bool:
    """Whether an entry with the job's number is the job's own.

    Jobs and entries of releases before 0.2.1 have no key: their batch and payload are compared.
    """
    own = job.configuration.key
    if own and key:
        return own == key
    return (bid, payload_name) == (job.bid, job.configuration.payload_name)


def derived(job: Job, *parts: str) -> bytes:
    """32 bytes that follow from the job and `parts`: every process computes the same."""
    return sha256("\0".join((job.jid, job.configuration.key, *parts)).encode()).digest()


def trace_id(job: Job) -> int:
    """The same for the job's whole life; another job of this number, in a new record, has another one."""
    return int.from_bytes(derived(job)[:16])


def reused(jid: str, evidence: str) -> StepFailed:
    return system(
        f"the number {jid} belongs to another job ({evidence}): the record was restored from a backup and "
        "gave the number again; submit this object again, and it gets another number"
    )
