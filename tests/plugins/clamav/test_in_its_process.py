"""The shipped checks in the process that a worker gives them: confined, with the settings of a profile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.checking import process
from pipeline.checking.process import Checker, Opening
from pipeline.checks import CheckedFile, CheckRule
from pipeline.outcome import Service, ServiceDown
from plugins.clamav.check import ClamavCheck
from plugins.clamav.samples import eicar, encrypted, nested
from plugins.pronom.check import PronomCheck
from tests.plugins.clamav.conftest import file
from tests.servers import clamd
from tests.support.checks import checks_of_this_process


@pytest.fixture
def checker(tmp_path: Path) -> Iterator[Checker]:
    own = Checker((tmp_path,))
    yield own
    own.close()


def findings(checker: Checker, opened: Opening, *files: CheckedFile) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    checker.run(
        opened, list(files), UNATTENDED, lambda _, item: found.append((item.verdict.value, item.code))
    )
    return found


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_viruses_are_found_by_a_confined_process(
    server: clamd.Server, checker: Checker, tmp_path: Path, kind: str
) -> None:
    opened = Opening.of(CheckRule(name="clamav", settings={"clamd": getattr(server, kind)}), ClamavCheck)
    contents = (b"text", eicar(), nested(), encrypted(), b"")

    found = findings(checker, opened, *(file(tmp_path, data, str(i)) for i, data in enumerate(contents)))

    assert found == [
        ("fine", ""),
        ("found", clamd.EICAR_NAME),
        ("unchecked", "too-large"),
        ("unchecked", "encrypted"),
        ("fine", ""),
    ]
    assert checker.version(opened, UNATTENDED).startswith("ClamAV 1.")


def test_without_clamd_the_service_is_down(checker: Checker, tmp_path: Path) -> None:
    opened = Opening.of(CheckRule(name="clamav", settings={"clamd": "unix:/nowhere/clamd.ctl"}), ClamavCheck)

    with pytest.raises(ServiceDown) as outage:
        findings(checker, opened, file(tmp_path, b"text"))

    assert outage.value.service is Service.CHECK


def test_formats_are_named_by_a_confined_process(checker: Checker, tmp_path: Path) -> None:
    opened = Opening.of(CheckRule(name="pronom"), PronomCheck)

    found = findings(checker, opened, file(tmp_path, b"text\n", "a.txt"), file(tmp_path, b"", "empty"))

    assert found == [("fine", "x-fmt/111"), ("unchecked", "empty")]
    assert checker.version(opened, UNATTENDED).startswith("siegfried 1.")


def test_go_in_the_process_of_pronom_has_one_processor(checker: Checker) -> None:
    """Go reads its environment when the process starts; the machine has any number of processors."""
    checker.version(Opening.of(CheckRule(name="pronom"), PronomCheck), UNATTENDED)

    (pid,) = checks_of_this_process()
    assert Path(f"/proc/{pid}/environ").read_bytes() == b"GOMAXPROCS=1\0"


def test_the_settings_of_a_check_are_read_again_after_a_minute(
    checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = CheckRule(name="clamav")
    monkeypatch.setenv("ARKLINE_CLAMD", "unix:/run/one.ctl")
    first = checker.opening(rule)
    monkeypatch.setenv("ARKLINE_CLAMD", "unix:/run/two.ctl")
    assert checker.opening(rule) is first
    assert checker.opening(CheckRule(name="clamav", settings={"clamd": "unix:/run/own.ctl"})) != first

    monkeypatch.setattr(process, "SETTINGS_SECONDS", 0.0)
    assert "/run/two.ctl" in checker.opening(rule).settings
