"""EZID, storage, inventory, callback and mail are killed in the middle of a batch and restarted."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

import psycopg
import pytest

from pipeline.inventory.sql import open_inventory
from pipeline.notify.callback import DELIVERY_ID
from pipeline.outcome import Service
from pipeline.settings import Settings
from pipeline.states import BatchState, JobState
from tests.e2e.collection import File, body_of, put_batch, put_object, submit
from tests.servers.ezid import PASSWORD, USER
from tests.servers.http_source import HttpSource
from tests.servers.killable_services import KillableService
from tests.servers.postgresql import Server
from tests.support.fleet import Fleet, batch_ended, quiet, wait_for
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.record import batches, jobs
from zkstate.record.journal import JournalAction

pytestmark = pytest.mark.timeout(240)

JOBS, OBJECTS = 6, 4


@dataclass(frozen=True)
class StepContext:
    names: KillableService
    store: KillableService
    depositor: KillableService
    mail: KillableService


@pytest.fixture
def settings(settings: Settings, postgresql_server: Server, tmp_path: Path) -> Iterator[Settings]:
    yield settings.model_copy(
        update={
            "inventory_url": postgresql_server.new_schema(),
            "profiles": tmp_path / "profiles",
        }
    )
    if not postgresql_server.running:  # it is not this test's alone
        postgresql_server.start()


@pytest.fixture
def services(fleet: Fleet, settings: Settings) -> StepContext:
    kinds = ("ezid", "storage", "callback", "mail")
    found = StepContext(*(KillableService(fleet, kind) for kind in kinds))
    settings.profiles.mkdir()
    (settings.profiles / "demo.yaml").write_text(
        "owner: ark:/99999/fk4o\ncollections: ark:/99999/fk4c\nnotification: depositor@example.org\n"
        f"callback_url: {found.depositor.url}/told\n"
    )
    fleet.extra |= {
        "ARKLINE_EZID_URL": found.names.url,
        "ARKLINE_EZID_USER": USER,
        "ARKLINE_EZID_PASSWORD": PASSWORD,
        "ARKLINE_STORAGE_SERVICE_URL": f"{found.store.url}/store",
        "ARKLINE_STORAGE_SERVICE_RECHECK_AFTER": "1",
        "ARKLINE_SMTP_HOST": "127.0.0.1",
        "ARKLINE_SMTP_PORT": str(found.mail.port),
    }
    return found


def put_versions(source: HttpSource) -> str:
    """A batch manifest of JOBS jobs, of which the last are further versions of the first objects."""
    files = ([File("f.txt", body_of(str(number)))] for number in range(JOBS))
    urls = [put_object(source, f"o{number}", each) for number, each in enumerate(files)]
    return put_batch(source, urls, objects=OBJECTS)


def members(session: Session, bid: str) -> tuple[str, ...]:
    """The batch's jobs, once it is split."""

    def is_split() -> bool:
        return batches.load(session, bid).status.total == JOBS

    wait_for(session, paths.batch_status(bid), is_split, 60, lambda: str(batches.load(session, bid)))
    return tuple(batches.all_jobs(session, bid))


def one_waits(session: Session, jids: tuple[str, ...], service: Service) -> None:
    """Wait until a job has met an outage of `service`."""

    def waits() -> bool:
        statuses = [jobs.load(session, jid).status for jid in jids]
        return any(
            status.service_faults and status.waits_for and status.waits_for.name.startswith(service)
            for status in statuses
        )

    def what() -> str:
        return f"{service} was not missed: {[jobs.load(session, jid).status for jid in jids]}"

    wait_for(session, [paths.job_status(jid) for jid in jids], waits, 60, what)


def report_waits(session: Session, bid: str, faults: int) -> None:
    """Wait until the report has met an outage of the mail server so many times."""

    def waits() -> bool:
        status = batches.load(session, bid).status
        return status.service_faults >= faults and bool(status.waits_for)

    wait_for(session, paths.batch_status(bid), waits, 60, lambda: str(batches.load(session, bid)))


