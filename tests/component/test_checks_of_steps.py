"""The checks of a profile in the steps of a job: what stops it, what is remarked, what is recorded."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline import plugins
from pipeline.attempt import CheckedAttempt
from pipeline.checking import journal, running
from pipeline.checking.process import Checker
from pipeline.checks import FINDING, CheckedFile, CheckRule, Stage
from pipeline.outcome import AttemptOver, Done, Service, ServiceDown, StepFailed
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.records import HistoryEntry, Job
from pipeline.states import Event, FailureKind, JobState
from pipeline.steps import notify, process, record
from pipeline.steps.context import StepContext
from pipeline.working_storage import mount
from pipeline.working_storage.workspace import Workspace
from tests.support import guests
from tests.support.checks import installed
from tests.support.records import AT
from tests.support.repository import Repository
from tests.support.step_context import collection


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = {"word": guests.WordCheck, "away": guests.Away, "learns": guests.Learns}
    with installed(tmp_path / "site", monkeypatch, **site):
        yield


@pytest.fixture
def context(repository: Repository) -> Iterator[StepContext]:
    own = repository.services()
    yield own
    own.checker.close()


def asks(repository: Repository, *checks: Any) -> None:
    profile = repository.services().profile
    collection(repository.settings, **profile.model_dump(mode="json", exclude_none=True) | {"checks": checks})


def carried(job: Job, repository: Repository, context: StepContext) -> Done:
    """The job after processing and recording; the end of recording."""
    process.work(job, context)
    return record.work(job.model_copy(update={"identifiers": repository.identifiers(job)}), context)


def stopped(job: Job, context: StepContext) -> str:
    with pytest.raises(StepFailed) as failed:
        process.work(job, context)
    assert failed.value.kind is FailureKind.CONTENT
    return failed.value.message


def overruled(job: Job, finding: str) -> Job:
    entry = HistoryEntry(
        state=JobState.PROCESSING,
        event=Event.RESUME,
        at=AT,
        by="olga",
        message="resume by olga: a test file",
        overruled=finding,
    )
    return job.model_copy(update={"history": (*job.history, entry)})


def test_a_finding_stops_the_job_before_anything_is_stored(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, "word")
    job = repository.job(1, {"a.txt": "good", "b.txt": "a virus"})

    message = stopped(job, context)

    assert message.startswith("the check word found something in 1 file: 'b.txt' (it has the word) (finding ")
    assert not list(repository.settings.storage.rglob("0=ocfl_object*"))


def test_findings_are_in_the_inventory_and_in_the_stored_premis(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, {"name": "word", "found": "note"})
    job = repository.job(1, {"a.txt": "good", "b.txt": "a virus"})

    done = carried(job, repository, context)

    ark = repository.identifiers(job).primary_id or ""
    (run,) = repository.described(ark).versions[0].checks
    assert (run.check, run.version, run.fine, run.found, run.unchecked) == ("word", "1.0", 1, 1, 0)
    assert done.remark is None
    (premis,) = repository.settings.storage.rglob("mrt-premis.xml")
    assert "virus check" in premis.read_text()


def test_the_version_that_is_recorded_is_the_one_that_checked_the_files(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, "learns")
    job = repository.job(1, {"a.txt": "good"})

    carried(job, repository, context)

    (run,) = repository.described(repository.identifiers(job).primary_id or "").versions[0].checks
    assert (run.version, run.fine) == ("signatures 2", 1)


def test_an_operator_overrules_one_finding_and_no_other(repository: Repository, context: StepContext) -> None:
    asks(repository, "word")
    job = repository.job(1, {"a.txt": "a virus"})
    (finding,) = FINDING.findall(stopped(job, context))

    other = overruled(job, "0" * 16)
    assert FINDING.findall(stopped(other, context)) == [finding]
    done = process.work(overruled(job, finding), context)
    carried(overruled(job, finding), repository, context)

    assert "a person of the repository decided to keep it" in (done.remark or "")
    ark = repository.identifiers(job).primary_id or ""
    (run,) = repository.described(ark).versions[0].checks
    assert run.overruled is not None
    assert (run.overruled.by, run.overruled.reason) == ("olga", "a test file")


def test_a_decision_about_other_bytes_of_the_same_name_does_not_count(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, "word")
    (finding,) = FINDING.findall(stopped(repository.job(1, {"a.txt": "a virus"}), context))

    again = overruled(repository.job(2, {"a.txt": "another virus"}), finding)

    assert FINDING.findall(stopped(again, context)) != [finding]


def test_a_file_that_cannot_be_checked_is_a_remark_and_is_stored(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, "word")
    job = repository.job(1, {"a.txt": "fail: now", "b.txt": "good"})

    done = process.work(job, context)

    assert done.remark == "the check word did not check 1 file: 'a.txt' (RuntimeError: the check has a bug)"


def test_a_profile_may_stop_a_job_for_a_file_that_is_not_checked(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, {"name": "word", "unchecked": "stop"})

    message = stopped(repository.job(1, {"a.txt": "fail: now"}), context)

    assert "did not check 1 file: 'a.txt'" in message


def test_a_check_that_is_not_installed_is_an_outage_of_the_host(
    repository: Repository, context: StepContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks(repository, "word")
    job, profile = repository.job(1), context.profile
    monkeypatch.undo()
    plugins._points.cache_clear()

    with pytest.raises(ServiceDown, match="word is not installed on this host") as down:
        process.work(job, replace(context, profile_of=lambda: profile))

    assert (down.value.service, down.value.instance, down.value.of_host) == (Service.CHECK, "word", True)


BROKEN = {
    "no-module": "the check no-module cannot be loaded: NameError: name 'scanner' is not defined",
    "no-check": "no-check is no check: its class declares no access and no settings",
    "settings": "the settings of the check settings cannot be read: NameError: name 'words' is not",
}


@pytest.fixture
def _broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "broken_check.py").write_text("scanner.load()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = type("Check", (), {"__module__": "broken_check"})
    broken = {"no-module": module, "no-check": guests.NoCheck, "settings": guests.BrokenSettings}
    with installed(tmp_path / "broken", monkeypatch, **broken):
        yield


@pytest.mark.usefixtures("_broken")
@pytest.mark.parametrize(("name", "message"), BROKEN.items())
def test_a_check_with_a_mistake_is_an_outage_of_the_host_and_its_profile_is_refused(
    repository: Repository, context: StepContext, name: str, message: str
) -> None:
    profile = context.profile.model_copy(update={"checks": (CheckRule(name=name),)})

    with pytest.raises(ServiceDown, match=message) as down:
        process.work(repository.job(1), replace(context, profile_of=lambda: profile))
    assert (down.value.service, down.value.instance, down.value.of_host) == (Service.CHECK, name, True)
    asks(repository, name)
    with pytest.raises(ProfileError, match=message):
        Profiles(repository.settings.profiles).get("demo")


class Removing(Checker):
    """Removes a job's files once it has checked them."""

    gone: Path

    def run(self, *arguments: Any, **options: Any) -> None:
        super().run(*arguments, **options)
        shutil.rmtree(self.gone, ignore_errors=True)


