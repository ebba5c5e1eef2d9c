"""The verbs that an operator uses during the faults, and how the operator chooses their targets."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from operations.site import Site
from operations.verbs import bulk, holds, verbs
from pipeline.errors import ServiceUnreachable
from pipeline.principal import Interface, Principal, Role
from pipeline.records import Batch, Job
from pipeline.states import JOB, BatchState, Bucket, Event, FailureKind, JobState
from tools.chaos.acts import Acts
from tools.chaos.profiles import PROFILE
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.errors import Missing
from zkstate.record import batches, jobs

PERSON = Principal(name="operator@chaos", role=Role.ADMIN, interface=Interface.CLI)
REASON = "chaos"
REJECTED = "rejected by chaos"

Choose = Callable[[Session, int], list[str]]
"""Chooses the targets of an act among the jobs or batches that allow it; a number picks one of many."""

Do = Callable[[Site, list[str], Acts], object]


@dataclass(frozen=True)
class Act:
    """A verb, and how an operator finds its targets."""

    name: str
    choose: Choose
    do: Do


def one_of(names: Iterable[str], target: int) -> list[str]:
    known = sorted(names)
    return [known[target % len(known)]] if known else []


def _queued(session: Session, *states: JobState) -> list[str]:
    return [
        jid for state in states for _, jid in paths.read_queue_entries(session.children(paths.queue(state)))
    ]


def loaded(session: Session, bids: Iterable[str]) -> list[Batch]:
    loaded = []
    for bid in bids:
        try:
            loaded.append(batches.load(session, bid))
        except Missing:
            continue
    return loaded


def _failed_batches(session: Session) -> list[Batch]:
    known = loaded(session, session.children(paths.BATCHES))
    return [batch for batch in known if batch.status.status is BatchState.FAILED]


def _changed(session: Session, target: int) -> list[str]:
    """Failed batches whose jobs have ended differently than their last report said."""
    changed = []
    for batch in _failed_batches(session):
        failed = set(batches.jobs_in(session, batch.bid, Bucket.FAILED))
        busy = batches.jobs_in(session, batch.bid, Bucket.PROCESSING)
        if busy or batch.report is None:
            continue
        if batch.report.unfinished_jobs or set(batch.report.failed_jobs) != failed:
            changed.append(batch.bid)
    return one_of(changed, target)


def _open_batches(session: Session, target: int) -> list[str]:
    return one_of(session.children(paths.OPEN_BATCHES), target)


def _resumable(session: Session, target: int) -> list[str]:
    """Some or all of the failed jobs that an operator may resume."""
    failed = _resumed(session, _queued(session, JobState.FAILED))
    return failed[target % 3 :] or failed


def _one_resumable(session: Session, target: int) -> list[str]:
    return one_of(_resumed(session, _queued(session, JobState.FAILED)), target)


def _reported(session: Session, target: int) -> list[str]:
    """The resumable failed jobs of batches whose report has been sent."""
    named = [batches.jobs_in(session, batch.bid, Bucket.FAILED) for batch in _failed_batches(session)]
    return _resumed(session, [jid for jids in named for jid in jids])


def _resumed(session: Session, jids: Iterable[str]) -> list[str]:
    """The failed jobs whose content is not at fault."""
    resumable = []
    for jid in jids:
        try:
            job = jobs.load(session, jid)
        except Missing:
            continue
        if job.status.kind is not FailureKind.CONTENT:
            resumable.append(jid)
    return resumable


def path_of(job: Job) -> str:
    """The path of the job's object at the source."""
    return "/" + job.configuration.payload_url.split("/", 3)[3]


def _on(event: Event) -> Do:
    return lambda site, names, _: bulk.act_on_many(site, PERSON, event, names, reason=REASON)


def _resume_from(site: Site, names: list[str], _: Acts) -> object:
    """Resume from a step that the job has passed, the earliest or a later one."""
    (jid,) = names
    job = jobs.load(site.session, jid)
    was = job.status
    steps = JOB.targets_now(was.status, Event.RESUME, was.last_successful_status, was.kind, was.room)
    if not steps:
        return bulk.act_on_many(site, PERSON, Event.RESUME, names, reason=REASON)
    how = verbs.Resumption(to=steps[job.version % len(steps)])
    return bulk.act_on_many(site, PERSON, Event.RESUME, names, reason=REASON, how=how)


