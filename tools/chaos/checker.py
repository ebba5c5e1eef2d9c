"""The checker: compares the final state of a run with its deposits, without the code that moves jobs."""

from collections import Counter
from collections.abc import Iterator

from pipeline.records import Batch, Job
from pipeline.states import BATCH, JOB, BatchState, Bucket, Event, FailureKind, JobState
from tools.chaos.acts import Acts
from tools.chaos.deposits import Deposit, DepositedObject
from tools.chaos.final_state import FinalState, Letter
from tools.chaos.finding_checker import check_findings
from tools.chaos.notification_checker import check_notifications
from tools.chaos.problem import Category, Judgement, Problem, Repeated
from tools.chaos.stored_checker import check_identifiers, check_registered, check_stored

ENDED = (JobState.COMPLETED, JobState.FAILED)


def judge(deposits: list[Deposit], bids: dict[str, str], final: FinalState, acts: Acts) -> Judgement:
    """Judge the run; `bids`: deposit key -> its batch."""
    objects: dict[str, DepositedObject] = {}
    problems = [
        *_deposits(deposits, bids, final, objects, acts),
        *(problem for jid, job in final.jobs.items() for problem in _job(job, objects.get(jid), final, acts)),
        *_half_deleted(final),
        *check_stored(final, objects, acts),
        *check_identifiers(final, objects),
        *check_registered(final, acts),
        *check_findings(deposits, final, objects, acts),
        *(problem for batch in final.batches.values() for problem in _batch(batch, final)),
        *check_notifications(final, acts),
        *_leaks(final),
        *(Problem(Category.AUDIT, "", finding) for finding in final.findings),
        *acts.problems,
    ]
    return Judgement(tuple(problems), _repeated(final))


def _deposits(
    deposits: list[Deposit],
    bids: dict[str, str],
    final: FinalState,
    objects: dict[str, DepositedObject],
    acts: Acts,
) -> Iterator[Problem]:
    """Check that every deposit is one batch and every object one job, unless an operator deleted it.

    Fills `objects`: job -> its object.
    """
    for extra in final.batches.keys() - set(bids.values()):
        if final.is_hostile(extra):
            continue
        yield Problem(Category.DUPLICATED, extra, "a batch that was not submitted")
    for deposit in deposits:
        bid = bids.get(deposit.key, "")
        if bid not in final.batches and bid in acts.deleted_batches:
            continue
        if bid not in final.batches:
            yield Problem(Category.LOST, bid, f"deposit {deposit.key} is no batch")
            continue
        yield from _jobs_of(bid, deposit, final, objects, acts)


def _jobs_of(
    bid: str, deposit: Deposit, final: FinalState, objects: dict[str, DepositedObject], acts: Acts
) -> Iterator[Problem]:
    expected = {deposited.path: deposited for deposited in deposit.objects}
    created: Counter[str] = Counter()
    for jid in sorted(_members(final, bid)):
        job = final.jobs.get(jid)
        path = _path_of(job) if job else acts.deleted_jobs.get(jid, "")
        if path not in expected:
            yield Problem(Category.ILLEGAL, jid, f"a job of {bid} that belongs to none of its objects")
            continue
        created[path] += 1
        if job:
            objects[jid] = expected[path]
    for path in expected:
        if created[path] == 0 and bid not in acts.cancelled:
            yield Problem(Category.LOST, bid, f"no job was created of {path}")
        if created[path] > 1:
            yield Problem(Category.DUPLICATED, bid, f"{created[path]} jobs were created of {path}")


def _path_of(job: Job) -> str:
    return "/" + job.configuration.payload_url.split("/", 3)[3]


def _half_deleted(final: FinalState) -> Iterator[Problem]:
    """Check that a deleted batch or job has left nothing in the record."""
    for jid in sorted(final.queued.keys() - final.jobs.keys()):
        yield Problem(Category.LEAK, jid, f"is no job, but queued in {final.queued[jid]}")
    for jid, job in final.jobs.items():
        if job.bid not in final.batches:
            yield Problem(Category.LEAK, jid, f"is a job of {job.bid}, which is not there")


def _job(job: Job, deposited: DepositedObject | None, final: FinalState, acts: Acts) -> Iterator[Problem]:
    state = job.status.status
    stopped = job.bid in acts.cancelled and state is JobState.FAILED
    if final.is_hostile(job.bid):
        yield from _refused(job)
    elif deposited is None:
        yield Problem(Category.DUPLICATED, job.jid, "a job of no deposit")
    elif state not in ENDED:
        yield Problem(Category.LOST, job.jid, f"did not end: it is {state}: {job.status.message}")
    elif stopped:
        pass  # an operator cancelled its batch
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


