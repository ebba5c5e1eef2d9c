"""Checks in a process of their own: findings, and everything that a check may do instead."""

import hashlib
import importlib
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pipeline.attempt import UNATTENDED, CheckedAttempt
from pipeline.checking.process import Checker, Opening
from pipeline.checks import FINDINGS_OF_A_FILE, CheckedFile, CheckFinding, CheckVerdict
from pipeline.decoding import limits
from pipeline.outcome import AttemptOver, Service, ServiceDown
from tests.support import guests
from tests.support.checks import checks_of_this_process
from tests.support.guest_page import TEMPLATE
from tests.support.polling import eventually

WORD = Opening("word", guests.WordCheck)
CONFINED = pytest.mark.skipif(
    not (limits.restricts_files() and limits.restricts_calls()),
    reason="this kernel has no Landlock or seccomp",
)


@pytest.fixture
def checker(tmp_path: Path) -> Iterator[Checker]:
    own = Checker((tmp_path,))
    yield own
    own.close()


def deposited(folder: Path, texts: Mapping[str, str]) -> list[CheckedFile]:
    files = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        digest = hashlib.sha512(text.encode()).hexdigest()
        files.append(CheckedFile(name, path, len(text), digest))
    return files


def checked(
    checker: Checker, folder: Path, texts: Mapping[str, str], opening: Opening = WORD
) -> list[CheckFinding]:
    found: list[CheckFinding] = []
    checker.run(opening, deposited(folder, texts), UNATTENDED, lambda _, finding: found.append(finding))
    return found


def verdicts(findings: list[CheckFinding]) -> dict[str, tuple[str, str]]:
    return {finding.path: (finding.verdict.value, finding.code) for finding in findings}


def test_every_file_gets_its_finding(checker: Checker, tmp_path: Path) -> None:
    found = checked(checker, tmp_path, {"a.txt": "good", "b.txt": "a virus"})

    assert verdicts(found) == {"a.txt": ("fine", ""), "b.txt": ("found", "Test.Word")}
    assert checker.version(WORD, UNATTENDED) == "1.0"


def test_a_run_says_its_version_before_it_finds_anything(checker: Checker, tmp_path: Path) -> None:
    said: list[str] = []

    checker.run(
        Opening("word", guests.Learns),
        deposited(tmp_path, {"a.txt": "good", "b.txt": "good"}),
        UNATTENDED,
        lambda _, finding: said.append(finding.path),
        on_version=said.append,
    )

    assert said == ["not known", "signatures 2", "a.txt", "b.txt"]


def test_one_process_serves_many_requests(checker: Checker, tmp_path: Path) -> None:
    checked(checker, tmp_path, {"a.txt": "good"})
    first = checks_of_this_process()

    checked(checker, tmp_path, {"b.txt": "good"})

    assert checks_of_this_process() == first


def test_a_version_that_did_not_change_is_said_before_the_findings_of_a_later_run(
    checker: Checker, tmp_path: Path
) -> None:
    said: list[str] = []
    checked(checker, tmp_path, {"a.txt": "good"})

    checker.run(
        WORD,
        deposited(tmp_path, {"b.txt": "good"}),
        UNATTENDED,
        lambda _, finding: said.append(finding.path),
        on_version=said.append,
    )

    assert said == ["1.0", "b.txt"]


def test_a_process_that_dies_before_it_takes_a_file_of_a_later_run_costs_no_file(
    checker: Checker, tmp_path: Path
) -> None:
    dies = Opening("dies", guests.DiesOfItsVersion)
    checked(checker, tmp_path, {"before": "good"}, dies)

    found = checked(checker, tmp_path, {"a": "good", "b": "a virus"}, dies)

    assert verdicts(found) == {"a": ("fine", ""), "b": ("found", "Test.Word")}


@pytest.mark.parametrize(
    ("deed", "code"), [("hang", "timed-out"), ("stall", "timed-out"), ("crash", "crashed")]
)
def test_a_check_that_fails_at_the_first_file_of_a_later_run_checks_the_others(
    checker: Checker, tmp_path: Path, deed: str, code: str
) -> None:
    checked(checker, tmp_path, {"before": "good"})
    began = time.monotonic()

    found = checked(checker, tmp_path, {"a": f"{deed}: now", "b": "a virus", "c": "good"})

    assert verdicts(found) == {"a": ("unchecked", code), "b": ("found", "Test.Word"), "c": ("fine", "")}
    assert time.monotonic() - began < guests.WordCheck.access.start_seconds


@pytest.mark.parametrize(
    ("deed", "code"),
    [
        ("hang", "timed-out"),
        ("crash", "crashed"),
        ("fail", "crashed"),
        ("exit", "crashed"),
        ("forge", "invalid-answer"),
        ("eat", "out-of-memory"),
        ("lie", "invalid-answer"),
        ("say nothing", "no-answer"),
    ],
)
def test_a_check_that_fails_at_a_file_checks_the_others(
    checker: Checker, tmp_path: Path, deed: str, code: str
) -> None:
    found = checked(checker, tmp_path, {"a": "good", "b": f"{deed}: now", "c": "a virus", "d": "good"})

    assert verdicts(found) == {
        "a": ("fine", ""),
        "b": ("unchecked", code),
        "c": ("found", "Test.Word"),
        "d": ("fine", ""),
    }


