import threading
from typing import Any

import pytest

from pipeline.attempt import Attempt, CheckedAttempt
from pipeline.manifests.checkm import ManifestProfile, Row, write
from pipeline.outcome import AttemptOver, Done, RateLimited
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.states import JobState
from pipeline.steps import estimate
from pipeline.working_storage.workspace import Workspace
from tests.servers.http_source import HttpSource
from tests.support.step_context import UNUSED, services, working_job


def job_of_file(settings: Settings, url: str, priority: int = 5, **facts: Any) -> Job:
    kind = facts.pop("payload_type", PayloadType.FILE)
    job = working_job(settings, JobState.ESTIMATING, kind, url, **facts)
    return job.model_copy(update={"priority": priority})


def job_of_manifest(settings: Settings, *rows: tuple[str, int | None]) -> Job:
    """A job whose kept manifest has these URLs and sizes."""
    job = job_of_file(settings, "http://example.org/m.checkm", payload_type=PayloadType.OBJECT_MANIFEST)
    listed = [Row(line=0, url=url, name=f"{at}.bin", size=size) for at, (url, size) in enumerate(rows)]
    workspace = Workspace.of(job, settings.working)
    workspace.publish(workspace.manifest, write(ManifestProfile.OBJECT, listed))
    return job


def estimated(job: Job, settings: Settings, fetcher: Any = None) -> Done:
    outcome = estimate.work(job, services(settings, fetcher=fetcher))
    assert isinstance(outcome, Done)
    return outcome


def test_a_file_needs_what_its_source_says(settings: Settings, source: HttpSource) -> None:
    outcome = estimated(job_of_file(settings, source.put("/a", b"x" * 1500)), settings)

    assert outcome == Done(space_needed=1500, message="about 1.5 kB")


def test_a_declared_size_is_taken_without_asking(settings: Settings) -> None:
    job = job_of_file(settings, "http://example.org/a", size=700)

    assert estimated(job, settings, UNUSED).space_needed == 700


def test_a_container_needs_room_for_itself_and_for_what_is_in_it(settings: Settings) -> None:
    job = job_of_file(settings, "http://example.org/a.zip", payload_type=PayloadType.CONTAINER, size=700)

    assert estimated(job, settings, UNUSED).space_needed == 1400


def test_a_manifest_needs_the_sum_of_its_sizes_told_or_declared(
    settings: Settings, source: HttpSource
) -> None:
    job = job_of_manifest(
        settings, (source.put("/a", b"x" * 100), None), ("http://example.org/b", 10), (source.url("/c"), 1)
    )

    assert estimated(job, settings).space_needed == 111
    assert source.count() == 1


def test_sizes_are_asked_at_the_same_time(settings: Settings, source: HttpSource) -> None:
    asking = threading.Barrier(settings.download_threads, timeout=30)

    class Together:
        def size(self, url: str, attempt: Attempt) -> int:
            asking.wait()
            return 1

    rows = [(f"http://example.org/{number}", None) for number in range(2 * settings.download_threads)]

    assert estimated(job_of_manifest(settings, *rows), settings, Together()).space_needed == len(rows)


def test_an_unknown_size_counts_nothing_and_is_told(settings: Settings, source: HttpSource) -> None:
    job = job_of_manifest(
        settings, (source.put("/a", b"x", framing="chunked", ranges=False), None), (source.url("/b"), 9)
    )

    outcome = estimated(job, settings)

    assert outcome == Done(space_needed=9, message="about 9 bytes; the size of 1 of 2 files is unknown")


@pytest.mark.parametrize(("priority", "later"), [(5, 15), (0, 10), (95, 99), (99, 99)])
def test_a_job_of_quite_unknown_size_lets_others_go_first(
    settings: Settings, source: HttpSource, priority: int, later: int
) -> None:
    job = job_of_file(settings, source.url("/missing"), priority)

    outcome = estimated(job, settings)

    assert (outcome.space_needed, outcome.priority) == (0, later)
    assert "size unknown" in outcome.message


def test_a_very_large_job_lets_others_go_first(settings: Settings) -> None:
    job = job_of_file(settings, "http://example.org/a", size=(10 << 30) + 1)

    assert estimated(job, settings, UNUSED).priority == 15


def test_doing_it_twice_gives_the_same_priority(settings: Settings, source: HttpSource) -> None:
    job = job_of_file(settings, source.url("/missing"))

    assert estimated(job, settings) == estimated(job, settings)


def test_a_job_whose_manifest_is_gone_is_of_unknown_size(settings: Settings) -> None:
    job = job_of_file(settings, "http://example.org/m", payload_type=PayloadType.OBJECT_MANIFEST)

    outcome = estimated(job, settings, UNUSED)

    assert (outcome.space_needed, outcome.priority) == (0, 15)


def test_an_empty_file_is_of_known_size(settings: Settings) -> None:
    job = job_of_file(settings, "http://example.org/a", size=0)

    assert estimated(job, settings, UNUSED) == Done(space_needed=0, message="about 0 bytes")


class Turns:
    """A source's sizes, for whose host there are so many turns."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def size(self, url: str, attempt: Attempt) -> int:
        if not self.turns:
            raise RateLimited("all 4 connections to example.org are in use", 5)
        self.turns -= 1
        return 100


def test_a_job_waits_for_its_turn_before_the_first_question(settings: Settings) -> None:
    job = job_of_manifest(settings, ("http://example.org/a", None), ("http://example.org/b", None))

    with pytest.raises(RateLimited, match=r"connections to example\.org"):
        estimated(job, settings, Turns(0))


def test_a_job_that_has_asked_something_does_not_begin_anew(settings: Settings) -> None:
    settings = settings.model_copy(update={"download_threads": 1})
    job = job_of_manifest(settings, *((f"http://example.org/{number}", None) for number in range(4)))

    outcome = estimated(job, settings, Turns(3))

    assert outcome == Done(space_needed=300, message="about 300 bytes; the size of 1 of 4 files is unknown")


def test_an_attempt_that_is_over_asks_no_further(settings: Settings) -> None:
    over = threading.Event()
    asked = []

    class EndsTheAttempt:
        def size(self, url: str, attempt: Attempt) -> int:
            asked.append(url)
            over.set()
            return 1

    def check() -> None:
        if over.is_set():
            raise AttemptOver("the lock is lost")

    job = job_of_manifest(settings, *((f"http://example.org/{number}", None) for number in range(1000)))
    fetcher: Any = EndsTheAttempt()
    with pytest.raises(AttemptOver):
        estimate.work(job, services(settings, fetcher=fetcher, attempt=CheckedAttempt(check)))

    assert len(asked) <= settings.download_threads
