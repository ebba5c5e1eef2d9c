"""Bodies without end and without a stated size against small working storage: honest deposits complete."""

import threading
from pathlib import Path

from operations.site import Site
from operations.verbs.verbs import act
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, Event, FailureKind
from pipeline.working_storage import capacity
from tests.e2e.collection import File, body_of, put_object, submit
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, assert_completed, batch_ended, quiet, wait_for, wait_for_split
from tests.support.operators import ANN
from zkstate import paths
from zkstate.care.audit import audit
from zkstate.connection.session import Session
from zkstate.record import batches, jobs, space

MIB = 1 << 20
CAPACITY = 120 * MIB
"""Bytes of working storage, of which 80 percent may be used."""


def put_endless(source: HttpSource, name: str, folder: Path) -> str:
    """A body that is far larger than working storage, and whose size the source never states."""
    path = folder / "endless"
    with path.open("wb") as file:
        file.truncate(100 * CAPACITY)
    return source.put(f"/{name}", path, framing="close", ranges=False, etag=None, last_modified=None)


def test_bodies_without_end_stay_within_working_storage_and_honest_deposits_complete(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, tmp_path: Path
) -> None:
    """Two at once: neither may wait for the half that the other has."""
    limits = {"working_capacity": CAPACITY, "working_threshold": 80}
    fleet.settings = settings.model_copy(update=limits)
    fleet.worker(concurrency=3)
    fleet.beat()
    endless = [
        submit(session, settings, put_endless(source, f"endless{number}", tmp_path), SubmissionType.FILE)
        for number in range(2)
    ]
    honest = [
        submit(
            session,
            settings,
            put_object(source, f"o{number}", [File("a.bin", body_of(str(number), 10 * MIB))]),
            SubmissionType.OBJECT_MANIFEST,
        )
        for number in range(3)
    ]

    for bid in honest:
        assert_completed(batch_ended(session, bid, timeout=240))
    for bid in endless:
        assert batch_ended(session, bid, timeout=240).status.status is BatchState.FAILED
        (jid,) = batches.all_jobs(session, bid)
        job = jobs.load(session, jid)
        assert job.status.kind is FailureKind.CONTENT
        assert "that working storage can hold" in job.status.message
        assert space.reservation_of(session, jid) is None

    quiet(session)
    assert space.promised(session).bytes == 0
    capacity.measure_again()
    assert sum(capacity.occupancy(settings).on_disk.values()) < MIB
    assert list(audit(session)) == []


def test_a_failed_job_of_unknown_size_gives_its_bytes_back_to_a_job_that_needs_them(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    limits = {"working_capacity": CAPACITY, "working_threshold": 80}
    fleet.settings = settings.model_copy(update=limits)
    fleet.worker(concurrency=2)
    fleet.beat()
    held = threading.Event()
    how = {"framing": "close", "head": False, "etag": None, "hold": held, "hold_after": 50 * MIB}
    stuck = submit(session, settings, source.put("/a", b"x" * (60 * MIB), **how), SubmissionType.FILE)
    wait_for_split(session, stuck)
    (jid,) = batches.all_jobs(session, stuck)
    wait_for(
        session,
        paths.reservation(jid),
        lambda: (space.reservation_of(session, jid) or 0) > 40 * MIB,
        60,
        lambda: str(jobs.load(session, jid)),
    )

    act(Site(settings, session), ANN, jid, Event.FAIL)
    assert space.reservation_of(session, jid) is None
    body = body_of("large", 80 * MIB)
    url = put_object(source, "large", [File("a.bin", body)])
    large = submit(session, settings, url, SubmissionType.OBJECT_MANIFEST)

    assert_completed(batch_ended(session, large, timeout=240))