def removing(job: Job, repository: Repository) -> Removing:
    own = Removing((repository.settings.working,))
    own.gone = Workspace.of(job, repository.settings.working).folder
    return own


def test_a_working_directory_that_vanishes_during_a_check_is_downloaded_again(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, "word")
    job = repository.job(1, {"a.txt": "good"})

    with closing(removing(job, repository)) as checker:
        done = process.work(job, replace(context, checker=checker))

    assert done.event is Event.DOWNLOAD_AGAIN
    assert not list(repository.settings.storage.rglob("0=ocfl_object*"))


def test_a_file_that_vanishes_during_its_check_is_downloaded_again_and_not_called_unchecked(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, {"name": "word", "unchecked": "stop"})
    job = repository.job(1, {"a.txt": "good", "b.txt": "hang: now"})
    workspace = Workspace.of(job, repository.settings.working)

    def check() -> None:
        (workspace.producer / "b.txt").unlink(missing_ok=True)

    done = process.work(job, replace(context, attempt=CheckedAttempt(check)))

    assert done.event is Event.DOWNLOAD_AGAIN
    assert not any("b.txt" in path.read_text() for path in workspace.folder.glob("checks.*"))


def test_stored_files_that_vanish_during_a_check_are_read_from_storage_by_the_next_try(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, {"name": "word", "after": "stored"})
    job = repository.job(1, {"a.txt": "a virus"})
    process.work(job, context)
    job = job.model_copy(update={"identifiers": repository.identifiers(job)})

    with (
        closing(removing(job, repository)) as checker,
        pytest.raises(StepFailed, match="is missing") as failed,
        mount.losses(repository.settings),
    ):
        record.work(job, replace(context, checker=checker))

    assert failed.value.kind is FailureKind.TRANSIENT
    assert "found something in 1 file: 'a.txt'" in (record.work(job, context).remark or "")


