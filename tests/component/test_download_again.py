import itertools
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.outcome import AttemptOver, Later, StepFailed, WaitKind
from pipeline.settings import Settings
from pipeline.sources.download import origin_path, saved_origin
from pipeline.working_storage.workspace import Workspace
from tests.servers.http_source import HttpSource
from tests.support.downloading import (
    FILES,
    assert_downloaded,
    content_of,
    downloaded,
    ends_after,
    job_of,
    job_of_file,
    md5,
    rows,
)
from tests.support.paused_removal import PausedRemoval
from tests.support.step_context import marked_settings


@pytest.mark.parametrize("digests", [True, False])
def test_an_attempt_that_is_cut_off_anywhere_is_made_good_by_the_next(
    source: HttpSource, tmp_path: Path, digests: bool
) -> None:
    listed = rows(source, digests=digests)
    finished = False
    for looks in itertools.count(1, 3):
        settings = marked_settings(tmp_path / str(looks), download_threads=2)
        first = job_of(settings, listed)
        try:
            downloaded(first, settings, ends_after(looks))
            finished = True
        except AttemptOver:
            second = job_of(settings, listed, attempt=2)
            downloaded(second, settings)
            assert_downloaded(second, FILES)
        if finished:
            break

    assert looks > 10


def test_downloaded_files_are_not_fetched_again(settings: Settings, source: HttpSource) -> None:
    listed = rows(source, digests=False)
    downloaded(job_of(settings, listed), settings)
    before = source.count()

    job = job_of(settings, listed, attempt=2)
    downloaded(job, settings)

    assert source.count() == before
    assert_downloaded(job, FILES)


def test_a_declared_digest_is_enough_to_know_a_file_again(settings: Settings, source: HttpSource) -> None:
    listed = rows(source)
    job = job_of(settings, listed)
    downloaded(job, settings)
    Workspace.of(job, settings.working).downloaded.unlink()
    before = source.count()

    downloaded(job_of(settings, listed, attempt=2), settings)

    assert source.count() == before


def test_a_file_that_nothing_is_known_of_is_fetched_again(settings: Settings, source: HttpSource) -> None:
    listed = rows(source, digests=False)
    job = job_of(settings, listed)
    downloaded(job, settings)
    Workspace.of(job, settings.working).downloaded.unlink()

    downloaded(job_of(settings, listed, attempt=2), settings)

    assert source.count("/a.txt") == 2


def test_a_downloaded_file_that_was_damaged_is_fetched_again(settings: Settings, source: HttpSource) -> None:
    listed = rows(source, digests=False)
    job = job_of(settings, listed)
    downloaded(job, settings)
    (Workspace.of(job, settings.working).producer / "a.txt").write_bytes(b"alphX")

    downloaded(job_of(settings, listed, attempt=2), settings)

    assert_downloaded(job, FILES)


def test_files_downloaded_before_a_failure_are_reused(settings: Settings, source: HttpSource) -> None:
    listed = rows(source, digests=False)
    source.change("/mrt-erc.txt", status=404)
    with pytest.raises(StepFailed):
        downloaded(job_of(settings, listed), settings)
    source.change("/mrt-erc.txt", status=200)

    job = job_of(settings, listed, attempt=2)
    downloaded(job, settings)

    assert source.count("/folder/b.bin") == 1
    assert_downloaded(job, FILES)


def test_only_files_without_a_declared_digest_are_noted_for_later_attempts(
    settings: Settings, source: HttpSource
) -> None:
    listed = [*rows(source, {"a.txt": b"alpha"}), *rows(source, {"b.txt": b"beta"}, digests=False)]
    source.change("/b.txt", status=404)
    job = job_of(settings, listed)
    with pytest.raises(StepFailed):
        downloaded(job, settings)
    journal = Workspace.of(job, settings.working).attempt / "landed.jsonl"
    assert not journal.exists()
    source.change("/b.txt", status=200)
    listed += rows(source, {"c.txt": b"gamma"})
    source.change("/c.txt", status=404)

    with pytest.raises(StepFailed):
        downloaded(job_of(settings, listed), settings)

    assert [json.loads(line)["path"] for line in journal.read_bytes().splitlines()] == ["b.txt"]


