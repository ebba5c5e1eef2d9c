"""Verbs on a job or a batch: each is an event of its table, committed as one move.

A job that an operator ends fails, unless it is stored and recorded: then it completes, without waiting for
its receiver. A repair is for znodes that cannot be read: their bytes are set aside, and the job or the batch
ends.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, TypeVar

from operations.jobs.allowed_verbs import allowed_verbs, check_seen, target_of
from operations.jobs.batch_view import compose
from operations.run import UNWATCHED, Run
from operations.site import Site
from operations.verbs.overruling import overruled
from operations.visibility import recorded
from pipeline import causes
from pipeline.errors import Action, Remedy, UsageRefused
from pipeline.inventory import archive
from pipeline.notify.batch_report import deleted_with_batch
from pipeline.outcome import Done
from pipeline.principal import Principal, Role
from pipeline.records import Batch, Job, Record
from pipeline.states import BATCH, JOB, BatchState, Event, FailureKind, JobState, Raiser
from pipeline.working_storage import mount
from pipeline.working_storage.workspace import folder_at
from tasks import after_move
from zkstate.care.quarantine import quarantine
from zkstate.errors import Busy, Stale
from zkstate.queue import listings
from zkstate.record import batches, deletion, jobs
from zkstate.record.batches import BatchMove
from zkstate.record.jobs import JobMove
from zkstate.record.journal import Stamp
from zkstate.record.record import Lock

R = TypeVar("R")

TRIES = 20
"""Maximum reads of a job or a batch that moves between the verb's read and its write."""

NO_CHANGES: Mapping[str, Any] = {}

WAS = "unreadable"
"""The reported state before a repair."""

NOT_ACCEPTED = "our staff reviewed this object and did not accept it"
"""For the depositor, whose report has it with the reason."""

UNNOTIFIED = "your system may not have been notified that this object is stored"
"""The remark for the depositor, before the reason."""

OVERRULE_NEEDS_REASON = "a finding is overruled for a reason: say why the files are stored all the same"

_FOR_A_BATCH = {Event.FAIL: (Action.CANCEL,), Event.RESUME: (Action.RESUME_BATCH,)}
"""Event -> the actions that apply it to all jobs of a batch."""


class VerbResult(Record):
    """The effect of a verb on a job or a batch; `version` is that of its status after the verb."""

    id: str
    was: str
    now: str
    version: int | None = None
    sent: bool = True
    """False if Redis did not take a message; the sweep sends the message later."""
    folder_left: str = ""
    """The working directory, if it is not on this machine and so was not removed."""
    complete: bool = True
    """False if the caller stopped the verb on a batch midway; the same verb does the rest."""
    jobs: int | None = None
    """Of a batch on whose jobs the verb acts: how many."""
    refused_jobs: int = 0
    """How many of its jobs refused the verb."""

    @property
    def note(self) -> str:
        """What to know of a job that was ended when only its notification was left; empty for others."""
        if self.now != JobState.COMPLETED or not self.id.startswith("jid"):
            return ""
        return "it was stored and recorded already; its receiver may not have been notified"


class Resumption(Record):
    """How failed jobs are resumed."""

    to: JobState | None = None
    """The state to resume in; None: after the last success of each job."""
    findings: tuple[str, ...] = ()
    """The findings of checks that no longer stop the job, as digests or as CHECK:CODE."""


PLAIN = Resumption()


def retry_stale(name: str, act: Callable[[], R]) -> R:
    """Call `act` until no other change comes between its read and its write; Busy after TRIES."""
    for _ in range(TRIES):
        try:
            return act()
        except Stale:
            continue
    raise Busy(f"{name} keeps changing state; try again")


def act(  # noqa: PLR0913 - the options of one verb
    site: Site,
    principal: Principal,
    name: str,
    event: Event,
    *,
    reason: str = "",
    version: int | None = None,
    how: Resumption = PLAIN,
    dry_run: bool = False,
    feeding: bool = True,
    run: Run = UNWATCHED,
) -> VerbResult:
    """Raise `event` on the job or batch, and do everything that follows from the move.

    `version`: the status version that the caller decided on; Moved if the status has another one. `how`: of a
    job that is resumed. A dry run raises the errors that the verb would raise, but needs no reason. Without
    `feeding` the caller dispatches pending jobs, once for many. Deleting a batch again completes an
    interrupted deletion; `run` is for such a deletion.
    """
    check_kind(name, event)

    def attempt() -> VerbResult:
        thing = recorded(site, principal, name)
        principal.require(Role.OPERATOR, f"{event} {name}", thing.profile_name)
        check_seen(thing, version)
        target = target_of(site.session, thing, event, how.to)
        digests = overruled(thing, how.findings) if how.findings and isinstance(thing, Job) else None
        if dry_run:
            return VerbResult(id=thing.id, was=thing.status.status, now=target, version=thing.version)
        if event is Event.REJECT and not reason:
            raise UsageRefused(f"to reject {name}, give a reason: the depositor's report has it")
        if digests and not reason:
            raise UsageRefused(OVERRULE_NEEDS_REASON)
        named = {"to": how.to, "overruled": digests}
        changes = {field: value for field, value in named.items() if value is not None}
        return _carry_out(site, Stamp.of(principal, reason), thing, event, changes, run)

    result = retry_stale(name, attempt)
    if feeding and not dry_run:
        site.feed()
    return result


