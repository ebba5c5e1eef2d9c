import threading

import pytest

from pipeline.outcome import Done, StepFailed
from pipeline.settings import Settings
from pipeline.states import FailureKind
from pipeline.working_storage.workspace import Workspace
from tests.servers.http_source import HttpSource
from tests.support.downloading import FILES, assert_downloaded, downloaded, job_of, job_of_file, rows
from tests.support.fetching import sha256
from tests.support.step_context import collection


def test_a_single_file_lands_under_its_name(settings: Settings, source: HttpSource) -> None:
    job = job_of_file(settings, source.put("/x/1.pdf", b"bytes"), payload_name="thesis.pdf")

    outcome = downloaded(job, settings)

    assert outcome == Done(
        space_needed=5, message="1 file, 5 bytes; no digest was declared for 1 of 1 file", remark=""
    )
    assert_downloaded(job, {"thesis.pdf": b"bytes"})


def test_a_file_without_a_name_takes_that_of_its_url(settings: Settings, source: HttpSource) -> None:
    source.put("/x/my%20thesis.pdf", b"bytes")
    job = job_of_file(settings, source.url("/x/my%20thesis.pdf?v=1"), payload_name="")

    downloaded(job, settings)

    assert_downloaded(job, {"my thesis.pdf": b"bytes"})


def named(name: str) -> tuple[tuple[str, str], ...]:
    return (("Content-Disposition", f"attachment; {name}"),)


def test_a_file_that_nobody_named_takes_the_name_that_its_source_states(
    settings: Settings, source: HttpSource
) -> None:
    url = source.put("/datafile/4711", b"bytes", headers=named('filename="Photo 1.tif"'))
    job = job_of_file(settings, url, payload_name="4711", named_by_source=True)

    outcome = downloaded(job, settings)

    assert_downloaded(job, {"Photo 1.tif": b"bytes"})
    assert outcome.message.endswith("; its source names it 'Photo 1.tif'")


def test_a_name_that_was_given_is_kept_whatever_the_source_states(
    settings: Settings, source: HttpSource
) -> None:
    url = source.put("/datafile/4711", b"bytes", headers=named("filename=other.tif"))
    job = job_of_file(settings, url, payload_name="4711")

    downloaded(job, settings)

    assert_downloaded(job, {"4711": b"bytes"})


def test_a_file_that_its_source_named_is_not_fetched_again_by_the_next_attempt(
    settings: Settings, source: HttpSource
) -> None:
    url = source.put("/datafile/4711", b"bytes", headers=named("filename=photo.tif"))
    job = job_of_file(settings, url, payload_name="4711", named_by_source=True)

    downloaded(job, settings)
    downloaded(job, settings)

    assert source.count("/datafile/4711") == 1
    assert_downloaded(job, {"photo.tif": b"bytes"})


def test_a_file_that_neither_depositor_nor_source_nor_url_names_is_refused(
    settings: Settings, source: HttpSource
) -> None:
    job = job_of_file(settings, source.put("/", b"bytes"), payload_name="127.0.0.1", named_by_source=True)

    with pytest.raises(StepFailed, match="submit it with a name") as failure:
        downloaded(job, settings)

    assert failure.value.kind is FailureKind.CONTENT


PAGE = b"<!DOCTYPE html><title>Sign in</title>"