def _delete(site: Site, names: list[str], acts: Acts) -> object:
    for name in names:
        if name.startswith("bid"):
            acts.deleted_batches.add(name)
            for jid in batches.all_jobs(site.session, name):
                _note_deletion(site, jid, acts)
        else:
            _note_deletion(site, name, acts)
        try:
            verbs.act(site, PERSON, name, Event.DELETE, reason=REASON)
        except Missing:
            continue  # deleted, but the answer was lost
    return None


def _note_deletion(site: Site, jid: str, acts: Acts) -> None:
    try:
        acts.deleted_jobs[jid] = path_of(jobs.load(site.session, jid))
    except Missing:
        return  # deleted earlier, and noted then


def cancel(site: Site, names: list[str], acts: Acts) -> bulk.Outcome:
    (bid,) = names
    acts.cancelled.add(bid)
    for jid in batches.jobs_in(site.session, bid, Bucket.PROCESSING):
        _note_deletion(site, jid, acts)
    return bulk.cancel(site, PERSON, bid, reason=REASON)


def _nothing_to_choose(session: Session, target: int) -> list[str]:
    return [PROFILE]


def _hold_collection(site: Site, names: list[str], acts: Acts) -> object:
    return holds.hold_collection(site, PERSON, PROFILE, reason=REASON)


WORKING = (JobState.PENDING, *JOB.working()[1:])

HOLD_COLLECTION = Act("hold collection", _nothing_to_choose, _hold_collection)
RELEASE_COLLECTION = Act(
    "release collection",
    _nothing_to_choose,
    lambda site, *_: holds.release_collection(site, PERSON, PROFILE, reason=REASON),
)
PAUSE = Act("pause", _nothing_to_choose, lambda site, *_: holds.pause(site, PERSON, reason=REASON))
UNPAUSE = Act("unpause", _nothing_to_choose, lambda site, *_: holds.unpause(site, PERSON, reason=REASON))
HOLD_JOB = Act("hold", lambda session, n: one_of(_queued(session, JobState.PENDING), n), _on(Event.HOLD))
RELEASE_JOBS = Act("release", lambda session, _: _queued(session, JobState.HELD), _on(Event.RELEASE))
FAIL_JOB = Act("fail", lambda session, n: one_of(_queued(session, *WORKING), n), _on(Event.FAIL))
RESUME_JOBS = Act("resume", _resumable, _on(Event.RESUME))
RESUME_REPORTED = Act("resume", _reported, _on(Event.RESUME))
RESUME_FROM = Act("resume --from", _one_resumable, _resume_from)
DELETE_JOB = Act(
    "delete job",
    lambda session, n: one_of(_queued(session, JobState.FAILED, JobState.HELD), n),
    _delete,
)
DELETE_BATCH = Act(
    "delete batch", lambda session, n: one_of([b.bid for b in _failed_batches(session)], n), _delete
)
CANCEL_BATCH = Act("cancel", _open_batches, cancel)
UPDATE_REPORT = Act("update-report", _changed, _on(Event.UPDATE_REPORT))


def reviewing(rejected: Collection[str]) -> Act:
    """Decide about the jobs in review: the objects at these paths are rejected, all others are approved."""

    def do(site: Site, names: list[str], _: Acts) -> str:
        for jid in names:
            event, reason = Event.APPROVE, REASON
            if _is_at(site.session, jid, rejected):
                event, reason = Event.REJECT, REJECTED
            if outage := bulk.act_on_many(site, PERSON, event, [jid], reason=reason).stopped:
                raise ServiceUnreachable(outage)
        return "done"

    return Act("review", lambda session, _: _queued(session, JobState.REVIEW), do)


def _is_at(session: Session, jid: str, paths: Collection[str]) -> bool:
    try:
        return path_of(jobs.load(session, jid)) in paths
    except Missing:
        return False  # deleted since it was chosen: the verb is refused


def cancel_and_resume(jid: str) -> tuple[Act, Act]:
    """What an operator does to a job that seems stuck: end the attempt, then repeat an earlier step."""
    return (
        Act("fail", lambda *_: [jid], _on(Event.FAIL)),
        Act("resume --from", lambda session, _: _resumed(session, [jid]), _resume_from),
    )
