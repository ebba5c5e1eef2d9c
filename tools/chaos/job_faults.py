"""Injects several faults into one job on purpose, after it has stored its version and before it moves."""

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ArklineError
from pipeline.records import Job
from pipeline.states import JobState
from pipeline.working_storage.workspace import folder_of
from tools.chaos.actors import Actor, send
from tools.chaos.faults import Effect, FaultContext, NotNow, Table, busy_child, job_folders, kind_of
from tools.chaos.operator_verbs import cancel_and_resume, path_of
from tools.chaos.schedule import Fault, Kind
from zkstate import paths
from zkstate.connection.session import Session, connect
from zkstate.record import jobs

BEGIN: Table = {}
"""Kind of fault -> function that injects it."""

WATCH_SECONDS = 0.5
"""Seconds of each watch on working storage; other faults wait in the meantime."""

WATCHES = 40
"""Watches after which a fault takes a job that has not stored its version."""

LOOK_SECONDS = 0.001
"""Seconds between two checks: a job moves a few milliseconds after it has noted its version."""


@dataclass(frozen=True)
class _Target:
    """A job, and the process that works on it."""

    job: Job
    actor: Actor
    pid: int
    is_stored: bool
    """The process has stored the version but not moved the job, and is stopped."""


@kind_of(BEGIN, Kind.STORED_AND_KILLED)
def _kill_after_storing(context: FaultContext, fault: Fault, late: bool) -> Effect:
    target = _target(context, fault)
    what = _take_content_and_source(context, target)
    context.cluster.witness.killed([target.pid], fault.kind.label)
    send(target.pid, signal.SIGKILL)
    return Effect(what)


@kind_of(BEGIN, Kind.STORED_AND_CANCELLED)
def _cancel_after_storing(context: FaultContext, fault: Fault, late: bool) -> Effect:
    """Cancel and resume a job at an earlier step while its process is stopped, which then is a zombie."""
    target = _target(context, fault)
    send(target.pid, signal.SIGSTOP)
    what = _take_content_and_source(context, target)
    for act in cancel_and_resume(target.job.jid):
        context.operator.ask(act)

    def wake() -> None:
        if target.pid in target.actor.pool:
            send(target.pid, signal.SIGCONT)

    return Effect(what, wake)


def _take_content_and_source(context: FaultContext, target: _Target) -> str:
    """Have the source serve other bytes, if the object may have them, or nothing, if a version is stored."""
    job, source = target.job, context.cluster.fakes.source
    context.operator.acts.lost_folders.add(job.jid)
    shutil.rmtree(folder_of(job, context.cluster.settings.working), ignore_errors=True)
    path = path_of(job)
    lost = ["no content in working storage"]
    if other := context.second_bodies.get(path):
        source.change(path, body=other)
        lost.append("other bytes at its source")
    elif target.is_stored:
        source.change(path, status=404, status_times=None)
        lost.append("nothing at its source")
    when = "after storing" if target.is_stored else f"in {job.status.status}"
    return f"{target.actor.name}/{target.pid} ({job.jid} {when}): {', '.join(lost)}"


def _target(context: FaultContext, fault: Fault) -> _Target:
    """A job that has just stored its version; after WATCHES, any job being worked on. NotNow without one."""
    if "working" in context.claimed:
        raise NotNow
    context.watches[fault] += 1
    try:
        with connect(context.cluster.settings) as session:
            stored = _stored_now(context, session)
            if stored is not None:
                return stored
            if context.watches[fault] < WATCHES:
                raise NotNow
            actor, pid, doing = busy_child(context, fault, late=False)
            return _Target(jobs.load(session, doing.split()[0]), actor, pid, is_stored=False)
    except ArklineError as error:  # ZooKeeper is under a fault of its own
        raise NotNow from error


def _stored_now(context: FaultContext, session: Session) -> _Target | None:
    working = context.cluster.settings.working
    pools = {pid: actor for actor in context.cluster.workers for pid in actor.pool}
    known = set(_noted(working))
    end = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < end:
        new = set(_noted(working)) - known
        known |= new
        if not new:
            time.sleep(LOOK_SECONDS)
            continue
        with _stopped(pools) as stopped:
            for jid in new:
                pid = _pid_at_work(session, jid)
                if pid in stopped:
                    stopped.remove(pid)
                    return _Target(jobs.load(session, jid), pools[pid], pid, is_stored=True)
    return None


def _noted(working: Path) -> Iterator[str]:
    """Jobs that have noted their version in working storage."""
    return (folder.name for folder in job_folders(working) if (folder / "stored.json").exists())


def _pid_at_work(session: Session, jid: str) -> int:
    """The process that works on the job in processing; 0 if the job has moved."""
    session.get_synced(paths.job_status(jid))
    job, lock = jobs.load(session, jid), session.find(paths.job_lock(jid))
    if lock is None or job.status.status is not JobState.PROCESSING:
        return 0
    return int(lock[0].rpartition(b":")[2] or 0)


@contextmanager
def _stopped(pids: dict[int, Actor]) -> Iterator[list[int]]:
    """Stop the running processes; those still in the list are continued after the block."""
    stopped = [pid for pid in pids if not _is_stopped(pid)]
    for pid in stopped:
        send(pid, signal.SIGSTOP)
    try:
        yield stopped
    finally:
        for pid in stopped:
            send(pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    """Whether another fault has stopped the process, or it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TtZ"
    return True