def test_an_unknown_check_is_refused_when_the_profile_is_read(repository: Repository) -> None:
    asks(repository, "wrod")

    with pytest.raises(ProfileError, match=r"no check is called wrod; installed on this host: .*word"):
        Profiles(repository.settings.profiles).get("demo")


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (
            {"name": "word", "after": "stored", "found": "stop"},
            "only a check after: downloaded can stop a job",
        ),
        (
            {"name": "word", "settings": {"wrod": "x"}},
            "the check word has no setting wrod; its settings: away, word",
        ),
        ({"name": "own", "command": ["scan"]}, "write the whole path of scan"),
        ({"name": "word", "foud": "note"}, "checks"),
    ],
)
def test_a_wrong_rule_is_refused_when_the_profile_is_read(
    repository: Repository, rule: dict[str, Any], says: str
) -> None:
    asks(repository, rule)

    with pytest.raises(ProfileError, match=says):
        Profiles(repository.settings.profiles).get("demo")


def test_checks_after_storing_and_after_recording_are_recorded_and_stop_nothing(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, {"name": "word", "after": "stored"}, {"name": "away", "after": "recorded"})
    job = repository.job(1, {"a.txt": "a virus"})

    done = carried(job, repository, context)
    job = job.model_copy(update={"identifiers": repository.identifiers(job)})
    notify.work(job, context)
    notify.work(job, context)

    assert "the check word found something in 1 file: 'a.txt'" in (done.remark or "")
    checks = repository.described(job.identifiers.primary_id or "").versions[0].checks
    assert [(run.check, run.stage.value, run.found) for run in checks] == [
        ("word", "stored", 1),
        ("away", "recorded", 1),
    ]
    assert [run.summary.check for run in repository.inventory.unreported_runs(10)] == ["word", "away"]


@pytest.mark.parametrize("rule", [{"after": "stored", "found": "note"}, {"found": "warn"}], ids=str)
def test_the_operator_is_notified_of_findings_after_storing_alone_and_not_of_those_to_note(
    repository: Repository, context: StepContext, rule: dict[str, str]
) -> None:
    asks(repository, {"name": "word", **rule})

    carried(repository.job(1, {"a.txt": "a virus"}), repository, context)

    assert repository.inventory.unreported_runs(10) == ()


def test_files_are_read_from_storage_when_working_storage_has_lost_them(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, {"name": "word", "after": "stored"})
    job = repository.job(1, {"sub/a.txt": "a virus"})
    process.work(job, context)
    (Workspace.of(job, repository.settings.working).producer / "sub" / "a.txt").unlink()

    done = record.work(job.model_copy(update={"identifiers": repository.identifiers(job)}), context)

    assert "found something in 1 file: 'sub/a.txt'" in (done.remark or "")


@pytest.mark.parametrize("content", ["a varus", "a virus, and more"])
def test_a_stored_file_that_was_damaged_meanwhile_is_not_checked_as_the_deposited_one(
    repository: Repository, context: StepContext, content: str
) -> None:
    asks(repository, {"name": "word", "after": "recorded"})
    job = repository.job(1, {"a.txt": "a virus"})
    process.work(job, context)
    identified = job.model_copy(update={"identifiers": repository.identifiers(job)})
    record.work(identified, context)
    (Workspace.of(job, repository.settings.working).producer / "a.txt").unlink()
    (stored,) = repository.settings.storage.rglob("producer/a.txt")
    stored.chmod(0o644)
    stored.write_text(content)

    with pytest.raises(StepFailed, match=r"a\.txt of version 1 of .* is not as it was stored") as failed:
        notify.work(identified, context)

    assert failed.value.kind is FailureKind.SYSTEM


