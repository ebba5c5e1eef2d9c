"""Compares every version in storage with the inventory, and every entry of the inventory with storage.

Rule: storage is read before the inventory, and the inventory again after the record: a version that was just
stored is that of a job in flight, or is entered meanwhile.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice

from operations.reconcile_jobs import in_flight, job_of, not_entered, reservation
from operations.reconciliation import Comparison, Difference, Gap, Search
from pipeline.description import premis
from pipeline.errors import UsageRefused
from pipeline.inventory import reconciling
from pipeline.inventory.reconciling import Entered
from pipeline.outcome import ServiceDown, StepFailed
from pipeline.preservation.rebuild import recording_of
from pipeline.records import same_key
from pipeline.states import JobState
from pipeline.storage.base import VersionEntry

PAGE = 500
"""Versions in storage that are compared with the inventory in one query."""


def lists_objects(search: Search) -> bool:
    """False for Merritt's storage service, which cannot list its objects."""
    try:
        next(search.storage.versions())
    except StopIteration:
        return True
    except UsageRefused:
        return False
    return True


def stored_versions(search: Search) -> Iterator[Comparison]:
    """Storage against inventory."""
    versions = search.storage.versions()
    while page := tuple(islice(versions, PAGE)):
        entered = reconciling.versions_of(search.inventory, [version.ark for version in page])
        missing = []
        for version in page:
            search.tick()
            search.numbers.note_job(version.jid)
            entry = entered.get((version.ark, version.number))
            if version.problem:
                difference = Difference(gap=Gap.UNREADABLE, ark=version.ark, reason=version.problem)
                yield Comparison(difference)
            elif entry is None:
                missing.append(version)
            elif not same_job(entry, version):
                yield Comparison(_difference(Gap.DIFFERENT, version, f"{entry.jid}, {version.jid or '-'}"))
        yield from _missing(search, missing)


def same_job(entry: Entered, version: VersionEntry) -> bool:
    """Keys are compared if both have one; a service that lists no jobs has none to compare."""
    if not version.jid:
        return not entry.key or not version.key
    return entry.jid == version.jid and same_key(entry.key, version.key)


def _difference(gap: Gap, version: VersionEntry, reason: str = "") -> Difference:
    return Difference(gap=gap, ark=version.ark, version=version.number, jid=version.jid, reason=reason)


def _missing(search: Search, versions: Sequence[VersionEntry]) -> Iterator[Comparison]:
    """The versions that the inventory lacked when it was asked first."""
    owners = ((version.jid, job_of(search, version)) for version in versions)
    waiting = {jid: job for jid, job in owners if job is not None and in_flight(job)}
    jids = [version.jid for version in versions if version.jid]
    entered = reconciling.of_jobs(search.inventory, jids)
    archived = reconciling.archived_states(search.inventory, jids)
    for version in versions:
        if version.jid in entered:
            continue
        if not version.jid:
            yield Comparison(_difference(Gap.NO_JOB, version))
        elif (job := waiting.get(version.jid)) is not None:
            failed = job.status.status is JobState.FAILED
            yield from entry_of(search, version, job_failed=True) if failed else reservation(search, version)
        elif archived.get(version.jid) == JobState.DELETED:
            yield Comparison(_difference(Gap.DELETED_JOB, version))
        else:
            yield from entry_of(search, version)


def entry_of(search: Search, version: VersionEntry, *, job_failed: bool = False) -> Iterator[Comparison]:
    """The entry that the inventory lacks, made from storage."""
    try:
        recording = recording_of(search.storage, version.ark, version.jid, version.key)
        assigned = version.number == 1 and _is_assigned(search, version)
    except ServiceDown:
        raise
    except StepFailed as failure:
        yield Comparison(_difference(Gap.UNDESCRIBED, version, failure.message))
        return
    search.numbers.note_batch(recording.bid)
    if assigned:
        search.numbers.note_minted(version.ark)
    yield not_entered(search, recording, job_failed=job_failed)


def _is_assigned(search: Search, version: VersionEntry) -> bool:
    """Whether the ARK was minted by a counter of the record."""
    if not search.numbers.spells(version.ark):
        return False
    described = search.storage.read(version.ark, f"system/{premis.NAME}", version.number, url=version.url)
    return premis.ASSIGNED.encode() in (described or b"")


def entries(search: Search, *, listed: bool) -> Iterator[Comparison]:
    """Inventory against storage; `listed`: `stored_versions` reports what storage has and cannot read."""
    for ark, group in groupby(reconciling.every_version(search.inventory), lambda entry: entry.ark):
        owned = list(group)
        try:
            stored = {version.number: version for version in search.storage.versions_of(ark, owned[0].url)}
        except ServiceDown:
            raise
        except StepFailed as failure:
            if not listed:
                yield Comparison(Difference(gap=Gap.UNREADABLE, ark=ark, reason=failure.message))
            continue
        for entry in owned:
            search.tick()
            if entry.number not in stored:
                difference = Difference(gap=Gap.NOT_STORED, ark=ark, version=entry.number, jid=entry.jid)
                yield Comparison(difference)
