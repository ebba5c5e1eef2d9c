"""Writers of a bucket that die or stop before any of their changes, and answers that are lost."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.outcome import Later, StepFailed
from pipeline.records import SubmissionMode
from pipeline.storage.ocfl.objects import OBJECT_DECLARATION
from plugins.s3.storage import S3Storage
from tests.servers.s3 import S3Fixture, Server
from tests.support.ocfl_fixture import ARK, assert_valid, memory

FILES = {"producer/a.txt": "two"}
MOST_CHANGES = 20


class Died(BaseException):
    """The process ended: nothing that would be done afterwards is done."""


@pytest.fixture
def depot(s3_server: Server, tmp_path: Path) -> Iterator[S3Fixture]:
    """A storage root that is there, with nothing in it."""
    with memory(tmp_path) as folder:
        found = S3Fixture(s3_server.settings(), s3_server.client, folder)
        found.storage.root.open()
        yield found


def one_version(depot: S3Fixture, ark: str = ARK) -> None:
    depot.store("jid1", {"producer/a.txt": "one"}, ark=ark)


def dying(depot: S3Fixture, change: int) -> S3Storage:
    """The storage of a process that dies before one of its changes; a dead process makes no other."""
    dead = threading.Event()

    def before(number: int) -> None:
        if number == change:
            dead.set()
        if dead.is_set():
            raise Died

    storage = depot.opened(before)
    storage.root.is_open = True
    return storage


def another_job_stores(depot: S3Fixture, ark: str) -> None:
    depot.store("jid3", {"producer/a.txt": "three"}, SubmissionMode.UPDATE, ark=ark)


def another_job_stores_and_then_this(depot: S3Fixture, ark: str) -> None:
    another_job_stores(depot, ark)
    depot.store("jid2", FILES, ark=ark)


def another_job_dies_before_its_version_is_there(depot: S3Fixture, ark: str) -> None:
    with pytest.raises(Died):
        dying(depot, 2).store(depot.request("jid3", {"producer/a.txt": "three"}, ark=ark), lambda: None)
    assert depot.storage.version_of(ark, "jid3") is None


def woken_up_at(depot: S3Fixture, change: int, ark: str, meanwhile: Callable[[S3Fixture, str], None]) -> bool:
    """Stop a writer before one of its changes, let it go on after others; False if it made fewer."""
    stopped = threading.Event()

    def before(number: int) -> None:
        if number == change:
            stopped.set()
            meanwhile(depot, ark)

    zombie = depot.opened(before)
    zombie.root.is_open = True
    with suppress(StepFailed, Later):
        zombie.store(depot.request("jid2", FILES, ark=ark), lambda: None)
    return stopped.is_set()


def each_death(depot: S3Fixture, prepare: Callable[[str], None]) -> Iterator[str]:
    """An object for each change that storing jid2 makes, whose writer died before that change."""
    for change in range(1, MOST_CHANGES):
        ark = f"ark:/99999/dies-{change}"
        prepare(ark)
        try:
            dying(depot, change).store(depot.request("jid2", FILES, ark=ark), lambda: None)
        except Died:
            yield ark
        else:
            assert change > 4
            return


@pytest.mark.parametrize("before", [[], ["jid1"]])
def test_a_writer_that_dies_before_any_change_is_made_good_by_the_next(
    depot: S3Fixture, before: list[str]
) -> None:
    def prepare(ark: str) -> None:
        if before:
            one_version(depot, ark)

    objects = 0
    for objects, ark in enumerate(each_death(depot, prepare), 1):
        there = depot.storage.version_of(ark, "jid2")
        assert before or f"{depot.storage.object(ark).key(OBJECT_DECLARATION[0])}" not in depot.listed()
        another_job_is_next = objects % 2 == 0
        if another_job_is_next:
            depot.store("jid3", {"producer/a.txt": "three"}, SubmissionMode.UPDATE, ark=ark)
        stored = depot.store("jid2", FILES, ark=ark)

        made = ["jid2", "jid3"] if there else ["jid3", "jid2"]
        assert depot.jobs(ark) == [*before, *(made if another_job_is_next else ["jid2"])]
        assert there in (None, stored)
    assert_valid(depot, objects + 1)


@pytest.mark.parametrize(
    ("before", "meanwhile", "changes"),
    [
        (["jid1"], another_job_stores, 5),
        ([], another_job_stores_and_then_this, 6),
        (["jid1"], another_job_dies_before_its_version_is_there, 2),
    ],
)
def test_a_stopped_writer_that_wakes_up_late_harms_no_version(
    depot: S3Fixture, before: list[str], meanwhile: Callable[[S3Fixture, str], None], changes: int
) -> None:
    """Not even one that no question would stop any more: it had asked before it was stopped."""
    for change in range(1, changes + 1):
        ark = f"ark:/99999/wakes-{change}"
        if before:
            one_version(depot, ark)
        assert woken_up_at(depot, change, ark, meanwhile)

        depot.store("jid3", {"producer/a.txt": "three"}, ark=ark)
        assert sorted(map(str, depot.jobs(ark))) in ([*before, "jid2", "jid3"], [*before, "jid3"])
    assert_valid(depot, changes)
