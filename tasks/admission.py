"""Whether the record has room for the jobs of a batch: all jobs are kept in ZooKeeper's memory.

Checked before the first job of a batch is created, and not between its jobs, so that no batch is admitted in
part. Batches that are split at the same moment may exceed a limit together.
"""

from pipeline.outcome import Later, WaitKind, content, transient
from pipeline.profiles.profile import Profile
from pipeline.record_budget import accepted_jobs, limit_of
from pipeline.records import Batch
from pipeline.settings import Settings
from zkstate import fairness, listings, server_memory
from zkstate.session import Session

RECORD_WAIT = 60.0
"""Seconds between two looks whether other batches have left."""


def check_room(session: Session, settings: Settings, profile: Profile, batch: Batch, jobs: int) -> None:
    """Later or transient if jobs have to end or leave first; a content failure if the batch never fits."""
    if batch.status.created:
        return
    _check_record(session, settings, jobs)
    _check_collection(session, profile, jobs)
    _check_submitter(session, settings, batch.submission.owner, jobs)


def _check_record(session: Session, settings: Settings, jobs: int) -> None:
    if not settings.record_jobs:
        return
    heap = server_memory.heap_bytes(session)
    accepted, limit = accepted_jobs(settings, heap), limit_of(settings, heap)
    if jobs > accepted:
        raise content(f"the batch has {jobs:,} objects, and {limit} is {accepted:,}: divide it")
    recorded = listings.recorded(session)
    if recorded + jobs > accepted:
        raise Later(
            WaitKind.RECORD,
            "",
            f"the record has {recorded:,} jobs, and {jobs:,} more would exceed {limit} ({accepted:,}): "
            "batches that have ended have to leave first, or an operator raises ARKLINE_RECORD_JOBS and "
            "ZooKeeper's heap",
            RECORD_WAIT,
        )


def _check_collection(session: Session, profile: Profile, jobs: int) -> None:
    limit = profile.limits.live_jobs
    if limit is None:
        return
    if jobs > limit:
        raise content(
            f"the batch has {jobs:,} objects, but collection {profile.name} may have {limit:,} jobs that "
            "have not ended: divide it, or ask the collection's owner to raise limits.live_jobs"
        )
    live = fairness.live_jobs(session, lambda party: party.collection == profile.name)
    if live + jobs > limit:
        raise transient(
            f"collection {profile.name} has {live:,} jobs that have not ended, and {jobs:,} more would "
            f"exceed {limit:,} (limits.live_jobs): they have to end first, or the limit has to be raised"
        )


def _check_submitter(session: Session, settings: Settings, owner: str, jobs: int) -> None:
    """Over all collections; a batch that was submitted to release 0.1.0 has no owner, and no limit."""
    limit = settings.submitter_jobs
    if not owner:
        return
    if jobs > limit:
        raise content(
            f"the batch has {jobs:,} objects, but a submitter may have {limit:,} jobs that have not ended: "
            "divide it, or ask the operator to raise ARKLINE_SUBMITTER_JOBS"
        )
    live = fairness.live_jobs(session, lambda party: party.submitter == owner)
    if live + jobs > limit:
        raise transient(
            f"the submitter {owner} has {live:,} jobs that have not ended, and {jobs:,} more would exceed "
            f"{limit:,} (ARKLINE_SUBMITTER_JOBS): they have to end first, or the limit has to be raised"
        )