def check_kind(name: str, event: Event) -> None:
    """UsageRefused unless the event applies to this kind: a job or a batch."""
    is_batch = name.startswith("bid")
    table = BATCH.table if is_batch else JOB.table
    refused = is_batch and event in _FOR_A_BATCH
    if not refused and any(row.event is event and Raiser.OPERATOR in row.by for row in table):
        return
    if not is_batch:
        raise UsageRefused(f"{event} is for batches; {name} is a job")
    refusal = UsageRefused(f"{event} is for jobs, and {name} is a batch: name or select its jobs")
    raise refusal.with_remedies(*(Remedy(action, name) for action in _FOR_A_BATCH.get(event, ())))


def stop_job(site: Site, stamp: Stamp, jid: str, *, dry_run: bool) -> VerbResult:
    """End a job of a batch that the operator stops; delete it if it is held and so has not started."""

    def attempt() -> VerbResult:
        job = jobs.load(site.session, jid)
        event = Event.FAIL if Event.FAIL in allowed_verbs(job) else Event.DELETE
        target = target_of(site.session, job, event)
        if dry_run:
            return VerbResult(id=jid, was=job.status.status, now=target, version=job.version)
        return _carry_out(site, stamp, job, event)

    return retry_stale(jid, attempt)


def stop_batch(site: Site, stamp: Stamp, bid: str, *, dry_run: bool) -> VerbResult | None:
    """End the split or the report of the batch; a worker that has the batch loses it. The jobs continue.

    None if the batch is split and its jobs are running, or if it has ended.
    """

    def attempt() -> VerbResult | None:
        batch = batches.load(site.session, bid)
        status = batch.status
        reports = BATCH.facts[status.status].reports
        if status.total is not None and not reports:
            return None
        if Event.FAIL not in BATCH.events(status.status, Raiser.OPERATOR):
            return None
        if dry_run:
            target = BATCH.next(status.status, Event.FAIL)
            return VerbResult(id=bid, was=status.status, now=target, version=batch.version)
        return _end(site, stamp, batch, None if reports else FailureKind.SYSTEM, _said("cancelled", stamp))

    return retry_stale(bid, attempt)


def _carry_out(
    site: Site,
    stamp: Stamp,
    thing: Job | Batch,
    event: Event,
    changes: Mapping[str, Any] = NO_CHANGES,
    run: Run = UNWATCHED,
) -> VerbResult:
    if event is Event.DELETE:
        return (
            _delete_job(site, stamp, thing)
            if isinstance(thing, Job)
            else _delete_batch(site, stamp, thing, run)
        )
    if event is Event.FAIL:
        return _end(site, stamp, thing, FailureKind.SYSTEM, _said("failed", stamp))
    if event is Event.REJECT:
        said = {"message": f"{NOT_ACCEPTED}: {stamp.reason}", "cause": causes.REJECTED()}
        request = _request(stamp, event, kind=FailureKind.CONTENT, **said)
        return _result(site, thing, _move(site, thing, request))
    return _result(site, thing, _move(site, thing, _request(stamp, event, **changes)))


def _said(verb: str, stamp: Stamp) -> str:
    return f"{verb} by {stamp.by}{stamp.because or ', who gave no reason'}"


def _end(site: Site, stamp: Stamp, thing: Job | Batch, kind: FailureKind | None, message: str) -> VerbResult:
    """Fail the job or batch, or complete a recorded job. A worker that has it loses the lock, and can have no
    further effect."""
    changes: dict[str, Any] = {"message": message, "kind": kind}
    if isinstance(thing, Job) and (to := target_of(site.session, thing, Event.FAIL)) is JobState.COMPLETED:
        because = f"our staff did not wait for it{stamp.because}" if stamp.via else message
        done = Done(remark=thing.status.with_remarks(f"{UNNOTIFIED}: {because}"))
        completed = _said("completed", stamp) if stamp.via else message
        changes = {"message": completed, "to": to, "done": done}
    else:
        changes["cause"] = (causes.STOPPED if stamp.via else causes.RECORD_DAMAGED)()  # see `repair`
    request = _request(stamp, Event.FAIL, lock=Lock.BREAK, **changes)
    try:
        return _result(site, thing, _move(site, thing, request))
    except Busy as error:
        raise Stale(f"a worker acquired {thing.id} after it was read") from error


def _move(site: Site, thing: Job | Batch, request: dict[str, Any]) -> Job | Batch:
    if isinstance(thing, Job):
        return jobs.move(site.session, thing, JobMove(**request))
    return batches.move(site.session, thing, BatchMove(**request))


def _request(stamp: Stamp, event: Event, **changes: Any) -> dict[str, Any]:
    who = {"by": stamp.by, "via": stamp.via, "request_id": stamp.request_id}
    message = f"{event} by {stamp.by}{stamp.because}"
    return {"event": event, "message": message, "lock": Lock.FREE, **who, **changes}


