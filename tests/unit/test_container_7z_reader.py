"""The process that reads 7z archives: what becomes of an unpacking when that stops, crashes or errs."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.formats import container_7z
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.states import FailureKind
from tests.packing import LIMITS
from tests.packing_7z import packed


def read_by(
    folder: Path, program: str, alive: Callable[[], None] = lambda: None, silence: float = 60
) -> list[str]:
    """The entries that another reader's program tells."""
    (folder / "a.7z").write_bytes(packed({"a": b"1"}))
    command = (sys.executable, "-c", program)
    with container_7z.entries(folder / "a.7z", "a.7z", LIMITS.entries, alive, command, silence) as found:
        return [entry.name for entry in found]


def test_without_py7zr_the_operator_and_the_depositor_are_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "a.7z").write_bytes(packed({"a": b"1"}))
    without_packages = (sys.executable, "-S", *container_7z.READER[1:])
    with (
        pytest.raises(StepFailed) as caught,
        container_7z.entries(tmp_path / "a.7z", "a.7z", 10, lambda: None, without_packages) as found,
    ):
        list(found)

    assert caught.value.kind is FailureKind.SYSTEM
    assert "pip install 'arkline[sevenzip]'" in caught.value.message
    assert "submit it as .zip or .tar.gz" in caught.value.message


def test_a_reader_that_was_stopped_is_a_passing_fault(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="ended by signal 15") as caught:
        read_by(tmp_path, "import os; os.kill(os.getpid(), 15)")
    assert caught.value.kind is FailureKind.TRANSIENT


def test_a_reader_that_crashed_met_a_damaged_archive(tmp_path: Path) -> None:
    with pytest.raises(container_7z.Damaged, match="its reader ended with code -11"):
        read_by(tmp_path, "import os; os.kill(os.getpid(), 11)")


def test_a_reader_is_not_told_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARKLINE_SMTP_PASSWORD", "secret")
    program = "import os, sys; sys.exit(str([name for name in os.environ if name.startswith('ARKLINE_')]))"
    with pytest.raises(container_7z.Damaged, match=r"^\[\]$"):
        read_by(tmp_path, program)


def test_a_reader_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="nothing came out of container") as caught:
        read_by(tmp_path, "import time; time.sleep(60)", silence=0.1)
    assert caught.value.kind is FailureKind.TRANSIENT


def test_an_attempt_that_is_over_does_not_wait_for_the_reader(tmp_path: Path) -> None:
    def over() -> None:
        raise AttemptOver

    program = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(__import__('os').getpid())); input(); input()"
    with pytest.raises(AttemptOver):
        read_by(tmp_path, program, over, silence=0.1)
    if (tmp_path / "pid").exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("program", ["print('x' * (4 << 20))", "print('0\\nmore')"])
def test_a_reader_that_makes_no_sense_is_not_believed(program: str, tmp_path: Path) -> None:
    with pytest.raises(container_7z.Damaged, match="makes no sense"):
        read_by(tmp_path, program)


def test_more_than_the_directory_lists_is_not_dropped(tmp_path: Path) -> None:
    with pytest.raises(container_7z.Damaged, match="more than its directory lists"):
        read_by(tmp_path, "print(0); input(); print('more')")
