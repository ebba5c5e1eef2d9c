import errno
from pathlib import Path

import pytest

from pipeline.outcome import StepFailed
from pipeline.settings import Settings
from pipeline.states import FailureKind
from pipeline.working_storage.capacity import Usage, bytes_below, fits, full_is_transient, in_units, usage

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


def test_a_job_larger_than_the_whole_threshold_is_told_that_it_never_fits() -> None:
    reason = fits(81 * GB, 0, Usage(total=100 * GB, used=0), 80) or ""

    assert "never fit" in reason
    assert "ARKLINE_WORKING_THRESHOLD" in reason


def test_the_file_system_says_how_much_there_is(tmp_path: Path) -> None:
    space = usage(Settings(home=tmp_path / "new"))

    assert 0 < space.used < space.total


def test_a_capacity_counts_what_lies_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "working" / "jid1" / "producer").mkdir(parents=True)
    (tmp_path / "working" / "jid1" / "producer" / "a").write_bytes(b"x" * 700)
    (tmp_path / "working" / "b").write_bytes(b"x" * 50)

    assert usage(Settings(home=tmp_path, working_capacity=1000)) == Usage(total=1000, used=750)


def test_a_link_counts_as_itself_and_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_bytes(b"x" * 5000)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside")

    assert bytes_below(tmp_path / "inside") < 5000


def test_a_folder_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    assert bytes_below(tmp_path / "gone") == 0


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
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


def test_a_full_disk_is_a_transient_failure() -> None:
    with pytest.raises(StepFailed, match="working storage is full") as failure, full_is_transient("writing"):
        Path("/dev/full").write_bytes(b"x")

    assert failure.value.kind is FailureKind.TRANSIENT


def test_another_fault_of_the_disk_stays_what_it_is() -> None:
    with pytest.raises(OSError, match="denied"), full_is_transient("writing"):
        raise PermissionError(errno.EACCES, "denied")
