"""Disks that are missing, read-only or full are waited out: no job fails, and none counts a try."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from operations.fleet.health import HealthProblem, overview
from operations.reasons import Reason
from operations.site import Site
from operations.why.why import why
from pipeline.outcome import Service, WaitKind
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, FailureKind
from tests.e2e.collection import submit
from tests.servers.http_source import HttpSource
from tests.support import nightly
from tests.support.fleet import Fleet, batch_ended, wait_for
from tests.support.operators import ANN
from tools.chaos.small_disks import Filler
from zkstate import paths
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.record import batches, jobs
from zkstate.record.journal import JournalAction

pytestmark = pytest.mark.timeout(240)

Outage = Callable[[Path], AbstractContextManager[None]]

MEGABYTES = 4
"""Size of the disk that is filled."""


@contextmanager
def away(path: Path) -> Iterator[None]:
    moved = path.with_name(f"{path.name}.away")
    path.rename(moved)
    try:
        yield
    finally:
        if path.is_dir():
            path.rmdir()  # created anew by a worker: an error unless it is empty
        moved.rename(path)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    mount("--bind", str(folder), str(folder))
    try:
        mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    filler = Filler(folder)
    filler.fill()
    try:
        yield
    finally:
        filler.remove()


def mount(*arguments: str) -> None:
    done = subprocess.run(("mount", *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this test mounts a file system, which needs root: {done.stderr.strip()}")


@pytest.fixture
def small_disk(settings: Settings) -> Iterator[Path]:
    """The storage root, on a file system of its own."""
    settings.storage.mkdir(parents=True)
    mount("-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tests", str(settings.storage))
    yield settings.storage
    subprocess.run(("umount", "--lazy", str(settings.storage)), check=True)


def inventory_file(settings: Settings) -> Path:
    return Path(settings.inventory.removeprefix("sqlite:///"))


def completes(session: Session, bid: str) -> None:
    ended = batch_ended(session, bid, timeout=120)
    assert ended.status.status is BatchState.COMPLETED, ended.status.message


def a_job_waits_for(session: Session, bid: str, kind: WaitKind, name: str = "") -> str:
    """The JID of the batch's only job, once an attempt has met the fault."""

    def waits() -> bool:
        statuses = [jobs.load(session, jid).status for jid in batches.all_jobs(session, bid)]
        found = [status.waits_for for status in statuses if status.waits_for]
        return any((wait.kind, wait.name) == (kind, name) for wait in found)

    def what() -> str:
        return str([jobs.load(session, jid).status for jid in batches.all_jobs(session, bid)])

    places = [paths.batch_status(bid), *map(paths.job_status, batches.all_jobs(session, bid))]
    wait_for(session, places, lambda: bool(batches.all_jobs(session, bid)), 60, what)
    (jid,) = batches.all_jobs(session, bid)
    wait_for(session, paths.job_status(jid), waits, 90, what)
    return jid


def nothing_failed_and_one_outage_was_noticed(session: Session, jid: str, name: str) -> None:
    history = jobs.load(session, jid).history
    assert [entry for entry in history if entry.kind is FailureKind.TRANSIENT] == []
    begun = [entry for entry in holds.actions(session) if entry.action is JournalAction.OUTAGE]
    assert [entry.target for entry in begun] == [name]


@pytest.mark.parametrize(
    ("service", "fault"),
    [
        (Service.STORAGE, away),
        pytest.param(Service.STORAGE, read_only, marks=nightly.case),
        (Service.INVENTORY, away),
        (Service.WORKING_STORAGE, read_only),
    ],
)
def test_a_disk_that_is_missing_or_read_only_is_waited_for(
    session: Session,
    settings: Settings,
    fleet: Fleet,
    source: HttpSource,
    service: Service,
    fault: Outage,
) -> None:
    fleet.worker()
    fleet.beat()
    completes(session, submit(session, settings, source.put("/a.txt", b"a"), SubmissionType.FILE))
    places = {
        Service.STORAGE: settings.storage,
        Service.INVENTORY: inventory_file(settings),
        Service.WORKING_STORAGE: settings.working,
    }

    with fault(places[service]):
        bid = submit(session, settings, source.put("/b.txt", b"b"), SubmissionType.FILE)
        jid = a_job_waits_for(session, bid, WaitKind.SERVICE, service)
        found = why(Site(settings, session), ANN, jid)
        health = overview(Site(settings, session), ANN).health
        assert (found.reason, found.waits_for, found.moves_itself) == (Reason.SERVICE_DOWN, service, True)
        assert HealthProblem(reason=Reason.SERVICE_DOWN, waits_for=service) in health.problems
    completes(session, bid)

    nothing_failed_and_one_outage_was_noticed(session, jid, service)


def test_a_full_storage_root_is_waited_for(
    session: Session, settings: Settings, small_disk: Path, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker()
    fleet.beat()
    completes(session, submit(session, settings, source.put("/a.txt", b"a"), SubmissionType.FILE))

    with full(small_disk):
        bid = submit(session, settings, source.put("/b.txt", b"b" * 100_000), SubmissionType.FILE)
        jid = a_job_waits_for(session, bid, WaitKind.SERVICE, Service.STORAGE)
    completes(session, bid)

    nothing_failed_and_one_outage_was_noticed(session, jid, Service.STORAGE)
