"""Every field that is shown, on every surface, equals the record after random histories, or is absent.

The record is read with kazoo and json alone. `MODEL_EXAMPLES=30 ./dev test tests/integration/test_truth.py`
walks longer, and elsewhere each time.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from operations.board.values import EVERYTHING, JobSearch
from operations.site import Site
from operations.verbs.verbs import act
from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import Event
from tasks import retention
from tasks.app import make_context
from tasks.worker_context import WorkerContext
from tests.integration.test_retention import later
from tests.servers.receiver import Receiver
from tests.support.boards import until
from tests.support.operators import ANN
from tests.support.random_histories import walked
from tests.support.record_facts import Moment, Record
from tests.support.step_context import collection
from tests.support.surfaces import Comparison, Surfaces
from tests.support.web import serving_board
from zkstate.connection.session import Session

pytestmark = [pytest.mark.timeout(1800), pytest.mark.no_cover]

SHOWN = Path(__file__).parent.parent / "support" / "shown_fields.txt"
"""The fields that each surface shows in the walk: if all were absent, nothing would be false."""


def compare(
    session: Session, context: WorkerContext, receiver: Receiver, seed: int, length: int, found: Comparison
) -> None:
    settings = context.settings
    start = datetime.now(UTC)
    walk = walked(session, context, receiver, seed, length)
    so = Record.now(settings, walk.deleted, Moment(start, datetime.now(UTC)))
    alone = settings.model_copy(
        update={"zk_hosts": "127.0.0.1:1", "broker_url": "redis://127.0.0.1:1/0", "home": settings.home / "a"}
    )
    with serving_board(settings) as web:
        board = web.context.board
        read_by_board = [
            jid for jid, facts in so.jobs.items() if facts["state"] not in ("completed", "pending")
        ]

        def all_read() -> bool:
            rows = board.jobs(EVERYTHING, JobSearch(), 1000).rows
            return all(row.name for row in rows if row.jid in read_by_board)

        until(board, all_read)
        surfaces = Surfaces(so, web.caller(Role.ADMIN, name="ann"), settings, alone, found, walk)
        surfaces.compare_living()
        surfaces.compare_mails()
        completed, failed = (
            [bid for bid, facts in so.batches.items() if facts["status"] == status]
            for status in ("completed", "failed")
        )
        retention.remove_old_batches(session, later(session, settings.retention + 60), context.clients())
        replace(surfaces, so=so.alone(completed)).compare_archived("archive: ")
        start = datetime.now(UTC)
        for bid in failed:
            act(Site(settings, session), ANN, bid, Event.DELETE, reason="because", feeding=False)
        deleted = so.after_deletion(failed, Moment(start, datetime.now(UTC)))
        replace(surfaces, so=deleted).compare_archived("deleted: ")


@pytest.fixture
def context(settings: Settings, tmp_path: Path, receiver: Receiver) -> Iterator[WorkerContext]:
    settings.working.mkdir(parents=True)
    given = settings.model_copy(update={"profiles": tmp_path / "profiles", "operator_mail": "ops@x.edu"})
    rules = {"callback_url": receiver.url(), "notification": ["depositor@x.edu"], "confirmation_mail": True}
    collection(given, **rules)
    opened = make_context(given)
    opened.session()
    yield opened
    opened.drop_session()


def test_every_field_that_is_shown_is_that_of_the_record_or_absent(
    session: Session, context: WorkerContext, receiver: Receiver
) -> None:
    asked = int(os.environ.get("MODEL_EXAMPLES", "0"))
    found = Comparison()
    seed = random.randrange(10**6) if asked else 1
    compare(session, context, receiver, seed, asked or 1, found)

    assert {fact: examples[:2] for fact, examples in found.found.items()} == {}, seed
    assert found.compared > 1000
    assert asked or found.shown_fields() == SHOWN.read_text().splitlines(), "a field is lost, or is new"
