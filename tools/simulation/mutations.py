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
from tools.simulation.replacing import replacing
from zkstate.care import deployment
from zkstate.connection import locks, transaction
from zkstate.connection.locks import AttemptGuard
from zkstate.connection.transaction import Create, Delete, Put, Role
from zkstate.errors import Unreachable
from zkstate.queue import recovery
from zkstate.queue.job_record import ZooKeeperJobRecord
from zkstate.record import jobs, record, space


def _no_fence(real: Any) -> Any:
    def encoded(operation: Any, path: str, access: Sequence[Any]) -> bytes:
        fenced = isinstance(operation, Put) and operation.role is Role.FENCE
        return bytes(real(replace(operation, version=None) if fenced else operation, path, access))

    return encoded


def _released_before(real: Any) -> Any:
    def lock_operations(session: Any, of: Any, lock: Any, *more: Any) -> Any:
        if lock is not record.Lock.MINE:
            return real(session, of, lock, *more)
        with suppress(NoNodeError):
            session.ask(session.zk.delete_async, record.lock_path(of))
        return ()

    return lock_operations


def _unchecked(of_move: record.Lock) -> Callable[[Any], Any]:
    """Moves after which the attempt continues do not require its lock."""
    return lambda real: (
        lambda session, of, lock, *more: () if lock is of_move else real(session, of, lock, *more)
    )


def _counted_twice(real: Any) -> Any:
    def acquire(session: Any, of: Any, *more: Any) -> Any:
        status = of.status.model_copy(update={"attempt": of.status.attempt + 1})
        return real(session, of.model_copy(update={"status": status}), *more)

    return acquire


def _of_the_same_epoch(real: Any) -> Any:
    return lambda was, **changes: real(was, **{**changes, "epoch": was.epoch})


def _finding_none_lost(real: Any) -> Any:
    return lambda *given, **more: replace(real(*given, **more), tickets=(), lost=())


def _without(kind: type) -> Callable[[Any], Any]:
    """The operations of a function but those of this kind."""
    return lambda real: lambda *given: tuple(one for one in real(*given) if not isinstance(one, kind))


def _before_fence(real: Any) -> Any:
    """The session may end while the leader is asked."""

    def fence(own: Any, job: Any) -> None:
        own._attempt.check()
        asleep = copy(own)
        asleep._attempt = UNATTENDED
        real(asleep, job)

    return fence


def _write_missing(stores: Any, given: Any) -> None:
    """The defect of seed 5 of the first histories."""
    for store in stores.every:
        if store.read_deployment() is None:
            store.write_deployment(given)


def _gone_while_stored(job: Any, context: Any) -> Any:
    """Seed 721 of chaos: content that goes while it is stored fails the job."""
    submitted = process._read_content(job, context)
    identity = process.identify(job, context.profile, context, submitted.local_id)
    job = job.model_copy(update={"identifiers": identity.identifiers})
    return process._store_once(job, context, submitted, identity)


def _vanished_lock_kept(real: Any) -> Any:
    """The cause that was given for seed 437 of chaos: the session stays although its lock vanished."""

    def drop(*given: Any) -> None:
        with suppress(Unreachable):
            real(*given)

    return drop


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *_, **__: value


MUTATIONS: dict[str, Sequence[tuple[Any, str, Callable[[Any], Any]]]] = {
    "no-fence": [(transaction, "_encoded", _no_fence)],
    "lock-released-before": [(record, "lock_operations", _released_before)],
    "lock-not-carried": [(record, "lock_operations", _unchecked(record.Lock.CARRY))],
    "lock-not-kept": [(record, "lock_operations", _unchecked(record.Lock.KEEP))],
    "counted-twice": [(run, "acquire", _counted_twice)],
    "lock-taken-from-others": [(record, "take_lock", _without(Create))],
    "busy-record-dispatched": [(record, "require_free", _always(()))],
    "epoch-kept": [(record, "_begin_epoch", _of_the_same_epoch)],
    "ticket-unchecked": [(module, "check_ticket", _always(None)) for module in (record, run)],
    "queue-entry-left": [(jobs, "change_queue", _without(Delete))],
    "bucket-skipped": [(jobs, "change_bucket", _always(()))],
    "reservation-left": [
        (space, "replace", lambda real: lambda *given: () if given[2] is None else real(*given))
    ],
    "guard-asleep": [(AttemptGuard, "check", _always(None))],
    "guard-before-fence": [(ZooKeeperJobRecord, "fence", _before_fence)],
    # either lock is enough while every host has one storage: so both go
    "object-unlocked": [
        (locks, "exclusive", _always(nullcontext())),
        (disk, "locked", _always(nullcontext())),
    ],
    "version-stored-again": [(reading.OcflReader, "version_of", _always(None))],
    "lost-job-left": [(recovery, "sweep_jobs", _finding_none_lost)],
    "id-overwritten": [
        (deployment, "_write_missing", lambda _: _write_missing),
        (writer, "add", lambda _: writer.replace),
    ],
    # seed 90317 of chaos: a stored version is compared with what was downloaded afterwards
    "judged-by-content": [
        *((earlier_version, name, _always(None)) for name in ("find", "look")),
        (earlier_version, "is_of", _always(False)),
    ],
    "gone-while-stored": [(process, "_process", lambda _: _gone_while_stored)],
    "vanished-lock-kept": [(locks, "drop", _vanished_lock_kept)],
}
"""Name -> module or class, the name in it, and what takes the place of its value."""


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The code with this fault, for the block; without one for an empty name."""
    with replacing() as put:
        for where, what, mutation in MUTATIONS.get(name, ()):
            put(where, what, mutation(vars(where)[what]))
        yield
