"""Runs a state machine of Hypothesis against a real record: two workers, and one session for all others."""

import os
import warnings
from contextlib import ExitStack

from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisDeprecationWarning
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from kazoo.client import KazooClient

from pipeline.settings import Settings
from zkstate.connection.session import Session, connect

WORKERS = 2

MOST = 1000
"""Lost workers after which a sweep gives up: more than a run of a model has steps."""

pick = st.integers(0, 1000)
"""Which of the candidates, counted modulo their number."""


class RecordMachine(RuleBasedStateMachine):
    """One example, in a tree of its own: new sessions would take most of the time."""

    settings: Settings
    operator: Session
    workers: list[Session]

    def __init__(self) -> None:
        super().__init__()
        root = f"{self.settings.zk_root}-{os.urandom(6).hex()}"
        connect(self.settings.model_copy(update={"zk_root": root})).close()
        for session in (self.operator, *self.workers):
            session.zk.chroot = root


def end_session(session: Session) -> None:
    """The server ends the session and its locks; the client continues with a new session."""
    lost = session.standing()
    victim = KazooClient(hosts=session.hosts, client_id=session.zk.client_id, timeout=4)
    victim.start(timeout=10)
    victim.stop()
    victim.close()
    while session.standing() == lost:
        session.exists("/")


def run_machine(machine: type[RecordMachine], given: Settings, examples: int) -> None:
    """The same `examples` each time; if MODEL_EXAMPLES is set, as many as it says, and others each time."""
    asked = int(os.environ.get("MODEL_EXAMPLES", "0"))
    with ExitStack() as opened:
        # a thread of kazoo draws its jitter from `random` while Hypothesis draws, which warns of that
        opened.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "Do not use the `random` module", HypothesisDeprecationWarning)
        sessions = [opened.enter_context(connect(given)) for _ in range(1 + WORKERS)]
        machine.settings, machine.operator, machine.workers = given, sessions[0], sessions[1:]
        run_state_machine_as_test(
            machine,
            settings=hypothesis_settings(
                max_examples=asked or examples,
                stateful_step_count=40,
                deadline=None,
                derandomize=not asked,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
