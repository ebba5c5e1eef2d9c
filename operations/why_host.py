"""Whether who has a worker waits with it for a source's host, and who has the connections meanwhile."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from operations.wording import duration, listed
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profiles
from pipeline.records import Batch, Job
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from pipeline.steps.expected_files import wanted
from pipeline.urls import host_of
from pipeline.working_storage.workspace import Workspace
from tasks.profiles import host_limit, profile_of
from zkstate import hosts
from zkstate.session import Session

SOON_READ = 1_000_000
"""Bytes of a manifest that is read to answer a question."""

HOSTS = 20
"""Hosts that are looked at; few objects come from more than one."""

_FETCHING = {JobState.PENDING, JobState.ESTIMATING, JobState.DOWNLOADING}
_READING = {BatchState.PENDING, BatchState.PROCESSING}


def job_waits(session: Session, settings: Settings, job: Job) -> str:
    """A sentence, if the job's worker waits for a host; else nothing."""
    if job.status.status not in _FETCHING:
        return ""
    limit = _limit(session, settings, job.bid, job.configuration.profile_name)
    return _waits(session, limit, job.jid, _hosts(job))


def batch_waits(session: Session, settings: Settings, batch: Batch) -> str:
    if batch.status.status not in _READING:
        return ""
    limit = _limit(session, settings, batch.bid, batch.submission.profile_name)
    return _waits(session, limit, batch.bid, [host_of(batch.submission.payload_url)])


def _waits(session: Session, limit: int, name: str, wanted: Iterable[str]) -> str:
    for host in filter(None, wanted):
        if (left := hosts.back_off_left(session, host)) > 0:
            return f"It waits for {host}, which asked to be left alone, for {duration(left)} more."
        taken = hosts.holders(session, host)
        if name not in taken and len(taken) >= limit:
            who = Counter(each or "somebody" for each in taken)
            return (
                f"It waits for a connection to {host}: all {limit} that the fleet may have open "
                f"(ARKLINE_HOST_LIMIT, or limits.host_connections in its profile) are taken ({listed(who)})."
            )
    return ""


def _hosts(job: Job) -> list[str]:
    """The payload's; and those of its files, where this machine sees a manifest that is soon read."""
    urls = [job.configuration.payload_url]
    with suppress(OSError, StepFailed):
        if Workspace.of(job).manifest.stat().st_size <= SOON_READ:
            urls += [file.url for file in wanted(job)]
    return list(dict.fromkeys(host_of(url) for url in urls))[:HOSTS]


def _limit(session: Session, settings: Settings, bid: str, name: str) -> int:
    profile = partial(profile_of, session, Profiles(settings.profiles), bid, name)
    return host_limit(settings.host_limit, profile) or hosts.ANY_NUMBER