def test_a_note_cut_off_by_a_crash_is_passed_over(settings: Settings, source: HttpSource) -> None:
    listed = rows(source, digests=False)
    job = job_of(settings, listed)
    workspace = Workspace.of(job_of(settings, listed, attempt=2), settings.working)
    workspace.attempt.mkdir(parents=True, exist_ok=True)
    (workspace.attempt / "landed.jsonl").write_bytes(b'{"path": "a.t')

    downloaded(job, settings)

    assert_downloaded(job, FILES)


BIG = bytes(range(256)) * 20_000


def interrupted_job(
    settings: Settings,
    source: HttpSource,
    arrived: int = 3_000_000,
    etag: str | None = "auto",
    **facts: Any,
) -> None:
    """An attempt that ended with most of a file here; the source is slow, so that it is never all."""
    job = job_of_file(settings, source.put("/big", BIG, pause=0.005, etag=etag), **facts)
    part = Workspace.of(job, settings.working).attempt / "parts" / "1"

    def check() -> None:
        if part.exists() and part.stat().st_size > arrived:
            raise AttemptOver("the lock is lost")

    with pytest.raises(AttemptOver):
        downloaded(job, settings, CheckedAttempt(check))


def test_the_part_that_an_earlier_attempt_fetched_is_copied_and_gone_on_with(
    settings: Settings, source: HttpSource
) -> None:
    interrupted_job(settings, source, digest=md5(BIG))
    job = job_of_file(settings, source.url("/big"), digest=md5(BIG), op="attempt-2")

    downloaded(job, settings)

    assert int(source.seen("/big")[-1].headers["Range"].removeprefix("bytes=").rstrip("-")) > 3_000_000
    assert_downloaded(job, {"big": BIG})


def test_a_part_without_a_declared_digest_is_continued_if_its_note_and_a_strong_etag_prove_it(
    settings: Settings, source: HttpSource
) -> None:
    interrupted_job(settings, source)
    job = job_of_file(settings, source.url("/big"), op="attempt-2")

    downloaded(job, settings)

    assert "Range" in source.seen("/big")[-1].headers
    assert_downloaded(job, {"big": BIG})


def lose_note(part: Path) -> None:
    origin = saved_origin(part)
    assert origin is not None
    origin_path(part).write_text(origin.model_copy(update={"noted_sha512": ""}).model_dump_json())


def damage(part: Path) -> None:
    with part.open("r+b") as stream:
        stream.write(b"?")


def cut_off(part: Path) -> None:
    os.truncate(part, 2_000_000)


@pytest.mark.parametrize("fault", [lose_note, damage, cut_off])
def test_a_part_without_a_declared_digest_is_fetched_anew_if_nothing_proves_its_bytes(
    settings: Settings, source: HttpSource, fault: Callable[[Path], None]
) -> None:
    interrupted_job(settings, source)
    fault(Workspace.of(job_of_file(settings, source.url("/big")), settings.working).attempt / "parts" / "1")
    job = job_of_file(settings, source.url("/big"), op="attempt-2")

    downloaded(job, settings)

    assert "Range" not in source.seen("/big")[-1].headers
    assert_downloaded(job, {"big": BIG})


def test_a_part_without_a_declared_digest_is_fetched_anew_if_the_source_names_a_date_alone(
    settings: Settings, source: HttpSource
) -> None:
    interrupted_job(settings, source, etag=None)
    job = job_of_file(settings, source.url("/big"), op="attempt-2")

    downloaded(job, settings)

    assert "Range" not in source.seen("/big")[-1].headers
    assert_downloaded(job, {"big": BIG})


