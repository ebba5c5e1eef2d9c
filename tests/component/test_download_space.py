"""Bytes beyond those that were reserved: more is reserved before they are written, or the job waits."""

import io
import threading
import zipfile
from pathlib import Path

import pytest

from pipeline.fixity import READ_CHUNK
from pipeline.manifests.checkm import Row
from pipeline.outcome import AttemptOver, Done, Promised, StepFailed
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind
from pipeline.steps import download
from pipeline.steps.download_space import FIRST_STEP
from pipeline.working_storage import capacity, mount
from pipeline.working_storage.workspace import Workspace
from tests.servers.http_source import HttpSource
from tests.support.downloading import assert_downloaded, content_of, job_of, job_of_file, rows, size_of
from tests.support.memory_record import MemoryJobRecord
from tests.support.step_context import collection, local_settings, services

MIB = 1 << 20
LIMIT = 60 * MIB
OTHER = "jid0000000002"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Working storage of which LIMIT bytes may be used."""
    settings = local_settings(tmp_path, working_capacity=2 * LIMIT, working_threshold=50, download_threads=2)
    mount.mark(settings.working)
    capacity.measure_again()
    return settings


def reserving(job: Job, others: int = 0) -> MemoryJobRecord:
    """A record in which the job has its reservation, and other jobs have `others` bytes."""
    record = MemoryJobRecord()
    record.marked = True
    record.reserved = {job.jid: job.space_needed, OTHER: others}
    record.space = Promised(bytes=sum(record.reserved.values()), version=1)
    return record


def run(job: Job, settings: Settings, record: MemoryJobRecord) -> Done:
    outcome = download.work(job, services(settings, record))
    assert isinstance(outcome, Done)
    return outcome


def put_unsized(source: HttpSource, path: str, body: bytes | Path) -> str:
    """A page that states no size and cannot be continued."""
    return source.put(path, body, framing="close", head=False, etag=None, last_modified=None)


def endless(folder: Path) -> Path:
    """A file far above every limit, of which nothing is on the disk."""
    path = folder / "endless"
    with path.open("wb") as file:
        file.truncate(50 * LIMIT)
    return path


def on_disk(job: Job, settings: Settings) -> int:
    return size_of(Workspace.of(job, settings.working).folder)


@pytest.mark.parametrize("sized", [True, False], ids=["declared", "estimated"])
def test_a_job_that_is_as_large_as_estimated_writes_nothing_to_the_record(
    settings: Settings, source: HttpSource, sized: bool
) -> None:
    listed = rows(source, {"a": b"x" * MIB, "b": b"y" * MIB}, digests=sized)
    job = job_of(settings, listed).model_copy(update={"space_needed": 2 * MIB})
    record = reserving(job)

    outcome = run(job, settings, record)

    assert record.reservations_made == []
    assert (outcome.space_needed, outcome.space_grew) == (2 * MIB, False)


def test_a_body_of_unknown_size_reserves_ahead_of_its_bytes_in_few_steps(
    settings: Settings, source: HttpSource, tmp_path: Path
) -> None:
    hold = threading.Event()
    body = b"x" * (40 * MIB)
    url = source.put("/a", body, framing="close", head=False, etag=None, hold=hold, hold_after=20 * MIB)
    job = job_of_file(settings, url, space_needed=0)
    record = reserving(job)
    written: list[int] = []

    def look_when_half_is_sent() -> None:
        source.await_request("/a")
        while on_disk(job, settings) < 20 * MIB:
            threading.Event().wait(0.02)
        written.append(record.reserved[job.jid] - on_disk(job, settings))
        hold.set()

    looking = threading.Thread(target=look_when_half_is_sent)
    looking.start()
    outcome = run(job, settings, record)
    looking.join()

    assert written[0] >= 0
    assert 1 <= len(record.reservations_made) <= 3
    assert record.reserved[job.jid] >= len(body)
    assert (outcome.space_needed, outcome.space_grew) == (len(body), True)
    assert_downloaded(job, {"a": body})


def test_a_size_that_the_answer_states_is_reserved_at_once(settings: Settings, source: HttpSource) -> None:
    """Before the first byte: the source did not say it when it was estimated."""
    hold = threading.Event()
    url = source.put("/a", b"x" * (40 * MIB), hold=hold)
    job = job_of_file(settings, url, space_needed=0)
    record = reserving(job, others=LIMIT - 30 * MIB)

    outcome = run(job, settings, record)
    hold.set()

    assert (outcome.event, on_disk(job, settings)) == (Event.DOWNLOAD_AGAIN, 0)
    assert record.reservations_made == []


def test_a_job_without_room_for_its_next_bytes_gives_all_back_and_waits_for_twice_as_much(
    settings: Settings, source: HttpSource, tmp_path: Path
) -> None:
    files = {"a": put_unsized(source, "/a", b"a" * MIB), "b": put_unsized(source, "/b", endless(tmp_path))}
    listed = [Row(line=0, url=url, name=name) for name, url in files.items()]
    job = job_of(settings, listed).model_copy(update={"space_needed": 0})
    record = reserving(job, others=LIMIT - 20 * MIB)

    outcome = run(job, settings, record)

    assert outcome.event is Event.DOWNLOAD_AGAIN
    assert outcome.space_needed is not None
    assert FIRST_STEP < max(record.reservations_made) <= 20 * MIB
    # doubled from the bytes that found no room: what fitted, and the chunk of at most READ_CHUNK after it
    assert 2 * 18 * MIB <= outcome.space_needed <= 2 * (20 * MIB + READ_CHUNK)
    assert "once there is room" in outcome.message
    assert content_of(job) == {}
    assert not Workspace.of(job, settings.working).attempt.parent.exists()


def test_a_small_body_fits_into_working_storage_smaller_than_a_step(
    tmp_path: Path, source: HttpSource
) -> None:
    settings = local_settings(tmp_path, working_capacity=800_000, working_threshold=100)
    mount.mark(settings.working)
    capacity.measure_again()
    job = job_of_file(settings, put_unsized(source, "/a.bin", b"x" * 1000), space_needed=0)
    record = reserving(job)

    assert run(job, settings, record).event is Event.SUCCEED
    assert 1000 <= record.reserved[job.jid] <= 800_000


def test_a_small_body_fits_beside_others_into_less_room_than_a_step(
    settings: Settings, source: HttpSource
) -> None:
    job = job_of_file(settings, put_unsized(source, "/a.bin", b"x" * 1000), space_needed=0)
    record = reserving(job, others=LIMIT - 2000)

    assert run(job, settings, record).event is Event.SUCCEED
    assert 1000 <= record.reserved[job.jid] <= 2000


def test_a_body_that_working_storage_can_never_hold_is_a_failure_of_content_and_leaves_nothing(
    settings: Settings, source: HttpSource, tmp_path: Path
) -> None:
    job = job_of_file(settings, put_unsized(source, "/a", endless(tmp_path)), space_needed=0)
    record = reserving(job)

    with pytest.raises(StepFailed, match=r"more than the 62\.9 MB that working storage") as failure:
        run(job, settings, record)

    assert failure.value.kind is FailureKind.CONTENT
    assert max(record.reservations_made) <= LIMIT
    assert on_disk(job, settings) == 0


def test_a_body_without_end_is_refused_at_the_limit_of_its_collection(
    settings: Settings, source: HttpSource, tmp_path: Path
) -> None:
    collection(settings, limits={"object_bytes": 3 * MIB})
    job = job_of_file(settings, put_unsized(source, "/a", endless(tmp_path)), space_needed=0)

    with pytest.raises(StepFailed, match="more than the 3,145,728 bytes that are accepted"):
        run(job, settings, reserving(job))

    assert on_disk(job, settings) == 0


def packed(size: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.bin", bytes(size))
    return stream.getvalue()


def test_a_container_that_unpacks_to_more_than_estimated_reserves_more(
    settings: Settings, source: HttpSource
) -> None:
    container = packed(40 * MIB)
    job = job_of_file(
        settings,
        source.put("/a.zip", container),
        payload_type=PayloadType.CONTAINER,
        space_needed=2 * len(container),
    )
    record = reserving(job)

    outcome = run(job, settings, record)

    assert 1 <= len(record.reservations_made) <= 3
    assert (outcome.space_needed, outcome.space_grew) == (40 * MIB, True)
    assert_downloaded(job, {"a.bin": bytes(40 * MIB)})


def test_a_container_without_room_for_its_files_waits_for_room(
    settings: Settings, source: HttpSource
) -> None:
    container = packed(50 * MIB)
    url = source.put("/a.zip", container)
    job = job_of_file(settings, url, payload_type=PayloadType.CONTAINER, space_needed=2 * len(container))
    record = reserving(job, others=LIMIT - 30 * MIB)

    outcome = run(job, settings, record)

    assert outcome.event is Event.DOWNLOAD_AGAIN
    assert max(record.reservations_made, default=0) <= 30 * MIB
    assert on_disk(job, settings) == 0


def test_an_attempt_that_lost_its_job_reserves_nothing(settings: Settings, source: HttpSource) -> None:
    job = job_of_file(settings, put_unsized(source, "/a", b"x" * MIB), space_needed=0)
    record = reserving(job)
    record.owner[job.jid] = job.version + 1

    with pytest.raises(AttemptOver, match="another attempt"):
        run(job, settings, record)

    assert record.reservations_made == []
