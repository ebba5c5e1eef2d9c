"""Two deployments on one Redis, with a prefix each: commands of one do not reach the other's messages."""

import socket
import time
from pathlib import Path

import pytest

from operations.fleet.fleet import taking
from pipeline.settings import Settings
from tests.e2e.collection import deposit
from tests.servers.http_source import HttpSource
from tests.support import cli
from tests.support.fleet import Fleet, assert_completed, batch_ended
from tests.support.fleet import fleet as running_fleet
from zkstate.connection.session import Session, connect

pytestmark = pytest.mark.timeout(240)


def test_drain_and_cleanup_do_not_reach_a_worker_or_a_message_of_another_prefix(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, tmp_path: Path
) -> None:
    other = settings.model_copy(
        update={
            "zk_root": f"{settings.zk_root}other",
            "home": tmp_path / "other",
            "broker_prefix": f"other-{settings.broker_prefix}",
        }
    )
    name = f"worker@{socket.gethostname()}"
    with running_fleet(other) as foreign, connect(other) as their_session:
        fleet.worker()
        foreign.worker()
        await_answer(settings, name)
        await_answer(other, name)
        waiting = deposit(their_session, other, source, 2)

        settings.working.mkdir(parents=True, exist_ok=True)

        drained = cli.run(settings, "drain", name, "--json")
        cleaned = cli.run(settings, "cleanup")

        assert drained.code == 0, drained.err
        assert drained.json()["queues"] == []
        assert cleaned.code == 0, cleaned.err
        assert_completed(batch_ended(their_session, waiting, timeout=120))
        assert_completed(batch_ended(their_session, deposit(their_session, other, source, 1), timeout=120))


def await_answer(settings: Settings, worker: str) -> None:
    """A worker that was just started may not answer in time yet; each question waits a second itself."""
    deadline = time.monotonic() + 60
    while worker not in taking(settings):
        assert time.monotonic() < deadline, f"{worker} does not answer"
