"""Whether a job or a batch waits for the host of its content, and who has the connections."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial

from operations.facts import Cause, Reason
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profiles
from pipeline.records import Batch, Job, now
from pipeline.settings import Settings
from pipeline.states import BATCH, JOB
from pipeline.steps.expected_files import expected_files
from pipeline.urls import host_of
from pipeline.working_storage.workspace import Workspace
from tasks.profiles import host_limit, profile_of
from zkstate import host_back_off, host_connections
from zkstate.session import Session

MANIFEST_LIMIT = 1_000_000
"""Bytes of a manifest that is read for the hosts of its files; a longer one takes too long."""

HOSTS = 20
"""Hosts that are examined; few objects come from more than one."""


def job_waits(session: Session, settings: Settings, job: Job) -> Cause | None:
    """None unless the job needs a host that may not be contacted now."""
    if not JOB.facts[job.status.status].fetches:
        return None
    limit = _limit(session, settings, job.bid, job.configuration.profile_name)
    return _waits(session, limit, job.jid, _hosts(job))


def batch_waits(session: Session, settings: Settings, batch: Batch) -> Cause | None:
    """None unless the batch's payload is on a host that may not be contacted now."""
    if not BATCH.facts[batch.status.status].fetches:
        return None
    limit = _limit(session, settings, batch.bid, batch.submission.profile_name)
    return _waits(session, limit, batch.bid, [host_of(batch.submission.payload_url)])


def _waits(session: Session, limit: int, name: str, needed: Iterable[str]) -> Cause | None:
    for host in filter(None, needed):
        if (left := host_back_off.seconds_left_by_own_clock(session, host)) > 0:
            return Cause(
                reason=Reason.HOST_BACKING_OFF,
                waits_for=host,
                when=now() + timedelta(seconds=left),
                moves_itself=True,
            )
        users = host_connections.holders(session, host)
        if name not in users and len(users) >= limit:
            return Cause(
                reason=Reason.WAITING_FOR_HOST,
                waits_for=host,
                limit=limit,
                taken=len(users),
                users=dict(Counter(user or "unknown" for user in users)),
                moves_itself=True,
            )
    return None


def _hosts(job: Job) -> list[str]:
    """The payload's host, and those of its files if this machine has a short manifest of them."""
    urls = [job.configuration.payload_url]
    with suppress(OSError, StepFailed):
        if Workspace.of(job).manifest.stat().st_size <= MANIFEST_LIMIT:
            urls += [file.url for file in expected_files(job)]
    return list(dict.fromkeys(host_of(url) for url in urls))[:HOSTS]


def _limit(session: Session, settings: Settings, bid: str, name: str) -> int:
    profile = partial(profile_of, session, Profiles(settings.profiles), bid, name)
    return host_limit(settings.host_limit, profile) or host_connections.UNLIMITED
