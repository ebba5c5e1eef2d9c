import hashlib
import io
import itertools
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.fixity import Digest
from pipeline.outcome import AttemptOver, Done, StepFailed
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.states import FailureKind, JobState
from pipeline.working_storage.workspace import Workspace
from tests.servers.http_source import HttpSource
from tests.support.downloading import assert_downloaded, downloaded, ends_after
from tests.support.step_context import collection, local_settings, working_job

FILES = {"a.txt": b"alpha", "folder/b.bin": bytes(range(256)) * 4000, "mrt-erc.txt": b"erc:\n"}


def packed(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return stream.getvalue()


ZIP = packed(FILES)
SHA256 = Digest(algorithm="sha256", value=hashlib.sha256(ZIP).hexdigest())


def job_of(settings: Settings, url: str, attempt: int = 1, **facts: Any) -> Job:
    return working_job(
        settings, JobState.DOWNLOADING, PayloadType.CONTAINER, url, op=f"attempt-{attempt}", **facts
    )


def test_the_files_of_a_container_land(settings: Settings, source: HttpSource) -> None:
    job = job_of(settings, source.put("/a.zip", ZIP), digest=SHA256, size=len(ZIP))

    outcome = downloaded(job, settings)

    assert outcome == Done(space_needed=sum(map(len, FILES.values())), message="3 files, 1.0 MB", remark="")
    assert_downloaded(job, FILES)


def test_the_content_of_a_container_tells_its_format_whatever_its_name(
    settings: Settings, source: HttpSource
) -> None:
    job = job_of(settings, source.put("/datafile/4711", ZIP), payload_name="4711", named_by_source=True)

    downloaded(job, settings)

    assert_downloaded(job, FILES)


@pytest.mark.parametrize(
    "page",
    [
        b"<!doctype html><title>Sign in</title>",
        b"<script>location = '/login'</script>",
        b"<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code></Error>",
        "\ufeff<html>".encode("utf-16-le"),
    ],
)
def test_a_web_page_in_the_place_of_a_container_is_named(
    page: bytes, settings: Settings, source: HttpSource
) -> None:
    job = job_of(settings, source.put("/a.zip", page))

    with pytest.raises(StepFailed, match="is a web page, not an archive: a page for signing in") as failure:
        downloaded(job, settings)

    assert failure.value.kind is FailureKind.CONTENT
    assert "type file" not in failure.value.message


def test_a_name_without_an_encoding_is_reported_to_the_depositor(
    settings: Settings, source: HttpSource
) -> None:
    data = packed({"cafe.txt": b"1"}).replace(b"cafe.txt", "caf\u00e9.txt".encode("cp1252"))
    job = job_of(settings, source.put("/a.zip", data))

    outcome = downloaded(job, settings)

    assert outcome.remark == (
        "the names of 1 file in the container are not marked as UTF-8 and were read as cp437, the first as "
        "'caf\u0398.txt': compare the names with yours"
    )


@pytest.mark.parametrize(
    ("folders", "named"),
    [(["b"], "'b'"), (["d", "a/c", "b", "e", "f"], "'a/c', 'b', 'd' and 2 more")],
)
def test_folders_without_files_are_named_to_the_depositor(
    folders: list[str], named: str, settings: Settings, source: HttpSource
) -> None:
    data = packed({**FILES, **{f"{folder}/": b"" for folder in folders}})

    outcome = downloaded(job_of(settings, source.put("/a.zip", data)), settings)

    assert outcome.remark == f"folders without files are not stored: {named}"


def test_names_that_differ_in_case_land_unless_a_file_system_cannot_hold_both(
    settings: Settings, source: HttpSource
) -> None:
    both = {"a.txt": b"small", "A.txt": b"capital"}
    url = source.put("/a.zip", packed(both))
    first = job_of(settings, url)
    workspace = Workspace.of(first, settings.working)
    workspace.publish(workspace.attempt / "CASE", b"")  # as if the two spellings were one
    with pytest.raises(StepFailed, match="upper and lower case") as failure:
        downloaded(first, settings)
    assert failure.value.kind is FailureKind.CONTENT

    second = job_of(settings, url, 2)
    downloaded(second, settings)
    assert_downloaded(second, both)


def test_a_container_with_another_digest_is_refused_and_not_unpacked(
    settings: Settings, source: HttpSource
) -> None:
    job = job_of(settings, source.put("/a.zip", ZIP[:-1] + b"x"), digest=SHA256)

    with pytest.raises(StepFailed, match="sha256") as failure:
        downloaded(job, settings)

    assert failure.value.kind is FailureKind.CONTENT
    assert not Workspace.of(job, settings.working).producer.exists()


def test_a_container_over_the_limits_is_refused(source: HttpSource, tmp_path: Path) -> None:
    settings = local_settings(tmp_path, object_files=2)

    with pytest.raises(StepFailed, match="more than 2 files") as failure:
        downloaded(job_of(settings, source.put("/a.zip", ZIP)), settings)

    assert failure.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize("digest", [SHA256, None])
def test_an_attempt_that_is_cut_off_anywhere_is_made_good_by_the_next(
    source: HttpSource, tmp_path: Path, digest: Digest | None
) -> None:
    url = source.put("/a.zip", ZIP)
    for looks in itertools.count(1):
        settings = local_settings(tmp_path / str(looks))
        try:
            downloaded(job_of(settings, url, digest=digest), settings, ends_after(looks))
            break
        except AttemptOver:
            second = job_of(settings, url, 2, digest=digest)
            downloaded(second, settings)
            assert_downloaded(second, FILES)

    assert looks > 10


def test_a_container_that_was_here_whole_is_not_fetched_again(settings: Settings, source: HttpSource) -> None:
    url = source.put("/a.zip", ZIP)
    first = job_of(settings, url)
    workspace = Workspace.of(first, settings.working)

    def check() -> None:
        if (workspace.attempt / "unpacked").exists():
            raise AttemptOver("the lock is lost")

    with pytest.raises(AttemptOver):
        downloaded(first, settings, CheckedAttempt(check))
    second = job_of(settings, url, 2)
    downloaded(second, settings)

    assert source.count("/a.zip", "GET") == 1
    assert_downloaded(second, FILES)


def test_a_downloaded_container_is_neither_fetched_nor_unpacked_again(
    settings: Settings, source: HttpSource
) -> None:
    url = source.put("/a.zip", ZIP)
    downloaded(job_of(settings, url), settings)
    source.change("/a.zip", status=404)

    second = job_of(settings, url, 2)
    downloaded(second, settings)

    assert_downloaded(second, FILES)


def test_files_half_in_place_are_replaced_as_a_whole(settings: Settings, source: HttpSource) -> None:
    job = job_of(settings, source.put("/a.zip", ZIP))
    producer = Workspace.of(job, settings.working).producer
    producer.mkdir(parents=True)
    (producer / "a.txt").write_bytes(b"half")
    (producer / "stray").write_bytes(b"")

    downloaded(job, settings)

    assert_downloaded(job, FILES)


def test_a_damaged_downloaded_file_is_fetched_again(settings: Settings, source: HttpSource) -> None:
    url = source.put("/a.zip", ZIP)
    first = job_of(settings, url)
    downloaded(first, settings)
    (Workspace.of(first, settings.working).producer / "a.txt").write_bytes(b"alphX")

    second = job_of(settings, url, 2)
    downloaded(second, settings)

    assert_downloaded(second, FILES)


@pytest.mark.parametrize("limit", [{"object_files": 2}, {"object_bytes": len(ZIP) - 1}])
def test_a_container_with_more_than_its_collection_takes_is_refused(
    settings: Settings, source: HttpSource, limit: dict[str, int]
) -> None:
    collection(settings, limits=limit)
    job = job_of(settings, source.put("/a.zip", ZIP))

    with pytest.raises(StepFailed) as failure:
        downloaded(job, settings)

    assert failure.value.kind is FailureKind.CONTENT
    assert not Workspace.of(job, settings.working).producer.exists()