def _refused(job: Job) -> Iterator[Problem]:
    """Check that a job that cannot be stored has failed with a message."""
    status = job.status
    if status.status is not JobState.FAILED or not status.message:
        text = f"of a hostile deposit, is {status.status} with the message {status.message!r}"
        yield Problem(Category.ILLEGAL, job.jid, text)


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
    """Check that each entry follows from the previous one by a row of the table; without an event, it is a
    retry."""
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
                targets = list(options[: 1 if last is None else options.index(last) + 2])
            legal = entry.state in targets
            last = state if entry.event is Event.SUCCEED else last
            if legal and entry.event in (Event.RESUME, Event.DOWNLOAD_AGAIN, Event.APPROVE):
                last = (None, None, *JOB.working()[1:])[JOB.working().index(entry.state)]
        if not legal:
            yield Problem(Category.ILLEGAL, job.jid, f"{entry.event} led from {state} to {entry.state}")
        state = entry.state
    if state is not job.status.status:
        yield Problem(Category.ILLEGAL, job.jid, f"its history ends with {state}, not {job.status.status}")


def _batch(batch: Batch, final: FinalState) -> Iterator[Problem]:
    """Check that the batch has ended, and that its numbered reports state every job's outcome."""
    members = {jid: final.jobs[jid].status.status for jid in _members(final, batch.bid) if jid in final.jobs}
    deleted = _members(final, batch.bid) - members.keys()
    whole = members and all(state is JobState.COMPLETED for state in members.values())
    if batch.status.status not in (BatchState.COMPLETED, BatchState.FAILED):
        text = f"did not end: it is {batch.status.status}: {batch.status.message}"
        yield Problem(Category.LOST, batch.bid, text)
        return
    # a failed batch stays failed when its failed jobs are deleted
    if (batch.status.status is BatchState.COMPLETED) != bool(whole) and not (whole and deleted):
        yield Problem(Category.ILLEGAL, batch.bid, f"is {batch.status.status}, and its jobs are {members}")
    if batch.status.status in BATCH.working():
        yield Problem(Category.LOST, batch.bid, "is still being processed")
    reports = {f"{batch.bid}.report-{n}@arkline" for n in range(1, batch.status.reports + 1)}
    letters = [letter for letter in final.letters if letter.name.startswith(f"{batch.bid}.")]
    for missing in sorted(reports - {letter.name for letter in letters} - _stopped_reports(batch)):
        yield Problem(Category.LOST, batch.bid, f"{missing} was never delivered")
    for extra in sorted({letter.name for letter in letters} - reports):
        yield Problem(
            Category.DUPLICATED, batch.bid, f"{extra} was delivered, but only {len(reports)} were created"
        )
    yield from _truth(batch, letters, members, deleted)


def _stopped_reports(batch: Batch) -> set[str]:
    """Reports that an operator ended: their mails may or may not have been sent."""
    stopped, number, reporting = set(), 0, False
    for entry in (entry for entry in batch.history if entry.event):
        number += reporting
        if reporting and entry.via is not None:
            stopped.add(f"{batch.bid}.report-{number}@arkline")
        reporting = BATCH.facts[entry.state].reports
    return stopped


def _members(final: FinalState, bid: str) -> set[str]:
    return {jid for jids in final.buckets[bid].values() for jid in jids}


def _truth(
    batch: Batch, letters: list[Letter], members: dict[str, JobState], deleted: set[str]
) -> Iterator[Problem]:
    reported: dict[str, JobState] = {}
    for letter in sorted(letters, key=lambda letter: letter.name):
        reported |= dict.fromkeys(letter.completed, JobState.COMPLETED)
        reported |= dict.fromkeys(letter.failed, JobState.FAILED)
    for jid in sorted((reported.keys() | members.keys()) - deleted):
        if reported.get(jid) != members.get(jid):
            text = f"the reports say that {jid} is {reported.get(jid)}, but it is {members.get(jid)}"
            yield Problem(Category.LOST, batch.bid, text)


def _leaks(final: FinalState) -> Iterator[Problem]:
    """Check that only failed jobs keep a folder and a reservation, because an operator may resume them."""
    failed = {jid for jid, job in final.jobs.items() if job.status.status is JobState.FAILED}
    for path in final.held:
        yield Problem(Category.LEAK, "", f"{path} is locked without an owner")
    for name in final.waiting:
        yield Problem(Category.LEAK, name, "is said to wait, and nothing is to be done")
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
    for path in final.strays:
        yield Problem(Category.LOST, "", f"{path} was written while no disk was mounted there")


def _repeated(final: FinalState) -> Repeated:
    mails = Counter(letter.name for letter in final.letters)
    calls = Counter(call.name for call in final.calls)
    used = {job.identifiers.primary_id for job in final.jobs.values()} - {None}
    return Repeated(
        mails=sum(mails.values()) - len(mails),
        callbacks=sum(calls.values()) - len(calls),
        unused_numbers=final.numbers - len(used),
    )
