"""Compares versions in storage, entries of the inventory, and jobs, counters and mark of the record.

Rule: storage is read before the inventory, and the inventory again after the record. A version just stored
thus belongs to a job in flight, or has been entered by then.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby, islice

from operations.checks.differences import Comparison, Difference, Search, StoreProblem
from pipeline.description import premis
from pipeline.errors import UsageRefused
from pipeline.fixity import ReadBackFile
from pipeline.inventory import reconciling
from pipeline.inventory.base import InventoryObject, Recording
from pipeline.inventory.reconciling import Entered
from pipeline.names import is_ark
from pipeline.outcome import DamagedObject, Service, ServiceDown, StepFailed, system
from pipeline.preservation import rebuild
from pipeline.preservation.custody import Reading, prove
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.records import Job, now, same_key
from pipeline.settings import Settings
from pipeline.states import JOB, JobState
from pipeline.storage.base import VersionEntry
from tasks.stores import level_marks
from zkstate.care import deployment
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing
from zkstate.fleet import counters, outages
from zkstate.record import jobs, space

PAGE = 500
"""Number of versions in storage, or jobs, that one query looks up in the inventory."""

_RECORDED = (JobState.RECORDING, *JOB.after(JobState.RECORDING))
"""A failed job whose last successful state is among these has entered its version."""


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
    """Versions in storage that cannot be read, or that the inventory lacks."""
    versions = search.storage.versions()
    while page := tuple(islice(versions, PAGE)):
        entered = reconciling.versions_of(search.inventory, [version.ark for version in page])
        missing = []
        for version in page:
            search.tick(1)
            search.numbers.note_job(version.jid)
            if version.problem:
                yield _problem(StoreProblem.UNREADABLE, version.problem, ark=version.ark)
            elif (version.ark, version.number) not in entered:
                missing.append(version)
        yield from _missing(search, missing)


def _problem(gap: StoreProblem, reason: str = "", **facts: object) -> Comparison:
    """A difference that an operator has to act on."""
    return Comparison(Difference.model_validate({"gap": gap, "reason": reason, **facts}))


def _of_version(gap: StoreProblem, version: VersionEntry | Entered, reason: str = "") -> Comparison:
    return _problem(gap, reason, ark=version.ark, version=version.number, jid=version.jid)


def _missing(search: Search, versions: Sequence[VersionEntry]) -> Iterator[Comparison]:
    """Versions that the inventory lacked at the first query."""
    owners = ((version.jid, _job_of(search, version)) for version in versions)
    waiting = {jid: job for jid, job in owners if job is not None and _in_flight(job)}
    jids = [version.jid for version in versions if version.jid]
    entered = reconciling.of_jobs(search.inventory, jids)
    archived = reconciling.archived_states(search.inventory, jids)
    for version in versions:
        if version.jid in entered:
            continue
        if not version.jid:
            yield _of_version(StoreProblem.NO_JOB, version)
        elif (job := waiting.get(version.jid)) is not None:
            failed = job.status.status is JobState.FAILED
            yield from (
                _entry_of(search, version, job_failed=True) if failed else _reservation(search, version, job)
            )
        elif archived.get(version.jid) == JobState.DELETED:
            yield _of_version(StoreProblem.DELETED_JOB, version)
        else:
            yield from _entry_of(search, version)


def _job_of(search: Search, version: VersionEntry) -> Job | None:
    """The job that stored the version; None if the record has no job with this number and key."""
    try:
        job = jobs.load(search.session, version.jid) if version.jid else None
    except (Missing, Corrupt):
        return None
    return job if job and same_key(job.configuration.key, version.key) else None


def _in_flight(job: Job) -> bool:
    """Whether the job will enter its version itself, once it continues or is resumed."""
    status = job.status
    if status.status is JobState.FAILED:
        return status.last_successful_status not in _RECORDED
    return not JOB.facts[status.status].recorded


def _entry_of(search: Search, version: VersionEntry, *, job_failed: bool = False) -> Iterator[Comparison]:
    """The missing inventory entry, made from storage."""
    try:
        recording = rebuild.recording_of(search.storage, version.ark, version.jid, version.key)
        assigned = version.number == 1 and _is_assigned(search, version)
    except ServiceDown:
        raise
    except StepFailed as failure:
        yield _of_version(StoreProblem.UNDESCRIBED, version, failure.message)
        return
    search.numbers.note_batch(recording.bid)
    if assigned:
        search.numbers.note_minted(version.ark)
    yield _not_entered(search, recording, job_failed=job_failed)


def _is_assigned(search: Search, version: VersionEntry) -> bool:
    """Whether the ARK was minted by a counter of the record."""
    if not search.numbers.spells(version.ark):
        return False
    described = search.storage.read(version.ark, f"system/{premis.NAME}", version.number, url=version.url)
    return premis.ASSIGNED.encode() in (described or b"")


def _not_entered(search: Search, recording: Recording, *, job_failed: bool) -> Comparison:
    """A version that the inventory lacks; a failed job's may be unverified, so it is read back first."""
    version = recording.version
    difference = Difference(
        gap=StoreProblem.NOT_ENTERED,
        ark=version.ark,
        version=version.number,
        jid=version.jid,
        job_failed=job_failed,
    )

    def enter() -> None:
        proved = recording
        if job_failed:
            rebuild.require_as_sent(search.storage, version)
            search.storage.verify(version)
            proved = replace(recording, version=replace(version, verified=now()))
        search.inventory.record(proved, rebuilt_by=search.agent)

    return Comparison(difference, enter)


