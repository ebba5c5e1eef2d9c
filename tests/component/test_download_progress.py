"""What an attempt reports while a job's files arrive."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline import humanize
from pipeline.attempt import Progress
from pipeline.settings import Settings
from pipeline.sources import limits
from pipeline.steps import download_space
from tests.servers.http_source import HttpSource
from tests.support.downloading import downloaded, job_of, rows
from tests.support.step_context import marked_settings

LARGE = bytes(3_000_000)


@pytest.fixture
def source() -> Iterator[HttpSource]:
    with HttpSource() as server:
        yield server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return marked_settings(tmp_path, download_threads=1)


@dataclass
class Recorder:
    """An attempt that remembers its reports, and sets `reported` after the first `enough` of them."""

    enough: int = 1
    reports: list[Progress] = field(default_factory=list)
    reported: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """It never ends."""

    def report(self, progress: Progress) -> None:
        self.reports.append(progress)
        if len(self.reports) >= self.enough:
            self.reported.set()

    def yields(self) -> bool:
        return False


def test_progress_adds_up_the_files_of_a_job(
    settings: Settings, source: HttpSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_space, "REPORT_INTERVAL", 0.0)
    attempt = Recorder()
    in_order = settings.model_copy(update={"download_threads": 1})
    job = job_of(in_order, rows(source, {"a": LARGE, "b": LARGE}))
    # the first file is noted long before the second one is there
    source.change("/b", piece=500_000, pause=0.1)

    downloaded(job, in_order, attempt)

    last = attempt.reports[-1]
    assert (last.file, last.host) == ("b", "127.0.0.1")
    assert (last.bytes, last.bytes_expected) == (6_000_000, 6_000_000)
    assert (last.files, last.files_expected) == (1, 2)
    assert last.bytes_per_second
    assert [report.bytes for report in attempt.reports] == sorted(report.bytes for report in attempt.reports)


def test_a_source_that_does_not_answer_is_named_while_the_job_waits_for_it(
    settings: Settings, source: HttpSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SILENCE", 0.2)
    monkeypatch.setattr(download_space, "REPORT_INTERVAL", 0.1)
    attempt = Recorder(enough=2)
    job = job_of(settings, rows(source, {"a": b"alpha"}))
    source.change("/a", delay=attempt.reported)

    downloaded(job, settings, attempt)

    second = attempt.reports[1]
    assert (second.file, second.host, second.bytes, second.bytes_per_second) == ("a", "127.0.0.1", 0, 0)
    assert humanize.progress(second).endswith("; now a from 127.0.0.1, which sends nothing")


def test_progress_is_reported_while_a_file_arrives(settings: Settings, source: HttpSource) -> None:
    attempt = Recorder()
    (row,) = rows(source, {"a": LARGE})
    source.put("/a", LARGE, hold=attempt.reported, hold_after=1_000_000)

    downloaded(job_of(settings, [row]), settings, attempt)

    assert 0 < attempt.reports[0].bytes <= 1_000_000
    assert attempt.reports[0].files == 0


def test_the_size_that_a_source_states_is_the_total_of_the_progress(
    settings: Settings, source: HttpSource
) -> None:
    attempt = Recorder()
    (row,) = rows(source, {"a": LARGE}, digests=False)
    source.put("/a", LARGE, hold=attempt.reported, hold_after=1_000_000)

    downloaded(job_of(settings, [row]), settings, attempt)

    assert attempt.reports[0].bytes_expected == len(LARGE)


def test_a_download_reports_at_most_once_a_second(settings: Settings, source: HttpSource) -> None:
    attempt = Recorder()

    downloaded(job_of(settings, rows(source, {str(number): b"x" for number in range(50)})), settings, attempt)

    assert len(attempt.reports) <= 3


def test_a_download_that_is_over_with_its_first_piece_reports_nothing(
    settings: Settings, source: HttpSource
) -> None:
    attempt = Recorder()

    downloaded(job_of(settings, rows(source, {"a": b"small"})), settings, attempt)

    assert attempt.reports == []


def test_the_size_of_the_whole_is_unknown_if_nobody_states_a_size(
    settings: Settings, source: HttpSource
) -> None:
    attempt = Recorder()
    listed = rows(source, {"a": LARGE}, digests=False)
    source.change("/a", framing="chunked")

    downloaded(job_of(settings, listed), settings, attempt)

    assert attempt.reports[0].bytes_expected is None
