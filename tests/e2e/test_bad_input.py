"""Invalid input is refused with a reason, and affects no other object of the batch."""

from random import Random

from pipeline.records import SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, FailureKind
from tests.e2e.collection import File, body_of, manifest, put_batch, put_object, submit
from tests.servers.http_source import HttpSource
from tests.support.fleet import Fleet, batch_ended, quiet
from tests.support.outbox import letters
from tests.support.packing import zipped
from zkstate.connection.session import Session
from zkstate.record import batches, jobs

OBJECT = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-ingest-manifest"
CONTAINERS = "http://uc3.cdlib.org/registry/ingest/manifest/mrt-container-batch-manifest"


def one_row(source: HttpSource, name: str, row: str) -> str:
    return source.put(f"/{name}.checkm", manifest(OBJECT, [row]))


def messages(session: Session, bid: str) -> dict[str, str]:
    """What each failed job of the batch says, by its payload's name."""
    failed = [jobs.load(session, jid) for jid in batches.load(session, bid).report.failed_jobs]  # type: ignore[union-attr]
    assert {job.status.kind for job in failed} <= {FailureKind.CONTENT, FailureKind.TRANSIENT}
    return {job.configuration.payload_name: job.status.message for job in failed}


def test_every_kind_of_bad_manifest_and_file_fails_alone(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker()
    fleet.beat()
    good = put_object(source, "good", [File("a.txt", body_of("good"))])
    content = source.put("/x.txt", b"x")
    source.put("/loop.txt", redirect="/loop.txt")
    source.put("/cut.txt", body_of("cut"), cut_after=10, ranges=False)
    source.put("/header.txt", b"x", headers=(("X-Long", "y" * 70_000),))
    rows = {
        "loop": f"{source.url('/loop.txt')} |  |  |  |  | loop.txt |",
        "cut": f"{source.url('/cut.txt')} |  |  |  |  | cut.txt |",
        "header": f"{source.url('/header.txt')} |  |  |  |  | header.txt |",
        "missing": f"{source.url('/missing.txt')} |  |  |  |  | missing.txt |",
        "negative": f"{content} |  |  | -1 |  | negative.txt |",
        "digest": f"{content} | md5 | {'0' * 32} |  |  | digest.txt |",
        "dots": f"{content} |  |  |  |  | ../dots.txt |",
        "local": "file:///etc/passwd |  |  |  |  | passwd |",
        "private": "http://10.0.0.1/a.txt |  |  |  |  | private.txt |",
    }
    bad = [one_row(source, name, row) for name, row in rows.items()]
    bad.append(source.put("/utf8.checkm", manifest(OBJECT, [f"{content} |  |  |  |  | a |"]) + b"\xff\xfe"))
    twice = f"{content} |  |  |  |  | same.txt |"
    bad.append(source.put("/twice.checkm", manifest(OBJECT, [twice, twice])))
    bid = submit(session, settings, put_batch(source, [good, *bad]))

    batch = batch_ended(session, bid)
    quiet(session)

    assert batch.status.status is BatchState.FAILED
    assert batch.report is not None
    assert len(batch.report.successful_jobs) == 1
    said = messages(session, bid)
    assert set(said) == {f"{name}.checkm" for name in (*rows, "utf8", "twice")}
    for name in ("loop", "cut", "header", "missing", "digest"):
        assert f"{name}.txt" in said[f"{name}.checkm"]
    for name in ("negative", "dots", "local"):
        assert "line " in said[f"{name}.checkm"]
    assert "10.0.0.1" in said["private.checkm"]
    assert "same.txt" in said["twice.checkm"]
    told = letters(settings)[-1].get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert "Traceback" not in told
    assert "Error(" not in told


def test_every_kind_of_bad_container_fails_alone(
    session: Session, settings: Settings, fleet: Fleet, source: HttpSource
) -> None:
    fleet.worker()
    contents = {
        "good": zipped({"a.txt": b"good"}),
        "slip": zipped({"../../etc/cron.d/evil": b"x"}),
        "bomb": zipped({"zeros.bin": b"\0" * 200_000_000}),
        "torn": zipped({"a.txt": Random(1).randbytes(5000)})[:2000],
        "text": b"this is no container",
    }
    urls = {name: source.put(f"/{name}.zip", body) for name, body in contents.items()}
    rows = [f"{url} |  |  |  |  | {name}.zip |  |  | maker | title | 2020" for name, url in urls.items()]
    url = source.put("/containers.checkm", manifest(CONTAINERS, rows))
    bid = submit(session, settings, url, SubmissionType.CONTAINER_BATCH_MANIFEST)

    batch = batch_ended(session, bid)
    quiet(session)

    assert batch.report is not None
    assert len(batch.report.successful_jobs) == 1
    said = messages(session, bid)
    assert set(said) == {f"{name}.zip" for name in contents if name != "good"}
    assert ".." in said["slip.zip"]
    assert not (settings.home.parent / "etc").exists()