def _result(site: Site, before: Job | Batch, after: Job | Batch) -> VerbResult:
    return VerbResult(
        id=before.id,
        was=before.status.status,
        now=after.status.status,
        version=after.version,
        sent=site.follow(after),
    )


def _delete_job(site: Site, stamp: Stamp, job: Job) -> VerbResult:
    """Delete the job, tombstone first, folder last: a crash leaves at most a folder for the clean-up."""
    archive.tombstone(site.inventory(), job, by=stamp.by, reason=stamp.reason)
    deleted = deletion.delete_job(site.session, job, stamp.by)
    left = ""
    if mount.is_marked(site.settings.working):
        after_move.remove_folder(folder_at(site.settings.working, job.bid, job.jid))
    else:
        left = job.configuration.working_dir
    return _result(site, job, deleted).model_copy(update={"version": None, "folder_left": left})


def _delete_batch(site: Site, stamp: Stamp, batch: Batch, run: Run) -> VerbResult:
    """Delete the batch, tombstones first, folders last; after a crash or a stop, a repeat does the rest.

    Writing the tombstones is half of the progress, removing the jobs the other half.
    """
    session, working, was = site.session, site.settings.working, batch.status.status
    jids = listings.of_batch(session, batch.bid)
    left = ""
    if not mount.is_marked(working) and (first := next(jobs.load_present(session, jids), None)):
        left = str(PurePath(first.configuration.working_dir).parent)
    if was is not BatchState.DELETED:
        _write_tombstones(site, stamp, batch, jids, run)
        batch = batches.move(session, batch, BatchMove(**_request(stamp, Event.DELETE)))
    to_remove, number = set(jids), max(1, len(jids))

    def on_removed(removed: Sequence[str]) -> bool:
        for jid in to_remove.intersection(removed):
            to_remove.remove(jid)
            if not left:
                after_move.remove_folder(folder_at(working, batch.bid, jid))
        run.on_progress(2 * number - len(to_remove), 2 * number)
        return not run.should_stop()

    complete = deletion.remove_batch(session, batch, on_removed)
    return VerbResult(id=batch.bid, was=was, now=BatchState.DELETED, folder_left=left, complete=complete)


def _write_tombstones(site: Site, stamp: Stamp, batch: Batch, jids: Sequence[str], run: Run) -> None:
    """Write tombstones of the jobs, then of their batch, with its report; holds one page of jobs in
    memory."""

    def members() -> Iterator[Job]:
        for number, job in enumerate(jobs.load_present(site.session, jids), 1):
            run.check(f"the deletion of {batch.bid} was stopped before anything was removed")
            run.on_progress(number, 2 * len(jids))
            yield job

    inventory, by, reason = site.inventory(), stamp.by, stamp.reason
    buried = archive.archive_jobs(inventory, members(), by=by, reason=reason, deleted=True)
    report = compose(site, batch, buried, partial(deleted_with_batch, reason=reason))
    archive.tombstone(inventory, batch, by=by, reason=reason, report=report)


def repair(
    site: Site, principal: Principal, name: str, *, reason: str = "", feeding: bool = True
) -> VerbResult:
    """Replace what cannot be read, end a job that has not ended, and free what it holds.

    UsageRefused if every znode can be read. The collection may be unreadable, too, so this needs an operator
    of all collections.
    """
    principal.require(Role.OPERATOR, f"repair {name}")
    session, stamp = site.session, Stamp.of(principal, reason)

    damaged = retry_stale(name, lambda: quarantine(session, name, site.settings.working, stamp))
    lost = {node.path.rpartition("/")[2] for node in damaged}

    def end() -> VerbResult:
        is_batch = name.startswith("bid")
        thing: Job | Batch = batches.load(session, name) if is_batch else jobs.load(session, name)
        failure = _failure_of(thing, lost)
        # without the person's interface: the report says what was damaged, not that staff stopped the job
        unseen = Stamp(by=stamp.by)
        return _end(site, unseen, thing, *failure) if failure else _result(site, thing, thing)

    result = retry_stale(name, end)
    if feeding:
        site.feed()
    return result.model_copy(update={"was": WAS})


def _failure_of(thing: Job | Batch, lost: set[str]) -> tuple[FailureKind, str] | None:
    """The failure caused by the loss of these znodes; None if the job or batch can continue.

    A job that has not ended is ended; the depositor's report has the message. A batch whose submission was
    lost before it was split has nothing to split.
    """
    if isinstance(thing, Batch):
        if BATCH.facts[thing.status.status].split or "submission" not in lost:
            return None
        message = "the submission in the record was damaged: submit its content again"
        return FailureKind.CONTENT, message
    if Event.FAIL not in JOB.events(thing.status.status, Raiser.OPERATOR):
        return None
    content = sorted({"configuration", "identifiers"} & lost)
    what = " and ".join(content) or "state"
    message = f"the {what} of this object in the record was damaged, and cannot be read any more"
    return FailureKind.CONTENT if content else FailureKind.SYSTEM, message
