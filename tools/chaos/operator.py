"""An operator at work during the faults: a thread that uses the verbs as the command line does."""

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from queue import Queue

from operations.site import Site
from operations.verbs import bulk
from pipeline.errors import ArklineError, ServiceUnreachable
from pipeline.settings import Settings
from tools.chaos.acts import Acts
from tools.chaos.hostile import CANCEL_HOSTILE
from tools.chaos.operator_verbs import (
    FAIL_JOB,
    RELEASE_COLLECTION,
    RELEASE_JOBS,
    RESUME_REPORTED,
    UNPAUSE,
    UPDATE_REPORT,
    Act,
)
from tools.chaos.problem import Category, Problem
from zkstate.connection.session import Session, connect
from zkstate.errors import Ambiguous

ANSWER_SECONDS = 60.0
"""Seconds for which an operator retries a verb that got no answer."""

ACT_INTERVAL = 0.2
"""Seconds between two acts, in which a fault may stop the operator."""

PREPARE_INTERVAL = 4.0
FAIL_INTERVAL = 30.0
"""Seconds between two requests while a fault waits for an updated report."""


@dataclass
class _Wish:
    act: Act
    target: int
    label: str
    """The kind of act in the schedule; empty if it ends another act, or prepares a fault."""
    asked: float
    names: list[str] | None = None
    """Chosen when the act is first done, and reused in retries."""


class OperatorThread:
    """Does one act after another, each until it is answered, as a person does after a lost connection."""

    def __init__(self, settings: Settings, note: Callable[[str], None]) -> None:
        self._settings = settings
        self._note = note
        self._wishes: Queue[_Wish | None] = Queue()
        self._closing = False
        self.paused = threading.Event()
        """While it is set, nothing is done."""
        self._acting = threading.Lock()
        self._current: _Wish | None = None
        self._began = self._prepared = self._failed = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True, name="operator")
        self.acts = Acts()
        self.vain: Counter[str] = Counter()
        """Kind of act -> how often there was no job or batch for it."""

    @property
    def idle(self) -> bool:
        return self._wishes.unfinished_tasks == 0 or not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._wishes.put(None)
        self._thread.join(2 * ANSWER_SECONDS)

    def pause(self) -> bool:
        """Pause until `paused` is cleared; False, without a pause, during an act."""
        if not self._acting.acquire(blocking=False):
            return False
        self.paused.set()
        self._acting.release()
        return True

    def ask(self, act: Act, target: int = 0, label: str = "") -> None:
        """Ask for an act; `target` chooses one of the jobs or batches that allow it.

        A scheduled act waits until there is one.
        """
        self._wishes.put(_Wish(act, target, label, time.monotonic()))

    def prepare_update(self) -> None:
        """Prepare an updated report: a failed job, resumed after its batch was reported."""
        now = time.monotonic()
        if now > self._failed + FAIL_INTERVAL:
            self._failed = self._prepared = now
            self.ask(FAIL_JOB, int(now))
        elif now > self._prepared + PREPARE_INTERVAL:
            self._prepared = now
            self.ask(RESUME_REPORTED)
            self.ask(UPDATE_REPORT)

    def undo_all(self) -> None:
        """End holds, the pause and hostile deposits: an act's reverse may be lost, or have come first."""
        self._closing = True
        for act in (RELEASE_COLLECTION, UNPAUSE, RELEASE_JOBS, CANCEL_HOSTILE):
            self.ask(act)

    def _run(self) -> None:
        while True:
            try:
                with connect(self._settings) as session:
                    while (wish := self._wish()) is not None:
                        with self._acting:
                            self._answer(session, wish)
                        time.sleep(ACT_INTERVAL)
                    return
            except (ServiceUnreachable, Ambiguous) as error:
                self._repeat(str(error))

    def _wish(self) -> _Wish | None:
        """The act that got no answer, or else the next one; None at the end."""
        if self._current is None:
            self._current = self._wishes.get()
            self._began = time.monotonic()
        return self._current

    def _answer(self, session: Session, wish: _Wish) -> None:
        """Do an act; raises an error that leaves it unanswered."""
        if self.paused.is_set():
            self._began = time.monotonic()
            return
        try:
            wish.names = wish.names or wish.act.choose(session, wish.target)
            if not wish.names and self._may_wait(wish):
                self._put_off(wish)
                return
            if not wish.names:
                self.vain[wish.label] += 1
            self._end(self._do(session, wish.act, wish.names) if wish.names else "no target")
        except (ServiceUnreachable, Ambiguous):
            raise
        except ArklineError as error:
            self._end(f"refused: {error}")
        except Exception as error:  # noqa: BLE001 - the caller raises the exception
            text = f"{wish.act.name}: {''.join(traceback.format_exception(error))}"
            self.acts.problems.append(Problem(Category.ILLEGAL, "", text))
            self._end(f"unexpected {error!r}")

    def _may_wait(self, wish: _Wish) -> bool:
        return bool(wish.label) and not self._closing and time.monotonic() < wish.asked + ANSWER_SECONDS

    def _put_off(self, wish: _Wish) -> None:
        self._current = None
        self._wishes.put(wish)
        self._wishes.task_done()

    def _repeat(self, why: str) -> None:
        if self._current is not None and time.monotonic() > self._began + ANSWER_SECONDS:
            self._end(f"no answer: {why}")
        time.sleep(0.5)

    def _end(self, result: str) -> None:
        wish = self._current
        assert wish is not None
        if wish.names or wish.label:
            self._note(f"{wish.act.name} {' '.join((wish.names or [])[:3])}: {result}")
        self._current = None
        self._wishes.task_done()

    def _do(self, session: Session, act: Act, names: list[str]) -> str:
        outcome = act.do(Site(self._settings, session), names, self.acts)
        if isinstance(outcome, bulk.Outcome):
            if outcome.stopped:
                raise ServiceUnreachable(outcome.stopped)
            return f"{len(outcome.done)} done, {len(outcome.refused)} refused"
        return outcome if isinstance(outcome, str) else "done"
