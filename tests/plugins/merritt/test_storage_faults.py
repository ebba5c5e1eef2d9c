import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.records import SubmissionMode
from pipeline.states import FailureKind
from pipeline.steps import record
from pipeline.working_storage.workspace import Workspace
from tests.plugins.merritt.repository import ARK, HERE, MerrittRepository, refused
from tests.servers.http_source import HttpSource
from tests.servers.merritt import Fault

ADD, UPDATE, RESET = SubmissionMode.ADD, SubmissionMode.UPDATE, SubmissionMode.RESET


@pytest.fixture
def repository(kept: MerrittRepository) -> MerrittRepository:
    return kept


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(cut=True), "broke the connection; the next attempt checks whether the version was created"),
        (Fault(hold=True), "did not answer in time; the next attempt checks whether the version was created"),
        (
            Fault(500, b"<h1>Oops</h1>", done=True),
            "answered 500 .*the next attempt checks whether the version was created",
        ),
        (Fault(200, b"{}", done=True), "is not a version state; the next attempt checks"),
        (Fault(200, b"<xml/>", done=True), "is not a version state; the next attempt checks"),
    ],
    ids=["cut", "slow", "500", "other JSON", "no JSON"],
)
def test_a_version_whose_answer_was_lost_is_found_and_not_made_again(
    repository: MerrittRepository, fault: Fault, says: str
) -> None:
    short = {"storage_service_timeout": 0.5} if fault.hold else {}
    repository.keep(repository.service, storage_service_recheck_after=90, **short)
    repository.service.faults = [fault]
    job = repository.submitted(1, ADD, {"a": "a"})
    assert refused(repository, job, FailureKind.TRANSIENT, says).retry_after == 90

    assert repository.process(job) == f"stored as version 1 of {ARK}, 9 new files"
    assert len(repository.service.changes) == len(repository.service.objects[HERE]) == 1


def test_a_version_that_the_service_stored_with_other_bytes_than_were_sent_is_never_taken_for_stored(
    repository: MerrittRepository,
) -> None:
    repository.service.faults = [Fault(cut=True)]
    job = repository.submitted(1, ADD, {"a": "a"}, key="1" * 32)
    refused(repository, job, FailureKind.TRANSIENT, "broke the connection")
    files = repository.service.objects[HERE][0]
    files["producer/a"] = dataclasses.replace(files["producer/a"], data=b"b")

    refused(
        repository, job, FailureKind.SYSTEM, "has not the bytes of 'producer/a' that its system/mrt-manif"
    )


def test_a_service_that_is_busy_is_asked_again(repository: MerrittRepository) -> None:
    repository.service.faults = [Fault(503, b"busy")]
    repository.service.unread = 2

    repository.process(repository.submitted(1, ADD, {"a": "a"}))

    assert len(repository.service.objects[HERE]) == 1


def test_a_service_that_is_away_is_a_passing_fault(repository: MerrittRepository) -> None:
    repository.keep(repository.service, storage_service_url="http://me:hidden@127.0.0.1:1/store")

    failure = refused(
        repository, repository.submitted(1, ADD, {"a": "a"}), FailureKind.TRANSIENT, "cannot be reached"
    )

    assert "hidden" not in failure.message