def _reservation(search: Search, version: VersionEntry, job: Job) -> Iterator[Comparison]:
    """The ARK and the local ids of a job in flight that a restored inventory does not reserve.

    Without the reservation the next object with these local ids would get another ARK.
    """
    try:
        recording = rebuild.recording_of(search.storage, version.ark, version.jid, version.key)
    except ServiceDown:
        raise
    except StepFailed:
        return  # the job itself reports it
    known = search.inventory.arks_of(recording.owner, recording.local_id)
    # before identification the job's record does not say whether the depositor gave the ARK
    minted = version.number == 1 and (job.identifiers.assigned or job.identifiers.primary_id is None)
    if set(known) >= set(recording.local_id) and not (
        minted and version.ark not in reconciling.minted(search.inventory, [version.ark])
    ):
        return
    unrepaired = _of_version(StoreProblem.NOT_RESERVED, version)
    yield replace(unrepaired, repair=partial(_reserve, search, job, recording, minted=minted))


def _reserve(search: Search, job: Job, recording: Recording, *, minted: bool) -> None:
    ark = recording.version.ark
    if not minted:
        search.inventory.reserve_local_ids(recording.owner, ark, recording.local_id)
    elif not search.inventory.claim_ark(job, recording.owner, ark, recording.local_id):
        raise system(f"{ark} was minted for another job than {job.jid}")


def entries(search: Search, *, listed: bool) -> Iterator[Comparison]:
    """Every entry of the inventory, compared with storage; `listed`: `stored_versions` was compared, too."""
    for _, group in groupby(reconciling.every_version(search.inventory), lambda entry: entry.ark):
        yield from _of_entries(search, tuple(group), tell_unreadable=not listed)


def _of_entries(
    search: Search, owned: Sequence[Entered], *, tell_unreadable: bool = True
) -> Iterator[Comparison]:
    """The entries of one object, compared with storage."""
    first = owned[0]
    try:
        stored = {version.number: version for version in search.storage.versions_of(first.ark, first.url)}
    except ServiceDown:
        raise
    except StepFailed as failure:
        if tell_unreadable:
            if len(owned) == 1:
                yield _of_version(StoreProblem.UNREADABLE, first, failure.message)
            else:
                yield _problem(StoreProblem.UNREADABLE, failure.message, ark=first.ark)
        return
    content = _Content(search, first.ark)
    for entry in owned:
        search.tick(1)
        yield from _of_entry(search, entry, stored.get(entry.number), content)


def _of_entry(
    search: Search, entry: Entered, stored: VersionEntry | None, content: "_Content"
) -> Iterator[Comparison]:
    if stored is None:
        yield _of_version(StoreProblem.NOT_STORED, entry)
    elif not _same_job(entry, stored):
        yield _of_version(StoreProblem.DIFFERENT, entry, f"{entry.jid}, {stored.jid or '-'}")
    elif differing := _other_digest(search, entry, stored):
        yield _of_version(StoreProblem.DIFFERENT, entry, differing)
    elif search.content:
        yield from content.compared(entry)


def _same_job(entry: Entered, version: VersionEntry) -> bool:
    """Whether one job made both. Keys are compared if both have one; a service without jobs has no keys."""
    if not version.jid:
        return not entry.key or not version.key
    return entry.jid == version.jid and same_key(entry.key, version.key)


