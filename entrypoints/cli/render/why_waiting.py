"""What `arkline why` says of jobs and batches that have not ended."""

from __future__ import annotations

from collections.abc import Callable

from entrypoints.cli.render.humanize import age, ago, counted, duration, in_time, listed
from entrypoints.cli.render.progress import progress
from operations.facts import Explanation, Reason
from pipeline.working_storage.capacity import in_units


def by(found: Explanation) -> str:
    """` by ann@desk 2 hours ago (database is moved)`."""
    who = f" by {found.holder}" if found.holder else ""
    when = f" {ago(found.holder_since)}" if found.holder_since else ""
    return f"{who}{when}" + (f" ({found.hold_reason})" if found.hold_reason else "")


def fault(found: Explanation) -> str:
    return found.message.rstrip(".") or "no reason was recorded"


def _on_hold(found: Explanation) -> str:
    return f"Collection {found.waits_for} was put on hold{by(found)}."


def _turn(found: Explanation) -> str:
    others = (
        f"{counted(found.ahead, 'job')} of the same or higher priority {'is' if found.ahead == 1 else 'are'} "
        "before it"
        if found.ahead
        else "It is next"
    )
    return (
        f"{others}; {found.taken} of {found.limit} places for active jobs are taken (ARKLINE_IN_FLIGHT). "
        "Collections take turns within a priority. It starts when other jobs end."
    )


def _starting(found: Explanation) -> str:
    return "It can continue now and starts within seconds."


def _working(found: Explanation) -> str:
    spent = duration(age(found.holder_since)) if found.holder_since else "some time"
    before = f" {counted(found.tries, 'earlier attempt')} met a transient fault." if found.tries else ""
    far = f" {progress(found.progress)}." if found.progress else ""
    return f"The {found.holder} has been working on it for {spent} (attempt {found.attempt}).{far}{before}"


def _host(found: Explanation) -> str:
    worker = f"The {found.holder} has it and waits. " if found.holder else ""
    if not found.waits_for:
        return f"{worker}Nothing failed: {fault(found)}. It asks again {in_time(found.when)}."
    if found.reason is Reason.HOST_BACKING_OFF:
        return (
            f"{worker}{found.waits_for} asked not to be contacted for a while; it is asked again "
            f"{in_time(found.when)}."
        )
    return (
        f"{worker}All {found.limit} connections that may be open to {found.waits_for} "
        f"(ARKLINE_HOST_LIMIT, or limits.host_connections in the profile) are in use ({listed(found.users)})."
    )


def _space(found: Explanation) -> str:
    if found.limit is None or found.taken is None:
        return f"It waits for working storage: {fault(found)}."
    size = f"It needs {in_units(found.needed)}" if found.needed else "Its size is not known"
    free = in_units(max(0, found.limit - found.taken))
    return (
        f"{size}, and {free} of working storage are free: {in_units(found.taken)} of the "
        f"{in_units(found.limit)} that may be used are used or reserved (`arkline space`). "
        "Smaller jobs pass it meanwhile."
    )


def _too_large(found: Explanation) -> str:
    return (
        f"It needs {in_units(found.needed or 0)}, but working storage may hold only "
        f"{in_units(found.limit or 0)}: it never fits. Enlarge working storage or raise "
        "ARKLINE_WORKING_THRESHOLD, or stop the job and have the object divided."
    )


def _between_tries(found: Explanation) -> str:
    return (
        f"A step met a fault that may pass: {fault(found)}. Try {(found.taken or 0) + 1} of {found.limit} "
        f"starts {in_time(found.when)}; after the last one it fails."
    )


def _damaged(found: Explanation) -> str:
    return (
        f"{fault(found)}. Restore this znode from a backup of ZooKeeper; `arkline audit` lists every "
        "damaged one."
    )


def _busy(found: Explanation) -> str:
    return (
        f"Its message is in queue '{found.waits_for}', and all {found.limit} processes that consume this "
        "queue are busy. More workers would help."
    )


def _lost(found: Explanation) -> str:
    before = f" (it was {counted(found.redispatches, 'time')} before)" if found.redispatches else ""
    return (
        f"Its worker or its message was lost{before}; the scheduler dispatches it again "
        f"{in_time(found.when)}."
    )


def _no_worker(found: Explanation) -> str:
    if found.taken:
        drained = f"{counted(found.taken, 'worker')} answer{'s' if found.taken == 1 else ''}, but none does"
        return f"It needs a worker that consumes queue '{found.waits_for}': {drained}."
    return f"It needs a worker that consumes queue '{found.waits_for}', and no worker answers."


def _no_redis(found: Explanation) -> str:
    return (
        f"Redis at {found.waits_for} does not answer, so no worker can be given work. Nothing is lost: "
        "it continues by itself once Redis is back."
    )


def _no_beat(found: Explanation) -> str:
    return "No beat is running, so nothing is dispatched, retried or cleaned up on schedule."


def _splitting(found: Explanation) -> str:
    spent = duration(age(found.holder_since)) if found.holder_since else "some time"
    created = found.jobs.get("created", 0)
    so_far = f"; {counted(created, 'job')} created so far" if created else ""
    return f"The {found.holder} has been splitting it into jobs for {spent}{so_far}."


def _reporting(found: Explanation) -> str:
    if not found.holder:
        return "Its last job has ended, and its report starts within seconds."
    spent = duration(age(found.holder_since)) if found.holder_since else "some time"
    return f"The {found.holder} has been writing its report for {spent}."


WAITING: dict[Reason, Callable[[Explanation], str]] = {
    Reason.QUEUE_PAUSED: lambda found: f"The queue was paused{by(found)}: no new job starts.",
    Reason.COLLECTION_ON_HOLD: _on_hold,
    Reason.HOLD_ENDED: lambda found: f"Collection {found.waits_for} is not on hold any more.",
    Reason.COLLECTION_AT_QUOTA: lambda found: (
        f"Collection {found.waits_for} has {found.taken} active jobs, and its profile allows {found.limit} "
        "(limits.jobs_at_work). It starts when one of them ends."
    ),
    Reason.WAITING_FOR_TURN: _turn,
    Reason.STARTING: _starting,
    Reason.BEING_DISPATCHED: lambda found: "It is being handed to a worker.",
    Reason.BEING_WORKED_ON: _working,
    Reason.WAITING_FOR_HOST: _host,
    Reason.HOST_BACKING_OFF: _host,
    Reason.WAITING_FOR_SPACE: _space,
    Reason.EXCEEDS_SPACE: _too_large,
    Reason.BETWEEN_TRIES: _between_tries,
    Reason.RECORD_DAMAGED: _damaged,
    Reason.WORKERS_BUSY: _busy,
    Reason.LOST_WORKER: _lost,
    Reason.NO_WORKER: _no_worker,
    Reason.BROKER_UNREACHABLE: _no_redis,
    Reason.NO_BEAT: _no_beat,
    Reason.BEING_SPLIT: _splitting,
    Reason.REPORTING: _reporting,
}