def test_damage_in_storage_is_found_when_a_version_is_read_back(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a"}))
    version = repository.version(1)
    repository.kept.verify(version)
    files = repository.service.objects[HERE][0]

    files["producer/a"] = dataclasses.replace(files["producer/a"], data=b"b")

    with pytest.raises(
        StepFailed, match=f"lists 1 bytes, .* for 'producer/a' in version 1 of {ARK}, not 1 bytes"
    ):
        repository.kept.verify(version)


def test_bytes_that_differ_from_the_manifest_are_found(repository: MerrittRepository) -> None:
    repository.process(repository.submitted(1, ADD, {"a": "a"}))
    version = repository.version(1)
    repository.service.handed["producer/a"] = b"b"

    with pytest.raises(
        StepFailed, match=f"delivers a damaged 'producer/a' of {ARK} version 1: its sha512"
    ) as failed:
        repository.kept.verify(version)

    assert failed.value.kind is FailureKind.SYSTEM


def test_an_invalid_manifest_is_a_system_failure(repository: MerrittRepository, template: Path) -> None:
    with HttpSource() as web:
        web.put("/manifest/7777/ark%3A%2F99999%2Fgiven", b"<!DOCTYPE x><x/>")
        repository.keep(repository.service, storage_service_url=web.url(""))

        refused(
            repository,
            repository.submitted(1, ADD, {"a": "a"}),
            FailureKind.SYSTEM,
            "gives an invalid manifest of ark:/99999/given: it has a declaration",
        )


def test_a_job_that_is_interrupted_anywhere_is_stored_once(repository: MerrittRepository) -> None:
    for last in range(1, 40):
        calls = iter(range(1, 1000))
        job = repository.job(last, primary_id=f"ark:/99999/x{last}")

        def check(calls: Iterator[int] = calls, last: int = last) -> None:
            if next(calls) == last:
                raise AttemptOver("the lock is lost")

        interrupted = False
        try:
            repository.process(job, CheckedAttempt(check))
        except AttemptOver:
            interrupted = True
        repository.process(job)

        assert len(repository.service.objects["7777", f"ark:/99999/x{last}"]) == 1
        if not interrupted:
            break
    assert last > 6


def _renewed(repository: MerrittRepository) -> None:
    with (repository.settings.profiles / "demo.yaml").open("a") as profile:
        profile.write("storage_node: 42\n")


def _other_setting(repository: MerrittRepository) -> None:
    repository.keep(repository.service, storage_service_node=42)


OTHER_NODE = pytest.mark.parametrize("change", [_renewed, _other_setting], ids=["profile", "setting"])


@OTHER_NODE
@pytest.mark.parametrize("fault", [None, Fault(cut=True)], ids=["answered", "answer lost"])
@pytest.mark.parametrize("given", [{}, {"primary_id": None}], ids=["given", "minted"])
@pytest.mark.parametrize("key", ["0123456789abcdef" * 2, ""], ids=["key", "no key"])
def test_a_version_at_the_node_of_an_earlier_profile_is_recorded_there_and_not_stored_at_another(
    repository: MerrittRepository,
    change: Callable[[MerrittRepository], None],
    fault: Fault | None,
    given: dict[str, Any],
    key: str,
) -> None:
    job = repository.submitted(1, ADD, {"a": "as stored"}, key=key, **given)
    repository.service.faults = [fault] if fault else []
    with contextlib.suppress(StepFailed):
        repository.process(job)
    workspace = Workspace.of(job, repository.settings.working).folder
    shutil.rmtree(workspace)
    change(repository)

    said = repository.process(job)
    shutil.rmtree(workspace)
    context = dataclasses.replace(repository.services(), storage=repository.kept)
    record.work(job.model_copy(update={"identifiers": repository.identifiers(job)}), context)

    ark = repository.identifiers(job).primary_id or ""
    assert str(said).startswith(f"stored as version 1 of {ark}")
    assert list(repository.service.objects) == [("7777", ark)]
    assert [version.jid for version in repository.described(ark).versions] == [job.jid]


@OTHER_NODE
def test_a_version_that_no_earlier_node_has_is_stored_at_the_node_of_the_profile(
    repository: MerrittRepository, change: Callable[[MerrittRepository], None]
) -> None:
    job = repository.submitted(1, ADD, {"a": "a"}, key="0123456789abcdef" * 2)
    repository.service.faults = [Fault(400, b"the node is full")]
    refused(repository, job, FailureKind.SYSTEM, "the node is full")
    change(repository)

    repository.process(job)

    assert list(repository.service.objects) == [("42", ARK)]
