"""Threads of this process that use the repository during the faults: deposits, and a second beat."""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from kombu.exceptions import OperationalError
from redis import RedisError

from pipeline.errors import ArklineError
from pipeline.records import Submission, SubmissionType
from pipeline.settings import Settings
from tasks.app import make_context
from tasks.broker import dispatch_batch, publisher
from tasks.scheduled.beat import WORK
from tools.chaos.deposits import Deposit
from zkstate.connection.locks import single_flight
from zkstate.connection.session import Session, connect
from zkstate.record import batches, record


class Submitter:
    """Submits each deposit at its time; retries under the same key until ZooKeeper has confirmed it."""

    def __init__(self, settings: Settings, deposits: list[Deposit], url: Callable[[str], str]) -> None:
        self._settings = settings
        self._deposits = deposits
        self._url = url
        self.bids: dict[str, str] = {}
        """Key of the deposit -> its batch."""
        self.paused = threading.Event()
        """While it is set, nothing is submitted."""
        self._submitting = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="submitter")

    @property
    def done(self) -> bool:
        return len(self.bids) == len(self._deposits)

    @property
    def broken(self) -> bool:
        """Whether the thread was ended by an error that a depositor should never see."""
        return not self.done and not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(60)

    def pause(self) -> bool:
        """Stop submitting until `paused` is cleared; False, without a pause, during a submission."""
        if not self._submitting.acquire(blocking=False):
            return False
        self.paused.set()
        self._submitting.release()
        return True

    def _run(self) -> None:
        began = time.monotonic()
        waiting = list(self._deposits)
        while waiting and not self._over.is_set():
            try:
                with connect(self._settings) as session:
                    while waiting:
                        if self._over.wait(max(0.0, began + waiting[0].at - time.monotonic())):
                            return
                        with self._submitting:
                            bid = None if self.paused.is_set() else self._submit(session, waiting[0])
                        if bid is None:
                            self._over.wait(0.2)
                            continue
                        self.bids[waiting[0].key] = bid
                        waiting.pop(0)
                        dispatch_batch(publisher(self._settings), record.ticket(batches.load(session, bid)))
            except ArklineError:
                self._over.wait(0.5)

    def _submit(self, session: Session, deposit: Deposit) -> str:
        deposited = deposit.objects[0]
        single = deposit.kind is not SubmissionType.BATCH_MANIFEST
        submission = Submission(
            profile_name=deposit.profile,
            submitter="chaos",
            payload_url=self._url(deposit.path),
            type=deposit.kind,
            payload_filename=deposit.path[1:],
            local_id=(deposited.local_id,) if single and deposited.local_id else (),
            idempotency_key=deposit.key,
            new_version=True,
        )
        return batches.submit(session, submission)


class SecondBeat:
    """Runs scheduled work beside the elected beat, without the lock that separates the two."""

    def __init__(self, settings: Settings) -> None:
        self._context = make_context(settings)
        self._wishes: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name="second-beat")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._wishes.put(None)
        self._thread.join(60)

    def ask(self, *names: str) -> None:
        for name in names:
            self._wishes.put(name)

    def _run(self) -> None:
        while (name := self._wishes.get()) is not None:
            try:
                session = self._context.session()
                # a lock with another name, only to read the server's clock
                with single_flight(session, "chaos") as clock:
                    if clock is not None:
                        WORK[name](self._context, session, clock)
            except (ArklineError, OperationalError, RedisError):  # Redis may be away; the work is repeated
                self._context.drop_session()
        self._context.drop_session()
