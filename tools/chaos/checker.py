"""Judges what a run left behind, without the code that moves jobs."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from pipeline.records import Batch, Job
from pipeline.states import BATCH, JOB, BatchState, Bucket, Event, FailureKind, JobState
from tools.chaos.deposits import Deposit, DepositedObject
from tools.chaos.final_state import FinalState, Letter, Stored
from tools.chaos.notification_checker import told
from tools.chaos.problem import Category, Judgement, Problem, Repeated

ENDED = (JobState.COMPLETED, JobState.FAILED)


def judge(deposits: list[Deposit], bids: dict[str, str], remains: FinalState) -> Judgement:
    """`bids`: the key of each deposit -> its batch."""
    things: dict[str, DepositedObject] = {}
    problems = [
        *_deposits(deposits, bids, remains, things),
        *(each for jid, job in remains.jobs.items() for each in _job(job, things.get(jid), remains)),
        *_stored(remains, things),
        *_identifiers(remains, things),
        *(each for batch in remains.batches.values() for each in _batch(batch, remains)),
        *told(remains),
        *_leaks(remains),
        *(Problem(Category.AUDIT, "", finding) for finding in remains.findings),
    ]
    return Judgement(tuple(problems), _repeated(remains))


def _deposits(
    deposits: list[Deposit], bids: dict[str, str], remains: FinalState, things: dict[str, DepositedObject]
) -> Iterator[Problem]:
    """Every deposit is one batch and every object one job; fills `things`: job -> its object."""
    for extra in remains.batches.keys() - set(bids.values()):
        yield Problem(Category.DUPLICATED, extra, "a batch that nobody submitted")
    for deposit in deposits:
        bid = bids.get(deposit.key, "")
        if bid not in remains.batches:
            yield Problem(Category.LOST, bid, f"deposit {deposit.key} is no batch")
            continue
        wanted = {thing.path: thing for thing in deposit.things}
        made: Counter[str] = Counter()
        for jid in sorted(jid for jids in remains.buckets[bid].values() for jid in jids):
            job = remains.jobs.get(jid)
            path = "/" + job.configuration.payload_url.split("/", 3)[3] if job else ""
            if path in wanted:
                made[path] += 1
                things[jid] = wanted[path]
            else:
                yield Problem(Category.ILLEGAL, jid, f"a job of {bid} that is none of its objects")
        for path in wanted:
            if made[path] == 0:
                yield Problem(Category.LOST, bid, f"no job was made of {path}")
            if made[path] > 1:
                yield Problem(Category.DUPLICATED, bid, f"{made[path]} jobs were made of {path}")


def _job(job: Job, thing: DepositedObject | None, remains: FinalState) -> Iterator[Problem]:
    state = job.status.status
    if thing is None:
        yield Problem(Category.DUPLICATED, job.jid, "a job of no deposit")
    elif state not in ENDED:
        yield Problem(Category.LOST, job.jid, f"did not end: it is {state}: {job.status.message}")
    elif state is JobState.FAILED and not thing.planted:
        yield Problem(Category.LOST, job.jid, f"failed ({job.status.kind}): {job.status.message}")
    elif state is JobState.COMPLETED and thing.planted:
        yield Problem(Category.ILLEGAL, job.jid, f"completed although its {thing.planted} is wrong")
    elif state is JobState.FAILED and job.status.kind is not FailureKind.CONTENT:
        yield Problem(
            Category.ILLEGAL, job.jid, f"its {thing.planted if thing else ''} was called {job.status.kind}"
        )
    yield from _places(job, remains)
    yield from _history(job)


def _places(job: Job, remains: FinalState) -> Iterator[Problem]:
    state = job.status.status
    queues = remains.queued.get(job.jid, [])
    buckets = [name for name, jids in remains.buckets.get(job.bid, {}).items() if job.jid in jids]
    wanted = {JobState.COMPLETED: Bucket.COMPLETED, JobState.FAILED: Bucket.FAILED}.get(state)
    if state is JobState.COMPLETED and queues:
        yield Problem(Category.LEAK, job.jid, f"is completed and still queued in {queues}")
    elif state is not JobState.COMPLETED and queues != [state]:
        sort = Category.DUPLICATED if len(queues) > 1 else Category.LOST
        yield Problem(sort, job.jid, f"is {state}, but queued in {queues}")
    if wanted and buckets != [wanted]:
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
                order = JOB.working()
                targets = [JobState.PENDING if last is None else order[order.index(last) + 1]]
            legal = entry.state in targets
            last = state if entry.event is Event.SUCCEED else last
        if not legal:
            yield Problem(Category.ILLEGAL, job.jid, f"{entry.event} led from {state} to {entry.state}")
        state = entry.state
    if state is not job.status.status:
        yield Problem(Category.ILLEGAL, job.jid, f"its history ends with {state}, not {job.status.status}")


def _stored(remains: FinalState, things: dict[str, DepositedObject]) -> Iterator[Problem]:
    """One stored version and one inventory entry for each completed job, both with the bytes deposited."""
    for complaint in remains.invalid:
        yield Problem(Category.ILLEGAL, "", f"the storage root is not valid OCFL: {complaint}")
    yield from _numbered(remains)
    by_job: dict[str, list[Stored]] = defaultdict(list)
    entered: dict[str, list[Stored]] = defaultdict(list)
    for each in remains.versions:
        by_job[each.jid].append(each)
    for each in remains.entries:
        entered[each.jid].append(each)
    for jid in by_job.keys() | entered.keys():
        job = remains.jobs.get(jid)
        if job is None or job.status.status is not JobState.COMPLETED:
            yield Problem(Category.ILLEGAL, jid, "is stored or in the inventory, but not a completed job")
    for jid, job in remains.jobs.items():
        if job.status.status is JobState.COMPLETED and jid in things:
            yield from _one_version(job, things[jid], by_job[jid], entered[jid])


def _numbered(remains: FinalState) -> Iterator[Problem]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for each in remains.versions:
        numbers[each.ark].append(each.number)
    for ark, found in numbers.items():
        if sorted(found) != list(range(1, len(found) + 1)):
            yield Problem(Category.LOST, "", f"{ark} has the versions {sorted(found)}")


def _one_version(
    job: Job, thing: DepositedObject, stored: list[Stored], entered: list[Stored]
) -> Iterator[Problem]:
    for what, found in (("stored", stored), ("in the inventory", entered)):
        if not found:
            yield Problem(Category.LOST, job.jid, f"is completed, but not {what}")
        elif len(found) > 1:
            yield Problem(Category.DUPLICATED, job.jid, f"is {len(found)} times {what}")
    if not stored or not entered:
        return
    if stored[0] != entered[0]:
        yield Problem(Category.ILLEGAL, job.jid, "storage and inventory tell different things of it")
    if stored[0].ark != job.identifiers.primary_id:
        yield Problem(
            Category.ILLEGAL, job.jid, f"is {job.identifiers.primary_id}, but stored as {stored[0].ark}"
        )
    kept = {
        path.removeprefix("producer/"): digest
        for path, digest in stored[0].files.items()
        if path.startswith("producer/")
    }
    wrong = [name for name, allowed in thing.files.items() if kept.get(name) not in allowed]
    if wrong or kept.keys() != thing.files.keys():
        names = ", ".join(sorted({*wrong, *(kept.keys() ^ thing.files.keys())}))
        yield Problem(Category.LOST, job.jid, f"its stored files are not those deposited: {names}")


def _identifiers(remains: FinalState, things: dict[str, DepositedObject]) -> Iterator[Problem]:
    """One ARK for each object, and one object for each ARK."""
    arks: dict[str, set[str]] = defaultdict(set)
    objects: dict[str, set[str]] = defaultdict(set)
    for jid, thing in things.items():
        ark = remains.jobs[jid].identifiers.primary_id
        if remains.jobs[jid].status.status is not JobState.COMPLETED:
            continue
        arks[thing.local_id or jid].add(str(ark))
        objects[str(ark)].add(thing.local_id or jid)
        if thing.local_id and remains.local_ids.get(thing.local_id) != ark:
            text = f"its local id {thing.local_id} names {remains.local_ids.get(thing.local_id)}, not {ark}"
            yield Problem(Category.LOST, jid, text)
    for name, several in arks.items():
        if len(several) > 1:
            yield Problem(Category.DUPLICATED, "", f"{name} has the ARKs {sorted(several)}")
    for ark, named in objects.items():
        if len(named) > 1:
            yield Problem(Category.DUPLICATED, "", f"{ark} names the objects {sorted(named)}")


def _batch(batch: Batch, remains: FinalState) -> Iterator[Problem]:
    """It has ended truly, and its depositor was told every job's end, in reports that are counted on."""
    members = {
        jid: remains.jobs[jid].status.status for jid in _members(batch, remains) if jid in remains.jobs
    }
    whole = members and all(state is JobState.COMPLETED for state in members.values())
    if batch.status.status not in (BatchState.COMPLETED, BatchState.FAILED):
        text = f"did not end: it is {batch.status.status}: {batch.status.message}"
        yield Problem(Category.LOST, batch.bid, text)
        return
    if (batch.status.status is BatchState.COMPLETED) != bool(whole):
        yield Problem(Category.ILLEGAL, batch.bid, f"is {batch.status.status}, and its jobs are {members}")
    if batch.status.status in BATCH.working():
        yield Problem(Category.LOST, batch.bid, "is still at work")
    reports = {f"{batch.bid}.report-{n}@arkline" for n in range(1, batch.status.reports + 1)}
    letters = [each for each in remains.letters if each.name.startswith(f"{batch.bid}.")]
    for missing in sorted(reports - {each.name for each in letters}):
        yield Problem(Category.LOST, batch.bid, f"{missing} was never delivered")
    for extra in sorted({each.name for each in letters} - reports):
        yield Problem(
            Category.DUPLICATED, batch.bid, f"{extra} was delivered, but only {len(reports)} were made"
        )
    yield from _truth(batch, letters, members)


