"""Whole batches through real workers: stored, recorded and reported truthfully."""

import pytest
from sqlalchemy import create_engine, text

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, FailureKind, JobState
from pipeline.working_storage import mount
from tests.e2e.collection import File, body_of, put_batch, put_collection, put_object, submit
from tests.servers.http_source import HttpSource
from tests.support import cli as arkline
from tests.support.fleet import Fleet, batch_ended, quiet
from tests.support.ocfl_fixture import invalid_objects
from tests.support.outbox import letters
from zkstate.connection.session import Session
from zkstate.record import batches, jobs


def rows(settings: Settings, query: str) -> list[tuple[object, ...]]:
    engine = create_engine(settings.inventory)
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]
    finally:
        engine.dispose()


def test_a_batch_of_manifests_is_stored_recorded_and_reported(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker()
    bid = submit(session, settings, put_collection(source, objects=3, files=2))

    batch = batch_ended(session, bid)
    quiet(session)

    assert batch.status.status is BatchState.COMPLETED, batch.status.message
    assert batch.report is not None
    assert len(batch.report.successful_jobs) == 3
    arks = {jobs.load(session, jid).identifiers.primary_id for jid in batch.report.successful_jobs}
    assert len(arks) == 3
    assert len(list(settings.storage.rglob("0=ocfl_object_1.1"))) == 3
    assert invalid_objects(settings.storage) == []
    assert rows(settings, "select count(*) from inv_objects") == [(3,)]
    assert rows(settings, "select count(*) from inv_versions") == [(3,)]
    assert rows(settings, "select count(*) from inv_files where source = 'producer'") == [(6,)]
    assert [path.name for path in settings.working.rglob("*")] == [mount.MARK]
    (letter,) = [each for each in letters(settings) if "3 objects stored" in each["Subject"]]
    assert "depositor@example.org" in letter["To"]
    assert_custody(settings, str(arks.pop()))


def assert_custody(settings: Settings, ark: str) -> None:
    """All that a job knew of the files' arrival outlived its working directory, and storage has the same."""
    proof = arkline.run(settings, "object", ark, "--json")
    assert proof.code == 0, proof.err
    files = [file for file in proof.json()["custody"]["files"] if file["path"].startswith("producer/")]
    assert len(files) == 2
    for file in files:
        assert (file["verdict"], file["source"]["origin"]) == ("agrees", "declared")
        assert file["source"]["url"].startswith("http://127.0.0.1:")
        assert file["download"]["at"] <= file["storage"]["read_back"] < file["now"]["at"]
        assert file["download"]["sha512"] == file["storage"]["sha512"] == file["now"]["sha512"]


def test_a_bad_object_fails_alone_and_the_report_says_why(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker()
    good = put_object(source, "good", [File("a.txt", b"good")])
    altered = put_object(source, "altered", [File("b.txt", b"bad", declared="0" * 64)])
    absent = put_object(source, "absent", [File("c.txt", b"gone", served=False)])
    corrupt = source.put("/corrupt.checkm", b"#%checkm_0.7\nnot a manifest")
    bid = submit(session, settings, put_batch(source, [good, altered, absent, corrupt]))

    batch = batch_ended(session, bid)
    quiet(session)

    assert batch.status.status is BatchState.FAILED
    assert batch.report is not None
    failed = [jobs.load(session, jid) for jid in batch.report.failed_jobs]
    assert len(batch.report.successful_jobs) == 1
    assert {job.status.kind for job in failed} == {FailureKind.CONTENT}
    told = letters(settings)[-1].get_body(("plain",)).get_content()  # type: ignore[union-attr]
    for name in ("b.txt", "c.txt", "corrupt.checkm"):
        assert name in told
    assert "Traceback" not in told


@pytest.mark.parametrize("kind", [SubmissionType.FILE, SubmissionType.OBJECT_MANIFEST])
def test_a_single_object_is_a_batch_of_one(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource, kind: SubmissionType
) -> None:
    fleet.worker()
    if kind is SubmissionType.FILE:
        url = source.put("/letter.txt", body_of("letter"))
    else:
        url = put_object(source, "letters", [File("letter.txt", body_of("letter"))])

    batch = batch_ended(session, submit(session, settings, url, kind))
    quiet(session)

    assert batch.status.status is BatchState.COMPLETED, batch.status.message
    assert rows(settings, "select pathname from inv_files where source = 'producer'") == [
        ("producer/letter.txt",)
    ]


def test_a_payload_that_cannot_be_split_is_reported_as_failed(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker()

    batch = batch_ended(session, submit(session, settings, source.url("/nowhere.checkm")))

    assert batch.status.status is BatchState.FAILED
    assert "nowhere.checkm" in batch.status.message
    assert "no objects could be created" in letters(settings)[-1]["Subject"]
    assert batches.all_jobs(session, batch.bid) == []


def test_many_jobs_end_each_once(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker(concurrency=3)
    bid = submit(session, settings, put_collection(source, objects=40, files=1))

    batch = batch_ended(session, bid, timeout=120)
    quiet(session)

    assert batch.status.status is BatchState.COMPLETED
    assert rows(settings, "select count(*) from inv_ingests") == [(40,)]
    for jid in batches.all_jobs(session, bid):
        states = [entry.state for entry in jobs.load(session, jid).history]
        assert states.count(JobState.COMPLETED) == 1
