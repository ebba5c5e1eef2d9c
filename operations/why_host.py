"""Whether a job or a batch waits for the host of its content, and who has the connections."""

from collections import Counter
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

from operations.facts import Cause, Reason
from operations.site import Site
from pipeline.http.urls import place_of
from pipeline.outcome import StepFailed
from pipeline.records import Batch, Job, now
from pipeline.states import BATCH, JOB
from pipeline.working_storage.workspace import Workspace
from tasks.profiles import host_limit, profile_of
from zkstate import host_back_off, host_connections

MANIFEST_LIMIT = 1_000_000
"""Bytes of a manifest that is read for the hosts of its files; a longer one takes too long."""

HOSTS = 20
"""Hosts that are examined; few objects come from more than one."""


def waits(site: Site, record: Job | Batch) -> Cause | None:
    """None unless the job or batch needs a host that may not be contacted now."""
    facts = JOB.facts[record.status.status] if isinstance(record, Job) else BATCH.facts[record.status.status]
    if not facts.fetches:
        return None
    session, settings = site.session, site.settings
    profile = partial(profile_of, session, site.profiles, record.bid, record.profile_name)
    limit = host_limit(settings.host_limit, profile) or host_connections.UNLIMITED
    for host in filter(None, _hosts(record, settings.working)):
        pause = host_back_off.pause_by_own_clock(session, host)
        if pause.left > 0:
            return Cause(
                reason=Reason.HOST_DOWN if pause.unanswered else Reason.HOST_BACKING_OFF,
                waits_for=host,
                message=pause.cause,
                when=now() + timedelta(seconds=pause.left),
                moves_itself=True,
            )
        users = host_connections.holders(session, host)
        if record.id not in users and len(users) >= limit:
            return Cause(
                reason=Reason.WAITING_FOR_HOST,
                waits_for=host,
                limit=limit,
                taken=len(users),
                users=dict(Counter(user or "unknown" for user in users)),
                moves_itself=True,
            )
    return None


def _hosts(record: Job | Batch, working: Path) -> list[str]:
    """The payload's host, and those of a job's files if this machine has a short manifest of them."""
    if isinstance(record, Batch):
        return [place_of(record.submission.payload_url)]
    urls = [record.configuration.payload_url]
    with suppress(OSError, StepFailed):
        if Workspace.of(record, working).manifest.stat().st_size <= MANIFEST_LIMIT:
            from pipeline.steps.expected_files import expected_files  # loads SQLAlchemy and requests

            urls += [file.url for file in expected_files(record, working)]
    return list(dict.fromkeys(place_of(url) for url in urls))[:HOSTS]