class CountingChecker(Checker):
    """Notes which files are asked for, and of which checks."""

    asked: Sequence[str] = ()
    checks: tuple[str, ...] = ()

    def run(self, opening: Any, files: Sequence[CheckedFile], *others: Any, **options: Any) -> None:
        self.asked, self.checks = [file.path for file in files], (*self.checks, opening.name)
        super().run(opening, files, *others, **options)


@pytest.fixture
def counting(repository: Repository) -> Iterator[CountingChecker]:
    own = CountingChecker((repository.settings.working,))
    yield own
    own.close()


def test_a_worker_that_takes_over_checks_no_file_twice(
    repository: Repository,
    context: StepContext,
    counting: CountingChecker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks(repository, "word")
    monkeypatch.setattr(journal, "FLUSH_INTERVAL", 0.0)
    files = {f"{number}.txt": "good" for number in range(4)} | {"4.txt": "hang: now", "5.txt": "good"}
    job = repository.job(1, files)
    folder = Workspace.of(job, repository.settings.working).folder

    def check() -> None:
        if any(b'"3.txt"' in path.read_bytes() for path in folder.glob("checks.*.jsonl")):
            raise AttemptOver("the worker was killed")

    with pytest.raises(AttemptOver):
        process.work(job, replace(context, attempt=CheckedAttempt(check)))
    process.work(job, replace(context, checker=counting))

    assert counting.asked == ["3.txt", "4.txt", "5.txt"]


def attempted(job: Job, number: int) -> Job:
    """The job in a further attempt."""
    return job.model_copy(update={"status": job.status.model_copy(update={"op": f"attempt{number}"})})


def test_a_check_that_ended_is_not_repeated_because_the_next_one_is_away(
    repository: Repository, context: StepContext, counting: CountingChecker, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    asks(repository, "word", {"name": "away", "settings": {"away": str(there)}})
    job = repository.job(1, {"a.txt": "good"})

    with pytest.raises(ServiceDown):
        process.work(attempted(job, 1), replace(context, checker=counting))
    there.touch()
    job = attempted(job, 2)
    carried(job, repository, replace(context, checker=counting))

    assert counting.checks == ("word", "away", "away")
    described = repository.described(repository.identifiers(job).primary_id or "")
    assert [(run.check, run.fine) for run in described.versions[0].checks] == [("word", 1), ("away", 1)]


def test_what_a_worker_of_0_3_0_noted_is_known_and_not_checked_again(
    repository: Repository, context: StepContext, counting: CountingChecker
) -> None:
    asks(repository, "word", "away")
    job = repository.job(1, {"a.txt": "good", "b.txt": "good"})
    checking = context.checking(attempted(job, 1))
    running.run(checking, Stage.DOWNLOADED, deposited(job, context, {"a.txt": "good", "b.txt": "good"}))
    journal.separate(checking.workspace.folder)
    (away,) = checking.workspace.folder.glob("checks/away.*")
    away.write_text(away.read_text().rpartition('{"finding":')[0])

    carried(job, repository, replace(context, checker=counting))

    assert (counting.checks, counting.asked) == (("away",), ["a.txt", "b.txt"])
    described = repository.described(repository.identifiers(job).primary_id or "")
    assert [(run.check, run.fine) for run in described.versions[0].checks] == [("word", 2), ("away", 2)]


def test_runs_are_noted_for_a_worker_of_0_3_0_as_it_reads_them(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, "word", "away")
    job = repository.job(1, {"a.txt": "good"})
    checking = context.checking(attempted(job, 1))
    runs = running.run(
        checking, Stage.DOWNLOADED, files := deposited(job, context, {"a.txt": "good", "b.txt": "good"})
    )
    folder = checking.workspace.folder

    journal.separate(folder)
    journal.separate(folder)

    assert not list(folder.glob("checks.*"))
    for name in "word", "away":
        head, *findings, end, nothing = (folder / "checks" / f"{name}.attempt1.jsonl").read_text().split("\n")
        assert json.loads(head)["check"] == name
        assert [json.loads(line)["finding"]["path"] for line in findings] == ["a.txt", "b.txt"]
        assert ("at" in json.loads(end), nothing) == (True, "")
    assert running.noted(checking, {file.path: file.sha512 for file in files}) == runs


def test_a_file_at_which_the_service_died_three_times_is_unchecked_alone(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, {"name": "word", "found": "note"})
    files = {"1.txt": "good", "2.txt": "kill: now", "3.txt": "a virus", "4.txt": "good"}
    job = repository.job(1, files)

    for attempt in range(running.SERVICE_DEATHS):
        with pytest.raises(ServiceDown, match="the service ended in the middle") as down:
            process.work(attempted(job, attempt), context)
        assert (down.value.instance, down.value.of_host) == ("word", False)
    done = process.work(attempted(job, running.SERVICE_DEATHS), context)

    assert "the check word did not check 1 file: '2.txt' (the service of the check ended" in (
        done.remark or ""
    )
    (note,) = running.noted(
        context.checking(job),
        {path: hashlib.sha512(text.encode()).hexdigest() for path, text in files.items()},
    )
    assert [(finding.path, finding.code) for finding in note.findings] == [
        ("1.txt", ""),
        ("2.txt", "service-died"),
        ("3.txt", "Test.Word"),
        ("4.txt", ""),
    ]


def test_a_file_of_a_recorded_version_at_which_the_service_died_is_unchecked_and_not_read_again(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, "word")
    job = repository.job(1, {"1.txt": "kill: now"})
    files = deposited(job, context, {"1.txt": "kill: now"})

    @contextmanager
    def at_hand(file: CheckedFile) -> Iterator[CheckedFile]:
        file.source.write_text("kill: now")
        yield file
        file.source.unlink()

    for attempt in range(running.SERVICE_DEATHS):
        with pytest.raises(ServiceDown, match="the service ended in the middle"):
            running.run_again(
                context.checking(attempted(job, attempt)), context.profile.checks[0], files, at_hand
            )
    files[0].source.unlink(missing_ok=True)
    last = context.checking(attempted(job, running.SERVICE_DEATHS))
    run = running.run_again(last, context.profile.checks[0], files, at_hand)

    assert [finding.code for finding in run.findings] == ["service-died"]


def test_a_service_that_is_away_before_a_file_has_not_died_at_it(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, "word")
    job = repository.job(1, {"1.txt": "leave: now"})

    for attempt in range(running.SERVICE_DEATHS + 1):
        with pytest.raises(ServiceDown, match="the service has gone"):
            process.work(attempted(job, attempt), context)


def deposited(job: Job, context: StepContext, files: dict[str, str]) -> tuple[CheckedFile, ...]:
    folder = Workspace.of(job, context.settings.working).producer
    for path, text in files.items():
        (folder / path).write_text(text)
    digests = {path: hashlib.sha512(text.encode()).hexdigest() for path, text in files.items()}
    return tuple(CheckedFile(path, folder / path, 1, digests[path]) for path in files)


def test_what_is_noted_covers_the_files_that_were_stored_and_not_those_of_an_earlier_download(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, {"name": "word", "found": "note"})
    job = repository.job(1, {"1.txt": "good", "2.txt": "good"})
    for number, text in enumerate(("changed since", "a virus", "changed again")):
        files = deposited(job, context, {"1.txt": "good", "2.txt": text})
        running.run(context.checking(attempted(job, number)), Stage.DOWNLOADED, files)
        if text == "a virus":
            stored = {file.path: file.sha512 for file in files}

    (run,) = running.noted(context.checking(job), stored)

    assert [(finding.path, finding.code) for finding in run.findings] == [
        ("1.txt", ""),
        ("2.txt", "Test.Word"),
    ]


def test_a_file_that_a_check_could_change_is_stored_as_it_was_downloaded_or_not_at_all(
    repository: Repository, context: StepContext
) -> None:
    asks(repository, {"name": "word", "found": "note"})
    job = repository.job(1, {"a.txt": "attack: now"})

    process.work(job, context)

    (stored,) = repository.settings.storage.rglob("producer/a.txt")
    assert stored.read_text() == "attack: now"