def _other_digest(search: Search, entry: Entered, stored: VersionEntry) -> str:
    """The first file with a different digest; empty if there is none."""
    known = reconciling.digests_of(search.inventory, entry)
    paths = sorted({*known, *stored.digests})
    return next((path for path in paths if known.get(path) != stored.digests.get(path)), "")


class _Content:
    """Compares the stored bytes of one object; bytes that its versions share are read once."""

    def __init__(self, search: Search, ark: str) -> None:
        self._search = search
        self._ark = ark
        self._read: dict[str, ReadBackFile] = {}

    @cached_property
    def _known(self) -> InventoryObject | None:
        return self._search.inventory.describe_object(self._ark)

    def compared(self, entry: Entered) -> Iterator[Comparison]:
        known = self._known
        if known is None:
            yield _of_version(StoreProblem.OTHER_OBJECT, entry)
            return
        # the description is of the object: with each version, all its inventories would be read again
        newest = entry.number == known.versions[-1].number
        reading = Reading(already=self._read, on_file=self._note, description=newest)
        try:
            custody = prove(known, (entry.number,), self._search.storage, reading)
        except DamagedObject as damage:
            yield _of_version(StoreProblem.UNREADABLE, entry, damage.message)
            return
        problems = ((file, problem) for file in custody.files for problem in file.problems)
        for file, problem in islice(problems, 1):
            # of bytes that are those of the record, the record has something else wrong: storage must stay
            as_stored = (
                file.now is not None and file.storage is not None and file.now.sha512 == file.storage.sha512
            )
            gap = StoreProblem.DIFFERENT if as_stored else StoreProblem.DAMAGED
            yield _of_version(gap, entry, f"{file.path}: {problem.what}")
        for problem in custody.description[:1]:
            yield _of_version(StoreProblem.DAMAGED, entry, problem.what)

    def _note(self, file: ReadBackFile) -> None:
        if not file.problem:
            self._read[file.place] = file


def jobs_of_record(
    search: Search, names: Iterable[str], *, listed: bool = False, with_entries: bool = False
) -> Iterator[Comparison]:
    """Jobs that should have entered their version, and failed jobs that may have stored one.

    `listed`: `stored_versions` was compared, and has reported what storage has. `with_entries`: also compare
    each job's entry with storage.
    """
    rest = iter(names)
    while page := tuple(islice(rest, PAGE)):
        entered = reconciling.of_jobs(search.inventory, page)
        for jid in page:
            search.tick(0)
            try:
                job = jobs.load(search.session, jid)
            except (Missing, Corrupt):
                continue  # removed since, or a problem of the record
            yield from _of_job(search, job, entered.get(jid), listed=listed, with_entries=with_entries)


def _of_job(
    search: Search, job: Job, entry: Entered | None, *, listed: bool, with_entries: bool
) -> Iterator[Comparison]:
    state, ark = job.status.status, job.identifiers.primary_id or ""
    failed = state is JobState.FAILED
    if not failed and not JOB.facts[state].recorded:
        return
    if entry is not None and not failed:
        if entry.ark != ark or not same_key(entry.key, job.configuration.key):
            yield _problem(StoreProblem.OTHER_OBJECT, entry.ark, ark=ark, version=entry.number, jid=job.jid)
        elif with_entries:
            yield from _of_entries(search, (entry,))
            return
    elif entry is None and not (failed and not is_ark(ark)):
        owner = _Owner(job.jid, ark, job.configuration.key, _nodes_of(search, job), failed)
        # a failed job may have been resumed, and have entered its version after the inventory was queried
        if not reconciling.of_jobs(search.inventory, (job.jid,)):
            yield from _without_entry(search, owner, listed=listed)
    if not failed:
        search.tick(1)


@dataclass(frozen=True)
class _Owner:
    """A job whose version is not entered."""

    jid: str
    ark: str
    key: str
    nodes: rebuild.Nodes
    failed: bool = False


def archived_jobs(search: Search, *, listed: bool) -> Iterator[Comparison]:
    """Archived completed jobs whose version is not entered."""
    for jid, ark in reconciling.archived_without_entry(search.inventory):
        search.tick(1)
        yield from _without_entry(search, _Owner(jid, ark, "", (None,)), listed=listed)


