"""What the record and the archive know of the jobs behind the versions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice

from operations.reconciliation import Comparison, Difference, Gap, Search
from pipeline.inventory import reconciling
from pipeline.inventory.base import Recording
from pipeline.names import is_ark
from pipeline.outcome import ServiceDown, StepFailed, system
from pipeline.preservation import rebuild
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.records import Job, now, same_key
from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from pipeline.storage.base import VersionEntry
from zkstate import jobs, listings
from zkstate.errors import Corrupt, Missing

PAGE = 500
"""Completed jobs that are looked up in the inventory at a time."""

_RECORDED = (JobState.RECORDING, *JOB.after(JobState.RECORDING))
"""A failed job whose last successful state is one of these has entered its version."""


def job_of(search: Search, version: VersionEntry) -> Job | None:
    """The job of a version; None if the record has none with this number and key."""
    try:
        job = jobs.load(search.session, version.jid) if version.jid else None
    except (Missing, Corrupt):
        return None
    return job if job and same_key(job.configuration.key, version.key) else None


def in_flight(job: Job) -> bool:
    """Whether the job will enter its version itself, once it continues or is resumed."""
    status = job.status
    if status.status is JobState.FAILED:
        return status.last_successful_status not in _RECORDED
    return status.status not in (*JOB.after(JobState.RECORDING), JobState.COMPLETED)


def reservation(search: Search, version: VersionEntry) -> Iterator[Comparison]:
    """The ARK and the local ids of a job in flight, if a restored inventory does not reserve them.

    Otherwise the next object with these local ids would get another ARK.
    """
    job = job_of(search, version)
    if job is None:
        return
    try:
        recording = rebuild.recording_of(search.storage, version.ark, version.jid, version.key)
    except ServiceDown:
        raise
    except StepFailed:
        return  # the job reports it
    known = search.inventory.arks_of(recording.owner, recording.local_id)
    # before the job got an identifier its record does not say whether the ARK was given
    minted = version.number == 1 and (job.identifiers.assigned or job.identifiers.primary_id is None)
    if set(known) >= set(recording.local_id) and not (
        minted and version.ark not in reconciling.minted(search.inventory, [version.ark])
    ):
        return
    difference = Difference(gap=Gap.NOT_RESERVED, ark=version.ark, version=version.number, jid=version.jid)
    yield Comparison(difference, partial(_reserve, search, job, recording, minted=minted))


def _reserve(search: Search, job: Job, recording: Recording, *, minted: bool) -> None:
    ark = recording.version.ark
    if not minted:
        search.inventory.reserve_local_ids(recording.owner, ark, recording.local_id)
    elif not search.inventory.claim_ark(job, recording.owner, ark, recording.local_id):
        raise system(f"{ark} was minted for another job than {job.jid}")


def completed_jobs(search: Search, *, listed: bool) -> Iterator[Comparison]:
    """Completed jobs of the record and of the archive whose version is not entered, and failed ones.

    `listed`: storage lists its objects, so that versions that storage has were reported already.
    """
    session = search.session
    failed = () if listed else listings.failed_jobs(session)
    names = chain(listings.completed_jobs(session), failed)
    while page := tuple(islice(names, PAGE)):
        yield from _not_entered(search, page, listed=listed)
    for jid, ark in reconciling.archived_without_entry(search.inventory):
        search.tick()
        yield from _lost(search, jid, ark, "", (None,), listed=listed)


def _not_entered(search: Search, jids: Sequence[str], *, listed: bool) -> Iterator[Comparison]:
    entered = reconciling.of_jobs(search.inventory, jids)
    for jid in jids:
        search.tick()
        if jid in entered:
            continue
        try:
            job = jobs.load(search.session, jid)
        except (Missing, Corrupt):
            continue  # removed meanwhile, or reported by the audit
        failed = job.status.status is JobState.FAILED
        ark, key = job.identifiers.primary_id or "", job.configuration.key
        if job.status.status is JobState.COMPLETED or (failed and is_ark(ark)):
            nodes = nodes_of(search.settings, job)
            yield from _lost(search, jid, ark, key, nodes, listed=listed, job_failed=failed)


def _lost(  # noqa: PLR0913 - the facts of one job
    search: Search,
    jid: str,
    ark: str,
    key: str,
    nodes: rebuild.Nodes,
    *,
    listed: bool,
    job_failed: bool = False,
) -> Iterator[Comparison]:
    try:
        version = rebuild.version_of(search.storage, ark, jid, key, nodes) if ark else None
        recording = (
            rebuild.recording_of(search.storage, ark, jid, key, nodes) if version and not listed else None
        )
    except ServiceDown:
        raise
    except StepFailed as failure:
        difference = Difference(gap=Gap.UNREADABLE, ark=ark, jid=jid, reason=failure.message)
        yield Comparison(difference)
        return
    if recording is not None:
        yield not_entered(search, recording, job_failed=job_failed)
    elif version is None and not job_failed:
        yield Comparison(Difference(gap=Gap.LOST, ark=ark, jid=jid))


def not_entered(search: Search, recording: Recording, *, job_failed: bool) -> Comparison:
    """A version that the inventory lacks; that of a failed job may not be proved, and is read back first."""
    version = recording.version
    difference = Difference(
        gap=Gap.NOT_ENTERED, ark=version.ark, version=version.number, jid=version.jid, job_failed=job_failed
    )

    def enter() -> None:
        proved = recording
        if job_failed:
            rebuild.require_as_sent(search.storage, version)
            search.storage.verify(version)
            proved = replace(recording, version=replace(version, verified=now()))
        search.inventory.record(proved, rebuilt_by=search.agent)

    return Comparison(difference, enter)


def nodes_of(settings: Settings, job: Job) -> tuple[int | None, ...]:
    """The storage nodes where storing the job's version began, and that of its profile as the file is now."""
    began = job.identifiers.nodes or ()
    try:
        return (*began, Profiles(settings.profiles).get(job.configuration.profile_name).storage_node)
    except ProfileError:
        return (*began, None)