def await_blocked(connection: psycopg.Connection[tuple[int]]) -> None:
    """Wait until another connection waits for a lock."""
    deadline = time.monotonic() + 60
    while not connection.execute("SELECT FROM pg_locks WHERE NOT granted").rowcount:
        assert time.monotonic() < deadline, "nobody wants to enter a version"
        time.sleep(0.05)


def kill_while_a_version_is_entered(server: Server, settings: Settings, store: KillableService) -> None:
    """Storage comes back while the inventory is locked, so that a job is in the middle of its transaction."""
    with closing(psycopg.connect(settings.inventory_url)) as connection:
        connection.execute("LOCK TABLE inv_versions IN ACCESS EXCLUSIVE MODE")
        store.start()
        await_blocked(connection)
        server.kill()


def each_outage_was_noticed_once(session: Session) -> None:
    begun = Counter(entry.target for entry in holds.actions(session) if entry.action is JournalAction.OUTAGE)
    assert set(begun) == {"identifiers", "storage", "inventory", "callback:127.0.0.1", "mail"}
    assert set(begun.values()) == {1}


def test_services_killed_in_the_middle_lose_nothing_and_mint_nothing_twice(
    session: Session,
    settings: Settings,
    fleet: Fleet,
    services: StepContext,
    source: HttpSource,
    postgresql_server: Server,
) -> None:
    names, store, depositor, mail = services.names, services.store, services.depositor, services.mail
    names.start(dies_in=4, wait=False)
    store.start(dies_in=2, wait=False)
    depositor.start(dies_in=2, wait=False)
    mail.start(dies_in=1, undone=True, wait=False)
    fleet.beat(wait=False)
    fleet.worker(concurrency=4)
    for service in (names, store, depositor, mail):
        service.wait_ready()
    bid = submit(session, settings, put_versions(source))
    jids = members(session, bid)

    names.await_death()
    one_waits(session, jids, Service.IDENTIFIERS)
    names.start()

    store.await_death()
    one_waits(session, jids, Service.STORAGE)
    kill_while_a_version_is_entered(postgresql_server, settings, store)
    one_waits(session, jids, Service.INVENTORY)
    postgresql_server.start()

    depositor.await_death()
    one_waits(session, jids, Service.CALLBACK)
    depositor.start()

    mail.await_death()
    report_waits(session, bid, 1)
    mail.start(dies_in=1)
    mail.await_death()
    report_waits(session, bid, 2)
    mail.start()
    batch = batch_ended(session, bid)
    quiet(session)

    assert (batch.status.status, batch.status.message) == (BatchState.COMPLETED, "")
    ended = [jobs.load(session, jid) for jid in jids]
    assert {job.status.status for job in ended} == {JobState.COMPLETED}
    arks = {str(job.identifiers.primary_id) for job in ended}
    assert len(arks) == OBJECTS
    assert {ark: kept["_status"] for ark, kept in names.held().items()} == dict.fromkeys(arks, "public")

    stored = {ark: len(versions) for (_, ark), versions in store.held().items()}
    assert stored == Counter(str(job.identifiers.primary_id) for job in ended)
    inventory = open_inventory(settings.inventory_url)
    found = [found for ark in arks if (found := inventory.describe_object(ark))]
    inventory.database.close()
    assert {each.ark: [version.number for version in each.versions] for each in found} == {
        ark: list(range(1, count + 1)) for ark, count in stored.items()
    }
    assert sorted(version.jid for each in found for version in each.versions) == sorted(jids)

    # whose answer was lost is told again, and can tell that it was
    told = Counter(each.headers[DELIVERY_ID] for each in depositor.held())
    assert set(told) == {f"{jid}-0" for jid in jids}
    assert 1 <= told.total() - JOBS <= 2
    letters = [message_from_bytes(letter) for letter in mail.held()]
    assert [letter["Message-ID"] for letter in letters] == [f"<{bid}.report-1@arkline>"] * 2

    each_outage_was_noticed_once(session)