def _without_entry(search: Search, job: _Owner, *, listed: bool) -> Iterator[Comparison]:
    problem = partial(_problem, ark=job.ark, jid=job.jid, job_failed=job.failed)
    storage, ark = search.storage, job.ark
    try:
        version = rebuild.version_of(storage, ark, job.jid, job.key, job.nodes) if ark else None
    except ServiceDown:
        raise
    except StepFailed as failure:
        yield problem(StoreProblem.UNREADABLE, failure.message)
        return
    if version is None:
        if not job.failed:
            yield problem(StoreProblem.LOST)
        return
    if listed:
        return
    try:
        recording = rebuild.recording_of(storage, ark, job.jid, job.key, job.nodes)
    except ServiceDown:
        raise
    except StepFailed as failure:
        yield problem(StoreProblem.UNDESCRIBED, failure.message, version=version.number)
        return
    yield _not_entered(search, recording, job_failed=job.failed)


def _nodes_of(search: Search, job: Job) -> tuple[int | None, ...]:
    """The storage nodes where storing the job's version began, and that of the profile as it is now."""
    began = job.identifiers.nodes or ()
    try:
        profile = Profiles(search.settings.profiles).get(job.configuration.profile_name)
    except ProfileError:
        return (*began, None)
    return (*began, profile.storage_node)


MARGIN = 1_000
"""How far job and batch numbers skip beyond the highest that a store knows: later numbers may have been
given, and shown to a depositor, although neither inventory nor storage has them."""


def shoulders(session: Session, settings: Settings) -> tuple[tuple[str, str], ...]:
    """(NAAN, shoulder) of the collections and of the record's counters; the longest shoulder first."""
    named = set(counters.shoulders(session))
    profiles = Profiles(settings.profiles)
    for name in profiles.names():
        try:
            profile = profiles.get(name)
        except ProfileError:
            continue
        named.add((profile.naan, profile.shoulder))
    return tuple(sorted(named, key=lambda pair: (-len(pair[1]), pair)))


def behind(search: Search) -> Iterator[Comparison]:
    """Counters that are behind; call after all versions have been read."""
    session, numbers = search.session, search.numbers
    for ark in reconciling.every_minted_ark(search.inventory):
        numbers.note_minted(ark)
    job = max(numbers.job, reconciling.last_job(search.inventory))
    batch = max(numbers.batch, search.inventory.last_batch())
    # the counters are read last: they run ahead of what a running fleet stores
    last_job, last_batch = counters.readable(session, "job"), counters.last_batch(session)
    if last_job is None:  # jobs that stored nothing have numbers, too
        job = max(job, counters.highest_job(session))
    if last_job is None or last_job < job:
        repair = partial(counters.raise_to, session, "job", job + MARGIN)
        yield Comparison(_behind("job", last_job, job), repair)
    if last_batch < batch:
        raised = partial(counters.raise_batches, session, MARGIN, above=batch)
        yield Comparison(_behind("batch", last_batch, batch), raised)
    for (naan, shoulder), known in sorted(numbers.minted.items()):
        name = counters.minted(naan, shoulder)
        last = counters.readable(session, name)
        if last is None or last < known:
            yield Comparison(_behind(name, last, known), partial(counters.raise_to, session, name, known))


def reserved(search: Search) -> Iterator[Comparison]:
    """The sum of the reservations of working storage, if it differs from the sum of the nodes."""
    if fault := space.sum_fault(search.session):
        difference = Difference(gap=StoreProblem.RESERVED, value=fault[0], known=fault[1])
        yield Comparison(difference, partial(space.correct_sum, search.session))


def _behind(name: str, value: int | None, known: int) -> Difference:
    return Difference(gap=StoreProblem.NUMBERS, counter=name, value=value, known=known)


def marks(search: Search) -> Iterator[Comparison]:
    """Whether processes take record or inventory for an older copy, and wait; repaired last.

    An outage may say that the record is older although the marks agree: workers can have other evidence.
    """
    session = search.session
    marker = search.inventory.read_deployment()
    record = deployment.read(session)  # read last: its mark is raised first
    if marker is None or record is None:
        return
    outage = outages.known(session).get(Service.RECORD)
    older = record.mark < marker.mark or (outage is not None and outage.outage.ended is None)
    if older or record.mark > marker.mark + 1:
        difference = Difference(gap=StoreProblem.OUTDATED, value=record.mark, known=marker.mark)
        yield Comparison(difference, partial(_let_continue, search, older=older))


def _let_continue(search: Search, *, older: bool) -> None:
    """Level the marks and end the outage; `older`: the record lacks numbers given since its backup."""
    session = search.session
    if older:
        counters.raise_to(session, "job", counters.last(session, "job") + MARGIN)
        counters.raise_batches(session, MARGIN)
    level_marks(session, search.inventory)
    outages.end(session, Service.RECORD)