@pytest.mark.parametrize(
    ("body", "kind", "name", "is_remarked"),
    [
        (PAGE, "image/tiff", "a.tif", True),
        (b"\xef\xbb\xbf <!-- x --> <HTML>", "", "a.tif", True),
        (b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">', "", "a.tif", True),
        (b"<div>Sign in</div>", "text/html; charset=utf-8", "a.tif", True),
        ("\ufeff<html>".encode("utf-16-be"), "text/html", "a.tif", True),
        (PAGE, "text/html", "a.html", False),
        (b"II*\x00", "text/html", "a.tif", False),
        (b"<?xml version='1.0'?><mets/>", "text/xml", "a.xml", False),
        (b"", "text/html", "a.tif", False),
    ],
)
def test_a_web_page_in_the_place_of_a_file_is_remarked(
    settings: Settings, source: HttpSource, body: bytes, kind: str, name: str, is_remarked: bool
) -> None:
    url = source.put("/a", body, headers=(("Content-Type", kind),))
    job = job_of_file(settings, url, payload_name=name, digest=sha256(body))

    remarks = [downloaded(job, settings).remark or "" for _ in range(2)]  # also of a file that was left

    assert source.count("/a") == 1
    expected = f"'{name}' came as a web page (HTML): open it and compare" if is_remarked else ""
    assert [remark.partition(";")[0] for remark in remarks] == [expected] * 2


def test_the_files_of_a_manifest_land_in_its_order(settings: Settings, source: HttpSource) -> None:
    job = job_of(settings, rows(source))

    outcome = downloaded(job, settings)

    size = sum(map(len, FILES.values()))
    assert outcome == Done(space_needed=size, message="4 files, 2.6 MB", remark="")
    assert [file.path for file in Workspace.of(job, settings.working).read_downloaded()] == list(FILES)
    assert_downloaded(job, FILES)


BOTH = {"a.txt": b"small", "A.txt": b"capital"}


def test_names_that_differ_in_case_land_as_two_files(settings: Settings, source: HttpSource) -> None:
    job = job_of(settings, rows(source, BOTH))

    downloaded(job, settings)

    assert_downloaded(job, BOTH)


def test_names_that_differ_in_case_are_refused_where_a_file_system_cannot_hold_both(
    settings: Settings, source: HttpSource
) -> None:
    job = job_of(settings, rows(source, BOTH))
    workspace = Workspace.of(job, settings.working)
    workspace.publish(workspace.attempt / "CASE", b"")  # as if the two spellings were one

    with pytest.raises(StepFailed, match="the file system cannot hold both: rename one") as failure:
        downloaded(job, settings)

    assert failure.value.kind is FailureKind.CONTENT
    assert source.count("/a.txt", "GET") == 0


def test_files_are_fetched_at_the_same_time(settings: Settings, source: HttpSource) -> None:
    hold = threading.Event()
    files = {str(number): b"x" for number in range(settings.download_threads)}
    listed = rows(source, files)
    for row in listed:
        source.change(f"/{row.name}", hold=hold)

    def release() -> None:
        for row in listed:
            source.await_request(f"/{row.name}")
        hold.set()

    releasing = threading.Thread(target=release)
    releasing.start()
    downloaded(job_of(settings, listed), settings)
    releasing.join()


def test_every_file_that_cannot_be_had_is_told_at_once(settings: Settings, source: HttpSource) -> None:
    listed = rows(source)
    source.change("/a.txt", status=404)
    source.change("/folder/b.bin", body=b"\0" * len(FILES["folder/b.bin"]))
    job = job_of(settings, listed)

    with pytest.raises(StepFailed) as failure:
        downloaded(job, settings)

    message = failure.value.message
    assert failure.value.kind is FailureKind.CONTENT
    assert message.startswith("2 of 4 files cannot be downloaded: line 6: ")
    assert "404 Not Found" in message
    assert "; line 7: b.bin" in message
    assert "md5" in message
    assert not Workspace.of(job, settings.working).downloaded.exists()


def test_one_file_that_cannot_be_had_is_told_by_its_line(settings: Settings, source: HttpSource) -> None:
    listed = rows(source)
    source.change("/a.txt", status=404)

    with pytest.raises(StepFailed, match=r"^line 6: http://.*/a\.txt: the source answered 404"):
        downloaded(job_of(settings, listed), settings)


def test_after_twenty_files_that_cannot_be_had_no_more_are_tried(
    settings: Settings, source: HttpSource
) -> None:
    files = {f"{'x' * 100}/{number}": b"x" for number in range(500)}
    listed = rows(source, files)
    for row in listed:
        source.change(f"/{row.name}", status=404)

    with pytest.raises(
        StepFailed, match=r"^at least 20 of 500 files cannot be downloaded: .*; and [0-9]+ more$"
    ) as failure:
        downloaded(job_of(settings, listed), settings)

    assert len(failure.value.message) < 2000
    assert source.count() <= 20 + 2 * settings.download_threads


def test_a_source_that_is_down_stops_the_others_and_may_come_back(
    settings: Settings, source: HttpSource
) -> None:
    files = {str(number): b"x" * 100 for number in range(200)}
    listed = rows(source, files)
    source.change("/0", status=503, retry_after="3600")
    others = [f"/{number}" for number in range(1, 200)]
    for other in others:
        source.change(other, delay=0.1)  # the threads would take seconds for all of them

    with pytest.raises(StepFailed) as failure:
        downloaded(job_of(settings, listed), settings)

    assert (failure.value.kind, failure.value.retry_after) == (FailureKind.TRANSIENT, 3600)
    assert source.count() < 200
    source.change("/0", status=200)
    for other in others:
        source.change(other, delay=0)
    job = job_of(settings, listed, attempt=2)
    downloaded(job, settings)
    assert_downloaded(job, files)


def test_a_failure_of_content_counts_more_than_one_that_may_pass(
    settings: Settings, source: HttpSource
) -> None:
    listed = rows(source, {"a": b"x", "b": b"x"})
    source.change("/a", status=404)
    source.change("/b", status=503)
    in_order = settings.model_copy(update={"download_threads": 1})

    with pytest.raises(StepFailed) as failure:
        downloaded(job_of(in_order, listed), in_order)

    assert failure.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize("digests", [True, False])
def test_an_object_larger_than_its_collection_takes_is_refused(
    settings: Settings, source: HttpSource, digests: bool
) -> None:
    collection(settings, limits={"object_bytes": 1_000_000})

    with pytest.raises(StepFailed, match=r"more than the 1.*000 bytes|more than the 1\.0 MB") as failure:
        downloaded(job_of(settings, rows(source, digests=digests)), settings)

    assert failure.value.kind is FailureKind.CONTENT


def test_files_that_are_too_many_bytes_together_are_refused(settings: Settings, source: HttpSource) -> None:
    collection(settings, limits={"object_bytes": 150})
    listed = rows(source, {"a": b"x" * 100, "b": b"x" * 100}, digests=False)

    with pytest.raises(StepFailed, match="more than the 150 bytes that collection demo accepts") as failure:
        downloaded(job_of(settings, listed), settings)

    assert failure.value.kind is FailureKind.CONTENT