@pytest.mark.parametrize(("deed", "code"), [("crash", "crashed"), ("stall", "timed-out")])
def test_a_check_that_fails_at_its_first_file_checks_the_second_one(
    checker: Checker, tmp_path: Path, deed: str, code: str
) -> None:
    """... within the time of a file, not that of a start."""
    began = time.monotonic()

    found = checked(checker, tmp_path, {"a": f"{deed}: now", "b": "good"})

    assert verdicts(found) == {"a": ("unchecked", code), "b": ("fine", "")}
    assert time.monotonic() - began < guests.WordCheck.access.start_seconds


def test_a_check_that_fails_before_its_first_file_says_of_each_why_it_is_not_checked(
    checker: Checker, tmp_path: Path
) -> None:
    texts = {f"{number}": "good" for number in range(8)}

    found = checked(checker, tmp_path, texts, Opening("word", guests.NeverBegins))

    assert verdicts(found) == dict.fromkeys(texts, ("unchecked", "crashed"))
    assert {finding.message for finding in found} == {"NameError: name 'scaner' is not defined"}


@pytest.mark.parametrize(
    ("text", "last"),
    [("list: parts", ("found", "Test.Part")), ("list: parts, and fail", ("unchecked", "crashed"))],
)
def test_of_very_many_findings_of_a_file_the_bad_one_is_kept(
    checker: Checker, tmp_path: Path, text: str, last: tuple[str, str]
) -> None:
    found = checked(checker, tmp_path, {"a": text, "b": "good"})

    assert verdicts(found) == {"a": last, "b": ("fine", "")}
    assert len(found) <= FINDINGS_OF_A_FILE + 1
    assert [finding.code for finding in found if "which are not kept" in finding.message] == ["part-17"]


def test_what_a_check_prints_is_no_answer(checker: Checker, tmp_path: Path) -> None:
    found = checked(checker, tmp_path, {"a": "print: something", "b": "a virus"})

    assert verdicts(found) == {"a": ("fine", ""), "b": ("found", "Test.Word")}


def test_a_check_whose_process_dies_again_and_again_ends_with_every_file_unchecked(
    checker: Checker, tmp_path: Path
) -> None:
    found = checked(checker, tmp_path, {f"{number}": "crash: now" for number in range(8)})

    assert [finding.code for finding in found] == ["crashed"] * 8
    assert "died 5 times" in found[-1].message


def test_a_service_that_does_not_answer_is_an_outage_of_the_check(checker: Checker, tmp_path: Path) -> None:
    with pytest.raises(ServiceDown, match="check word does not answer: the service has gone") as down:
        checked(checker, tmp_path, {"a": "good", "b": "leave: now"})

    assert (down.value.service, down.value.instance, down.value.of_host) == (Service.CHECK, "word", False)
    assert verdicts(checked(checker, tmp_path, {"a": "good"})) == {"a": ("fine", "")}


def test_a_check_that_does_not_start_is_an_outage_of_its_host(checker: Checker, tmp_path: Path) -> None:
    with pytest.raises(ServiceDown, match="does not start on this host: ImportError: libscanner") as down:
        checked(checker, tmp_path, {"a": "good"}, Opening("word", guests.NoStart))

    assert down.value.of_host


def test_a_check_may_be_in_a_package_without_an_init_file(
    checker: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unmarked").mkdir()
    shutil.copy(TEMPLATE / "archive_guest" / "private_keys.py", tmp_path / "unmarked")
    monkeypatch.syspath_prepend(tmp_path)
    own = Opening("keys", importlib.import_module("unmarked.private_keys").PrivateKeyCheck)

    assert verdicts(checked(checker, tmp_path, {"a": "no key"}, own)) == {"a": ("fine", "")}


def test_an_attempt_that_is_over_ends_the_check(checker: Checker, tmp_path: Path) -> None:
    over = threading.Event()

    def check() -> None:
        if over.is_set():
            raise AttemptOver("an operator failed the job")

    def on_finding(file: CheckedFile, _finding: CheckFinding) -> None:
        over.set()

    attempt = CheckedAttempt(check, lambda _: None, lambda: False)
    with pytest.raises(AttemptOver):
        checker.run(WORD, deposited(tmp_path, {"a": "good", "b": "hang: now"}), attempt, on_finding)
    eventually(lambda: not checks_of_this_process())


@CONFINED
def test_a_hostile_check_can_change_nothing_and_reach_nobody(checker: Checker, tmp_path: Path) -> None:
    found = checked(checker, tmp_path, {"a.txt": "attack: now"})

    assert {finding.code for finding in found if finding.verdict is CheckVerdict.FOUND} == set()
    refused = {finding.code for finding in found}
    assert refused >= {"change-file", "remove-file", "make-file", "read-secrets"}
    assert refused >= {"socket", "program", "fork", "signal", "trace"}
    assert (tmp_path / "a.txt").read_text() == "attack: now"
