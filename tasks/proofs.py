"""Reads the objects that somebody asked to prove: fixity checks that are done now, the oldest request first.

One process of the fleet reads for proofs at a time. Its run stops, after at least SHARE_SECONDS, while jobs
wait for a process of its queue; the next run continues. The schedule's run sends the notices of damage.
"""

import time
from dataclasses import replace

from kombu.exceptions import OperationalError
from pydantic import TypeAdapter

from pipeline.inventory import proofs
from pipeline.inventory.fixity import FixityCheck
from pipeline.inventory.proofs import AskedProof
from pipeline.inventory.sql import SqlInventory
from pipeline.outcome import StepFailed
from pipeline.preservation.custody import Custody
from pipeline.preservation.fixity import Pace, Unreadable
from pipeline.records import now
from pipeline.settings import Settings
from tasks.fixity import Turn, log_outcome, schedule_of
from tasks.logs import log
from tasks.publisher import publisher
from tasks.worker_context import WorkerContext
from zkstate.locks import AttemptGuard, ServerClock
from zkstate.session import Session

WORK = "proofs"
"""The name of the work, of which one process of the fleet does a run at a time."""

PROGRESS_INTERVAL = 1.0
"""Seconds between two entries of the bytes that a proof has read."""

RESULT_LIMIT = 64_000_000
"""Characters of the result of a proof."""

EXPIRY = 60
"""Seconds after which a message that nobody consumed is not needed: beat has begun a run."""

_CUSTODY = TypeAdapter(Custody)


def request_run(settings: Settings) -> None:
    """Have a worker begin a run now, and not within a minute; without Redis beat does it."""
    try:
        publisher(settings).send_task(f"beat.{WORK}", expires=EXPIRY)
    except OperationalError as error:
        log().warning("no run of proofs requested; beat begins one", error=str(error))


def run(context: WorkerContext, session: Session, _: ServerClock) -> None:
    turn = Turn(context.settings, AttemptGuard(session, context.stopping))
    try:
        _prove_all(context, turn)
    except StepFailed as failure:  # of the inventory; another run follows in a minute
        log().warning("proofs wait", error=failure.message)


def _prove_all(context: WorkerContext, turn: Turn) -> None:
    schedule = schedule_of(context.clients(), f"arkline {context.name}")
    inventory = schedule.inventory
    while not turn.must_yield() and (asked := proofs.next_asked(inventory)) is not None:
        proofs.begin(inventory, asked, now())
        proved = schedule.prove(asked.ark, Pace(0, turn.must_yield), _Progress(inventory, asked).read)
        if proved is None:
            return
        if isinstance(proved, Unreadable):
            log_outcome(proved)
            proofs.end(inventory, asked, now(), {"message": proved.problem})
        else:
            check, custody = proved
            log_outcome(check)
            proofs.end(inventory, asked, now(), _result(check, custody, asked))


def _result(check: FixityCheck, custody: Custody | None, asked: AskedProof) -> dict[str, object]:
    if custody is None:
        return {"message": check.damaged[0].what}
    files = tuple(file for file in custody.files if file.version == asked.version)
    agrees = not any(file.problems for file in files)
    own = replace(custody, versions=(asked.version,), files=files, agrees=agrees)
    text = _CUSTODY.dump_json(own).decode()
    if len(text) > RESULT_LIMIT:
        return {"message": f"the result has {len(files):,} files, too many to be kept"}
    return {"custody": text, "bytes_read": check.bytes}


class _Progress:
    """Counts the bytes of a proof, and enters them every PROGRESS_INTERVAL."""

    def __init__(self, inventory: SqlInventory, asked: AskedProof) -> None:
        self._inventory = inventory
        self._asked = asked
        self._read = asked.bytes_read
        self._entered = time.monotonic()

    def read(self, size: int) -> None:
        self._read += size
        if time.monotonic() - self._entered > PROGRESS_INTERVAL:
            self._entered = time.monotonic()
            proofs.count_bytes(self._inventory, self._asked, self._read)