def _members(batch: Batch, remains: FinalState) -> set[str]:
    return {jid for jids in remains.buckets[batch.bid].values() for jid in jids}


def _truth(batch: Batch, letters: list[Letter], members: dict[str, JobState]) -> Iterator[Problem]:
    told: dict[str, JobState] = {}
    for letter in sorted(letters, key=lambda each: each.name):
        told |= dict.fromkeys(letter.completed, JobState.COMPLETED)
        told |= dict.fromkeys(letter.failed, JobState.FAILED)
    for jid in sorted(told.keys() | members.keys()):
        if told.get(jid) != members.get(jid):
            text = f"the depositor was told that {jid} is {told.get(jid)}, but it is {members.get(jid)}"
            yield Problem(Category.LOST, batch.bid, text)


def _leaks(remains: FinalState) -> Iterator[Problem]:
    """A failed job keeps its folder and its promise, for an operator may resume it; nobody else keeps any."""
    failed = {jid for jid, job in remains.jobs.items() if job.status.status is JobState.FAILED}
    for path in remains.held:
        yield Problem(Category.LEAK, "", f"{path} is locked by nobody")
    for folder in remains.folders:
        jid = folder.rpartition("/")[2]
        if jid not in failed:
            yield Problem(Category.LEAK, jid if jid in remains.jobs else "", f"working storage has {folder}")
    for jid, size in remains.reservations.items():
        if jid not in failed:
            yield Problem(Category.LEAK, jid, f"{size} bytes are promised to it")
    if remains.promised != sum(remains.reservations.values()):
        yield Problem(Category.LEAK, "", f"{remains.promised} bytes are promised, to {remains.reservations}")
    for path in remains.leftovers:
        yield Problem(Category.LEAK, "", f"the storage root has {path}")


def _repeated(remains: FinalState) -> Repeated:
    mails = Counter(each.name for each in remains.letters)
    calls = Counter(each.name for each in remains.calls)
    used = {job.identifiers.primary_id for job in remains.jobs.values()} - {None}
    return Repeated(
        mails=sum(mails.values()) - len(mails),
        callbacks=sum(calls.values()) - len(calls),
        unused_numbers=remains.numbers - len(used),
    )
