"""The checker: compares the final state of a run with its deposits, without the code that moves jobs."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from pipeline.records import Batch, Job
from pipeline.states import BATCH, JOB, BatchState, Bucket, Event, FailureKind, JobState
from tools.chaos.deposits import Deposit, DepositedObject
from tools.chaos.final_state import FinalState, Letter, Stored
from tools.chaos.notification_checker import check_notifications
from tools.chaos.problem import Category, Judgement, Problem, Repeated

ENDED = (JobState.COMPLETED, JobState.FAILED)


def judge(deposits: list[Deposit], bids: dict[str, str], final: FinalState) -> Judgement:
    """`bids`: the key of each deposit -> its batch."""
    objects: dict[str, DepositedObject] = {}
    problems = [
        *_deposits(deposits, bids, final, objects),
        *(problem for jid, job in final.jobs.items() for problem in _job(job, objects.get(jid), final)),
        *_stored(final, objects),
        *_identifiers(final, objects),
        *(problem for batch in final.batches.values() for problem in _batch(batch, final)),
        *check_notifications(final),
        *_leaks(final),
        *(Problem(Category.AUDIT, "", finding) for finding in final.findings),
    ]
    return Judgement(tuple(problems), _repeated(final))


def _deposits(
    deposits: list[Deposit],
    bids: dict[str, str],
    final: FinalState,
    objects: dict[str, DepositedObject],
) -> Iterator[Problem]:
    """Every deposit is one batch and every object one job; fills `objects`: job -> its object."""
    for extra in final.batches.keys() - set(bids.values()):
        yield Problem(Category.DUPLICATED, extra, "a batch that was not submitted")
    for deposit in deposits:
        bid = bids.get(deposit.key, "")
        if bid not in final.batches:
            yield Problem(Category.LOST, bid, f"deposit {deposit.key} is no batch")
            continue
        expected = {deposited.path: deposited for deposited in deposit.objects}
        created: Counter[str] = Counter()
        for jid in sorted(jid for jids in final.buckets[bid].values() for jid in jids):
            job = final.jobs.get(jid)
            path = "/" + job.configuration.payload_url.split("/", 3)[3] if job else ""
            if path in expected:
                created[path] += 1
                objects[jid] = expected[path]
            else:
                yield Problem(Category.ILLEGAL, jid, f"a job of {bid} that belongs to none of its objects")
        for path in expected:
            if created[path] == 0:
                yield Problem(Category.LOST, bid, f"no job was created of {path}")
            if created[path] > 1:
                yield Problem(Category.DUPLICATED, bid, f"{created[path]} jobs were created of {path}")


def _job(job: Job, deposited: DepositedObject | None, final: FinalState) -> Iterator[Problem]:
    state = job.status.status
    if deposited is None:
        yield Problem(Category.DUPLICATED, job.jid, "a job of no deposit")
    elif state not in ENDED:
        yield Problem(Category.LOST, job.jid, f"did not end: it is {state}: {job.status.message}")
    elif state is JobState.FAILED and not deposited.planted:
        yield Problem(Category.LOST, job.jid, f"failed ({job.status.kind}): {job.status.message}")
    elif state is JobState.COMPLETED and deposited.planted:
        yield Problem(Category.ILLEGAL, job.jid, f"completed although its {deposited.planted} is wrong")
    elif state is JobState.FAILED and job.status.kind is not FailureKind.CONTENT:
        yield Problem(
            Category.ILLEGAL,
            job.jid,
            f"its {deposited.planted if deposited else ''} was called {job.status.kind}",
        )
    yield from _places(job, final)
    yield from _history(job)


def _places(job: Job, final: FinalState) -> Iterator[Problem]:
    state = job.status.status
    queues = final.queued.get(job.jid, [])
    buckets = [name for name, jids in final.buckets.get(job.bid, {}).items() if job.jid in jids]
    bucket = {JobState.COMPLETED: Bucket.COMPLETED, JobState.FAILED: Bucket.FAILED}.get(state)
    if state is JobState.COMPLETED and queues:
        yield Problem(Category.LEAK, job.jid, f"is completed and still queued in {queues}")
    elif state is not JobState.COMPLETED and queues != [state]:
        sort = Category.DUPLICATED if len(queues) > 1 else Category.LOST
        yield Problem(sort, job.jid, f"is {state}, but queued in {queues}")
    if bucket and buckets != [bucket]:
        sort = Category.DUPLICATED if len(buckets) > 1 else Category.LOST
        yield Problem(sort, job.jid, f"is {state}, but its batch keeps it in {buckets}")


def _history(job: Job) -> Iterator[Problem]:
    """Each entry follows from the one before by a row of the table; one without an event is a try."""
    entries = job.history
    if not entries or entries[0].state is not JOB.initial or entries[0].event is not None:
        yield Problem(Category.ILLEGAL, job.jid, f"its history does not begin with {JOB.initial}")
        return
    state: JobState = entries[0].state
    last: JobState | None = None
    for entry in entries[1:]:
        if entry.event is None:
            legal = entry.state is state
        else:
            targets = [r.target for r in JOB.table if (r.source, r.event) == (state, entry.event)]
            if entry.event is Event.RESUME:
                options = JOB.working()
                targets = [JobState.PENDING if last is None else options[options.index(last) + 1]]
            legal = entry.state in targets
            last = state if entry.event is Event.SUCCEED else last
        if not legal:
            yield Problem(Category.ILLEGAL, job.jid, f"{entry.event} led from {state} to {entry.state}")
        state = entry.state
    if state is not job.status.status:
        yield Problem(Category.ILLEGAL, job.jid, f"its history ends with {state}, not {job.status.status}")


def _stored(final: FinalState, objects: dict[str, DepositedObject]) -> Iterator[Problem]:
    """One stored version and one inventory entry for each completed job, both with the bytes deposited."""
    for complaint in final.invalid:
        yield Problem(Category.ILLEGAL, "", f"the storage root is not valid OCFL: {complaint}")
    yield from _numbered(final)
    by_job: dict[str, list[Stored]] = defaultdict(list)
    entered: dict[str, list[Stored]] = defaultdict(list)
    for version in final.versions:
        by_job[version.jid].append(version)
    for entry in final.entries:
        entered[entry.jid].append(entry)
    for jid in by_job.keys() | entered.keys():
        job = final.jobs.get(jid)
        if job is None or job.status.status is not JobState.COMPLETED:
            yield Problem(Category.ILLEGAL, jid, "is stored or in the inventory, but not a completed job")
    for jid, job in final.jobs.items():
        if job.status.status is JobState.COMPLETED and jid in objects:
            yield from _one_version(job, objects[jid], by_job[jid], entered[jid])


def _numbered(final: FinalState) -> Iterator[Problem]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for version in final.versions:
        numbers[version.ark].append(version.number)
    for ark, existing in numbers.items():
        if sorted(existing) != list(range(1, len(existing) + 1)):
            yield Problem(Category.LOST, "", f"{ark} has the versions {sorted(existing)}")


def _one_version(
    job: Job, deposited: DepositedObject, stored: list[Stored], entered: list[Stored]
) -> Iterator[Problem]:
    for what, versions in (("stored", stored), ("in the inventory", entered)):
        if not versions:
            yield Problem(Category.LOST, job.jid, f"is completed, but not {what}")
        elif len(versions) > 1:
            yield Problem(Category.DUPLICATED, job.jid, f"is {len(versions)} times {what}")
    if not stored or not entered:
        return
    if stored[0] != entered[0]:
        yield Problem(Category.ILLEGAL, job.jid, "storage and inventory differ")
    if stored[0].ark != job.identifiers.primary_id:
        yield Problem(
            Category.ILLEGAL, job.jid, f"is {job.identifiers.primary_id}, but stored as {stored[0].ark}"
        )
    stored_files = {
        path.removeprefix("producer/"): digest
        for path, digest in stored[0].files.items()
        if path.startswith("producer/")
    }
    wrong = [name for name, allowed in deposited.files.items() if stored_files.get(name) not in allowed]
    if wrong or stored_files.keys() != deposited.files.keys():
        names = ", ".join(sorted({*wrong, *(stored_files.keys() ^ deposited.files.keys())}))
        yield Problem(Category.LOST, job.jid, f"its stored files are not those deposited: {names}")


def _identifiers(final: FinalState, objects: dict[str, DepositedObject]) -> Iterator[Problem]:
    """One ARK for each object, and one object for each ARK."""
    arks: dict[str, set[str]] = defaultdict(set)
    owners: dict[str, set[str]] = defaultdict(set)
    for jid, deposited in objects.items():
        ark = final.jobs[jid].identifiers.primary_id
        if final.jobs[jid].status.status is not JobState.COMPLETED:
            continue
        arks[deposited.local_id or jid].add(str(ark))
        owners[str(ark)].add(deposited.local_id or jid)
        if deposited.local_id and final.local_ids.get(deposited.local_id) != ark:
            named_ark = final.local_ids.get(deposited.local_id)
            text = f"its local id {deposited.local_id} names {named_ark}, not {ark}"
            yield Problem(Category.LOST, jid, text)
    for name, several in arks.items():
        if len(several) > 1:
            yield Problem(Category.DUPLICATED, "", f"{name} has the ARKs {sorted(several)}")
    for ark, named in owners.items():
        if len(named) > 1:
            yield Problem(Category.DUPLICATED, "", f"{ark} names the objects {sorted(named)}")


def _batch(batch: Batch, final: FinalState) -> Iterator[Problem]:
    """The batch has ended, and its numbered reports tell the depositor the end of every job."""
    members = {jid: final.jobs[jid].status.status for jid in _members(batch, final) if jid in final.jobs}
    whole = members and all(state is JobState.COMPLETED for state in members.values())
    if batch.status.status not in (BatchState.COMPLETED, BatchState.FAILED):
        text = f"did not end: it is {batch.status.status}: {batch.status.message}"
        yield Problem(Category.LOST, batch.bid, text)
        return
    if (batch.status.status is BatchState.COMPLETED) != bool(whole):
        yield Problem(Category.ILLEGAL, batch.bid, f"is {batch.status.status}, and its jobs are {members}")
    if batch.status.status in BATCH.working():
        yield Problem(Category.LOST, batch.bid, "is still being processed")
    reports = {f"{batch.bid}.report-{n}@arkline" for n in range(1, batch.status.reports + 1)}
    letters = [letter for letter in final.letters if letter.name.startswith(f"{batch.bid}.")]
    for missing in sorted(reports - {letter.name for letter in letters}):
        yield Problem(Category.LOST, batch.bid, f"{missing} was never delivered")
    for extra in sorted({letter.name for letter in letters} - reports):
        yield Problem(
            Category.DUPLICATED, batch.bid, f"{extra} was delivered, but only {len(reports)} were created"
        )
    yield from _truth(batch, letters, members)


def _members(batch: Batch, final: FinalState) -> set[str]:
    return {jid for jids in final.buckets[batch.bid].values() for jid in jids}


def _truth(batch: Batch, letters: list[Letter], members: dict[str, JobState]) -> Iterator[Problem]:
    reported: dict[str, JobState] = {}
    for letter in sorted(letters, key=lambda letter: letter.name):
        reported |= dict.fromkeys(letter.completed, JobState.COMPLETED)
        reported |= dict.fromkeys(letter.failed, JobState.FAILED)
    for jid in sorted(reported.keys() | members.keys()):
        if reported.get(jid) != members.get(jid):
            text = f"the reports say that {jid} is {reported.get(jid)}, but it is {members.get(jid)}"
            yield Problem(Category.LOST, batch.bid, text)


def _leaks(final: FinalState) -> Iterator[Problem]:
    """Only failed jobs keep a folder and a reservation, because an operator may resume them."""
    failed = {jid for jid, job in final.jobs.items() if job.status.status is JobState.FAILED}
    for path in final.held:
        yield Problem(Category.LEAK, "", f"{path} is locked without an owner")
    for folder in final.folders:
        jid = folder.rpartition("/")[2]
        if jid not in failed:
            yield Problem(Category.LEAK, jid if jid in final.jobs else "", f"working storage has {folder}")
    for jid, size in final.reservations.items():
        if jid not in failed:
            yield Problem(Category.LEAK, jid, f"{size} bytes are reserved for it")
    if final.promised != sum(final.reservations.values()):
        yield Problem(Category.LEAK, "", f"{final.promised} bytes are reserved, for {final.reservations}")
    for path in final.leftovers:
        yield Problem(Category.LEAK, "", f"the storage root has {path}")


def _repeated(final: FinalState) -> Repeated:
    mails = Counter(letter.name for letter in final.letters)
    calls = Counter(call.name for call in final.calls)
    used = {job.identifiers.primary_id for job in final.jobs.values()} - {None}
    return Repeated(
        mails=sum(mails.values()) - len(mails),
        callbacks=sum(calls.values()) - len(calls),
        unused_numbers=final.numbers - len(used),
    )
