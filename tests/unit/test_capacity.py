import errno
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from pipeline.outcome import Later, WaitKind
from pipeline.settings import Settings
from pipeline.working_storage.capacity import (
    Occupancy,
    Usage,
    fits,
    full_waits,
    in_units,
    measure_again,
    never_fits,
    occupancy,
    occupancy_now,
    usage,
    usage_now,
)

GB = 10**9
HUNDRED = Usage(total=100 * GB, used=50 * GB)


@pytest.mark.parametrize(("need", "promised"), [(30 * GB, 0), (10 * GB, 20 * GB), (0, 30 * GB), (0, 0)])
def test_what_stays_within_the_threshold_fits(need: int, promised: int) -> None:
    assert fits(need, promised, HUNDRED, 80) is None


@pytest.mark.parametrize(("need", "promised"), [(31 * GB, 0), (11 * GB, 20 * GB)])
def test_what_would_pass_the_threshold_waits(need: int, promised: int) -> None:
    assert fits(need, promised, HUNDRED, 80) is not None


def test_the_reason_to_wait_has_numbers_for_people() -> None:
    reason = fits(25 * GB, 10 * GB, HUNDRED, 80)

    assert reason == (
        "needs 25.0 GB, but 20.0 GB are free: 50.0 GB used and 10.0 GB reserved of the 80.0 GB "
        "(80 % of working storage) available"
    )


def test_a_job_of_unknown_size_waits_while_usage_is_over_the_threshold() -> None:
    assert "size is not known" in (fits(0, 0, Usage(total=100 * GB, used=81 * GB), 80) or "")


def test_a_job_larger_than_the_whole_threshold_never_fits(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, working_capacity=1000, working_threshold=80)

    assert never_fits(800, settings) is None
    assert "ARKLINE_WORKING_THRESHOLD" in (never_fits(801, settings) or "")


def test_what_is_reserved_for_a_job_is_not_counted_against_that_job() -> None:
    occupied = Occupancy(total=100, used=50, on_disk={"jid1": 4, "jid3": 9})
    reserved = {"jid1": 10, "jid2": 5, "jid3": 9}

    assert occupied.outstanding(reserved) == {"jid1": 6, "jid2": 5}
    assert occupied.outstanding(reserved, except_for="jid1") == {"jid2": 5}


def test_the_threshold_is_a_share_of_all_of_working_storage() -> None:
    assert Occupancy(total=250, used=100).limit(80) == 200


def test_the_file_system_says_how_much_there_is(tmp_path: Path) -> None:
    space = usage(Settings(home=tmp_path, working_storage=tmp_path))

    assert 0 < space.used < space.total


def test_a_capacity_counts_what_lies_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "working" / "jid1" / "producer").mkdir(parents=True)
    (tmp_path / "working" / "jid1" / "producer" / "a").write_bytes(b"x" * 700)
    (tmp_path / "working" / "b").write_bytes(b"x" * 50)

    assert usage(Settings(home=tmp_path, working_capacity=1000)) == Usage(total=1000, used=750)


def test_a_link_counts_as_itself_and_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_bytes(b"x" * 5000)
    (tmp_path / "working").mkdir()
    (tmp_path / "working" / "link").symlink_to(tmp_path / "outside")

    assert usage(Settings(home=tmp_path, working_capacity=1)).used < 5000


def test_a_folder_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    assert usage(Settings(home=tmp_path / "gone", working_capacity=1)).used == 0


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_999, "1.0 MB"),
        (1_500_000_000, "1.5 GB"),
        (123_456_789, "123 MB"),
        (10**19, "10000 PB"),
    ],
)
def test_bytes_are_told_in_units(count: int, text: str) -> None:
    assert in_units(count) == text


def test_a_full_disk_is_waited_for() -> None:
    with pytest.raises(Later, match="working storage is full") as failure, full_waits("writing"):
        Path("/dev/full").write_bytes(b"x")

    assert failure.value.kind is WaitKind.SPACE


def test_another_fault_of_the_disk_stays_what_it_is() -> None:
    with pytest.raises(OSError, match="denied"), full_waits("writing"):
        raise PermissionError(errno.EACCES, "denied")


_WATCHED: dict[str, Callable[[], None]] = {}
"""Folder -> what is called before it is listed."""


@cache
def _watch() -> None:
    """A hook stays until the process ends."""
    sys.addaudithook(_before_listing)


def _before_listing(event: str, arguments: tuple[object, ...]) -> None:
    if event == "os.scandir" and (watched := _WATCHED.get(str(arguments[0]))):
        watched()


def test_nobody_waits_for_the_first_measurement_and_what_is_not_known_is_absent(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, working=tmp_path / "working", working_capacity=10**9)
    settings.working.mkdir()
    began, end = threading.Event(), threading.Event()

    def listed() -> None:
        began.set()
        assert end.wait(30)

    _watch()
    _WATCHED[str(settings.working)] = listed
    try:
        with ThreadPoolExecutor(1) as threads:
            measuring = threads.submit(occupancy_now, settings)
            assert began.wait(30)
            assert (occupancy_now(settings), usage_now(settings)) == (None, None)
            end.set()
            assert measuring.result() is not None
    finally:
        del _WATCHED[str(settings.working)]


def test_one_thread_measures_while_others_have_the_last_measurement(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, working=tmp_path / "working", working_capacity=10**9)
    settings.working.mkdir()
    began, end, listings = threading.Event(), threading.Event(), []

    def listed() -> None:
        listings.append(threading.current_thread().name)
        began.set()
        assert end.wait(30)

    _watch()
    first = occupancy(settings)
    measure_again()
    _WATCHED[str(settings.working)] = listed
    try:
        with ThreadPoolExecutor(1) as threads:
            measuring = threads.submit(occupancy, settings)
            assert began.wait(30)
            assert all(occupancy(settings) is first for _ in range(50))
            end.set()
            assert measuring.result() is not first
    finally:
        del _WATCHED[str(settings.working)]

    assert len(listings) == 1