@pytest.mark.parametrize("facts", [{"digest": md5(BIG)}, {}], ids=["with a digest", "without one"])
def test_a_job_that_is_interrupted_often_keeps_one_part(
    settings: Settings, source: HttpSource, facts: dict[str, Any]
) -> None:
    for number, arrived in enumerate((1_000_000, 2_300_000, 3_600_000), 1):
        interrupted_job(settings, source, arrived, op=f"attempt-{number}", **facts)

    attempts = Workspace.of(job_of_file(settings, source.url("/big")), settings.working).attempt.parent
    assert sum(path.stat().st_size for path in attempts.rglob("parts/*")) < len(BIG)


def test_an_earlier_attempt_that_still_runs_changes_no_downloaded_file(
    settings: Settings, source: HttpSource
) -> None:
    """The first attempt hangs in its source, loses its lock, and goes on after the second is done."""
    hold = threading.Event()
    url = source.put("/big", BIG, hold=hold, hold_after=3_000_000)
    outcome: list[BaseException] = []

    def first() -> None:
        try:
            downloaded(job_of_file(settings, url), settings)
        except (AttemptOver, OSError, StepFailed) as error:
            outcome.append(error)

    zombie = threading.Thread(target=first)
    zombie.start()
    source.await_request("/big")
    other = BIG[::-1]
    source.put("/big", other)
    job = job_of_file(settings, url, op="attempt-2")
    downloaded(job, settings)
    hold.set()
    zombie.join()

    assert outcome
    assert content_of(job) == {"big": other}


def test_an_attempt_that_pauses_at_its_end_removes_nothing_of_a_later_attempt(
    settings: Settings, source: HttpSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, removal = source.put("/a", b"bytes"), PausedRemoval(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(downloaded, job_of_file(settings, url), settings)
        removal.await_pause()
        later = Workspace.of(job_of_file(settings, url, op="attempt-2"), settings.working)
        later.make_folder(later.attempt)
        (later.attempt / "part").write_bytes(b"by")
        removal.resumed.set()
        first.result()

    assert (later.attempt / "part").read_bytes() == b"by"


def test_a_file_that_nobody_listed_does_not_stay(settings: Settings, source: HttpSource) -> None:
    job = job_of(settings, rows(source))
    stray = Workspace.of(job, settings.working).producer / "old" / "stray.txt"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"stray")

    downloaded(job, settings)

    assert_downloaded(job, FILES)
    assert not stray.parent.exists()


def test_full_working_storage_is_waited_for(settings: Settings, source: HttpSource) -> None:
    job = job_of_file(settings, source.put("/a", b"bytes"))
    part = Workspace.of(job, settings.working).attempt / "parts" / "1"
    part.parent.mkdir(parents=True)
    part.symlink_to("/dev/full")

    with pytest.raises(Later, match="working storage is full") as waits:
        downloaded(job, settings)

    assert waits.value.kind is WaitKind.SPACE


@pytest.mark.parametrize("kept", [(), ("landing.json",)])
def test_a_job_whose_working_directory_is_gone_fetches_its_manifest_and_its_files_again(
    settings: Settings, source: HttpSource, kept: tuple[str, ...]
) -> None:
    listed = rows(source)
    job = job_of(settings, listed)
    manifest = Workspace.of(job, settings.working).manifest.read_bytes()
    url = source.put("/m.checkm", manifest)
    configuration = job.configuration.model_copy(update={"payload_url": url})
    job = job.model_copy(update={"configuration": configuration})
    downloaded(job, settings)
    for path in sorted(Workspace.of(job, settings.working).folder.rglob("*"), reverse=True):
        if path.name not in kept:
            path.unlink() if path.is_file() else path.rmdir()

    downloaded(job, settings)

    assert_downloaded(job, FILES)
    assert Workspace.of(job, settings.working).manifest.read_bytes() == manifest
