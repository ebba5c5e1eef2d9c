"""Faults that are put into the code, to see whether histories find them: `./dev simulate --mutation NAME`.

Each takes one protection away, as a careless change would.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from dataclasses import replace
from typing import Any

from kazoo.exceptions import NoNodeError

from pipeline.attempt import UNATTENDED
from pipeline.steps import earlier_version, process
from pipeline.storage.ocfl import disk, reading, writer
from tasks import run
from tools.simulation import replacing
from zkstate.care import deployment
from zkstate.connection import locks, transaction
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.transaction import Create, Delete, Put, Role
from zkstate.errors import Unreachable
from zkstate.queue import recovery
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import jobs, record, space


def _no_fence(put: replacing.Put) -> None:
    real = transaction._encoded

    def encoded(operation: Any, path: str, access: Sequence[Any]) -> bytes:
        fenced = isinstance(operation, Put) and operation.role is Role.FENCE
        return real(replace(operation, version=None) if fenced else operation, path, access)

    put(transaction, "_encoded", encoded)


def _lock_released_before(put: replacing.Put) -> None:
    real = record.lock_operations

    def lock_operations(session: Any, of: Any, lock: Any, *more: Any) -> tuple[Any, ...]:
        if lock is not record.Lock.MINE:
            return real(session, of, lock, *more)
        with suppress(NoNodeError):
            session.ask(session.zk.delete_async, record.lock_path(of))
        return ()

    put(record, "lock_operations", lock_operations)


def _lock_unchecked(of_move: record.Lock) -> Callable[[replacing.Put], None]:
    """Moves after which the attempt continues do not require its lock."""

    def mutate(put: replacing.Put) -> None:
        real = record.lock_operations

        def lock_operations(session: Any, of: Any, lock: Any, *more: Any) -> tuple[Any, ...]:
            return () if lock is of_move else real(session, of, lock, *more)

        put(record, "lock_operations", lock_operations)

    return mutate


def _counted_twice(put: replacing.Put) -> None:
    real = record.acquire

    def acquire(session: Any, of: Any, *more: Any) -> Any:
        status = of.status.model_copy(update={"attempt": of.status.attempt + 1})
        return real(session, of.model_copy(update={"status": status}), *more)

    put(run, "acquire", acquire)


def _lock_taken_from_others(put: replacing.Put) -> None:
    real = record.take_lock

    def take_lock(of: Any, taken: Any, by: str) -> tuple[Any, ...]:
        return tuple(one for one in real(of, taken, by) if not isinstance(one, Create))

    put(record, "take_lock", take_lock)


def _busy_record_dispatched(put: replacing.Put) -> None:
    put(record, "require_free", lambda _: ())


def _epoch_kept(put: replacing.Put) -> None:
    real = record._begin_epoch
    put(record, "_begin_epoch", lambda was, **changes: real(was, **{**changes, "epoch": was.epoch}))


def _ticket_unchecked(put: replacing.Put) -> None:
    for module in (record, run):
        put(module, "check_ticket", lambda *_: None)


def _queue_entry_left(put: replacing.Put) -> None:
    real = jobs.change_queue
    put(jobs, "change_queue", lambda *given: [one for one in real(*given) if not isinstance(one, Delete)])


def _bucket_skipped(put: replacing.Put) -> None:
    put(jobs, "change_bucket", lambda *_: ())


def _reservation_left(put: replacing.Put) -> None:
    real = space.replace
    put(space, "replace", lambda session, jid, size: () if size is None else real(session, jid, size))


def _guard_asleep(put: replacing.Put) -> None:
    put(AttemptGuard, "check", lambda _: None)


def _guard_before_fence(put: replacing.Put) -> None:
    """The session may end while the leader is asked."""
    real = ZooKeeperJobRecord.fence

    def fence(own: Any, job: Any) -> None:
        own._attempt.check()
        asleep = copy(own)
        asleep._attempt = UNATTENDED
        real(asleep, job)

    put(ZooKeeperJobRecord, "fence", fence)


def _object_unlocked(put: replacing.Put) -> None:
    """Either lock is enough while every host has one storage: so both go."""
    put(locks, "exclusive", lambda *_, **__: nullcontext())
    put(disk, "locked", lambda *_, **__: nullcontext())


def _version_stored_again(put: replacing.Put) -> None:
    put(reading.OcflReader, "version_of", lambda *_, **__: None)


def _lost_job_left(put: replacing.Put) -> None:
    real = recovery.sweep_jobs
    put(recovery, "sweep_jobs", lambda *given, **more: replace(real(*given, **more), tickets=(), lost=()))


def _id_overwritten(put: replacing.Put) -> None:
    """The defect of seed 5 of the first histories."""

    def write_missing(stores: Any, given: Any) -> None:
        for store in stores.every:
            if store.read_deployment() is None:
                store.write_deployment(given)

    put(deployment, "_write_missing", write_missing)
    put(writer, "add", writer.replace)


def _judged_by_content(put: replacing.Put) -> None:
    """Seed 90317 of chaos: a stored version is compared with what was downloaded afterwards."""
    put(earlier_version, "find", lambda *_: None)
    put(earlier_version, "look", lambda *_: None)
    put(earlier_version, "is_of", lambda *_: False)


def _gone_while_stored(put: replacing.Put) -> None:
    """Seed 721 of chaos: content that goes while it is stored fails the job."""

    def process_content(job: Any, context: Any) -> Any:
        submitted = process._read_content(job, context)
        identity = process.identify(job, context.profile, context, submitted.local_id)
        job = job.model_copy(update={"identifiers": identity.identifiers})
        return process._store_once(job, context, submitted, identity)

    put(process, "_process", process_content)


def _vanished_lock_kept(put: replacing.Put) -> None:
    """The cause that was given for seed 437 of chaos: the session stays although its lock vanished."""
    real = locks.drop

    def drop(*given: Any) -> None:
        with suppress(Unreachable):
            real(*given)

    put(locks, "drop", drop)


MUTATIONS: dict[str, Callable[[replacing.Put], None]] = {
    "no-fence": _no_fence,
    "lock-released-before": _lock_released_before,
    "lock-not-carried": _lock_unchecked(record.Lock.CARRY),
    "lock-not-kept": _lock_unchecked(record.Lock.KEEP),
    "counted-twice": _counted_twice,
    "lock-taken-from-others": _lock_taken_from_others,
    "busy-record-dispatched": _busy_record_dispatched,
    "epoch-kept": _epoch_kept,
    "ticket-unchecked": _ticket_unchecked,
    "queue-entry-left": _queue_entry_left,
    "bucket-skipped": _bucket_skipped,
    "reservation-left": _reservation_left,
    "guard-asleep": _guard_asleep,
    "guard-before-fence": _guard_before_fence,
    "object-unlocked": _object_unlocked,
    "version-stored-again": _version_stored_again,
    "lost-job-left": _lost_job_left,
    "id-overwritten": _id_overwritten,
    "judged-by-content": _judged_by_content,
    "gone-while-stored": _gone_while_stored,
    "vanished-lock-kept": _vanished_lock_kept,
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The code with this fault, for the block; without one for an empty name."""
    with replacing.replacing() as put:
        if name:
            MUTATIONS[name](put)
        yield
