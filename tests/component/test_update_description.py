"""What an object keeps of its description and its local ids when a later job changes it."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.fixity import StoredVersion
from pipeline.identifiers.ezid import EzidMinter
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.records import SubmissionMode
from pipeline.states import FailureKind
from pipeline.steps import process, record
from pipeline.steps.context import StepContext
from pipeline.working_storage.workspace import Workspace
from tests.servers.ezid import PASSWORD, USER, Ezid, ezid
from tests.support.repository import Repository
from tests.support.schemas import assert_valid
from tests.support.step_context import local_settings

ADD, UPDATE, RESET = SubmissionMode.ADD, SubmissionMode.UPDATE, SubmissionMode.RESET
DC = "{http://purl.org/dc/elements/1.1/}"


@pytest.fixture
def service() -> Iterator[Ezid]:
    with ezid() as running:
        yield running


def first(repository: Repository) -> str:
    """An object with a description and two local ids."""
    job = repository.job(
        1,
        {"a.txt": "a"},
        erc_who="Tracy",
        erc_what="Husky",
        erc_when="2009",
        erc_where="https://a.example/husky",
        dublin_core={"subject": ("dogs",)},
        local_id=("loc-1", "loc;2"),
    )
    return repository.recorded(job).ark


def erc(repository: Repository, stored: StoredVersion) -> list[str]:
    return repository.text(stored, "system/mrt-erc.txt").splitlines()[1:]


def dublin_core(repository: Repository, stored: StoredVersion) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for element in ElementTree.fromstring(repository.text(stored, "system/mrt-dc.xml")):
        found.setdefault(element.tag.removeprefix(DC), []).append(element.text)
    return found


def test_an_update_that_says_nothing_leaves_the_description_as_it_is(repository: Repository) -> None:
    ark = first(repository)

    stored = repository.recorded(repository.job(2, {"b": "b"}, primary_id=ark, submission_mode=UPDATE))

    assert erc(repository, stored) == [
        "who: Tracy",
        "what: Husky",
        "when: 2009",
        f"where: {ark}",
        "where: loc-1",
        "where: loc;2",
        "where: https://a.example/husky",
    ]
    assert dublin_core(repository, stored) == {
        "title": ["Husky"],
        "creator": ["Tracy"],
        "subject": ["dogs"],
        "date": ["2009"],
        "identifier": [ark, "loc-1", "loc;2"],
    }
    assert "localIdentifier: loc-1;loc%25sc2\n" in repository.text(stored, "system/mrt-mom.txt")
    assert "title:\tHusky\n" in repository.text(stored, "system/mrt-ingest.txt")
    premis = repository.text(stored, "system/mrt-premis.xml")
    assert_valid(premis.encode())
    assert "<premis:objectIdentifierValue>loc-1</premis:objectIdentifierValue>" in premis
    assert "; local id loc-1" not in premis
    described = repository.described(ark)
    assert described.erc[:3] == (("who", "Tracy"), ("what", "Husky"), ("when", "2009"))
    assert described.local_id == ("loc-1", "loc;2")


def test_what_an_update_says_wins_element_by_element(repository: Repository) -> None:
    ark = first(repository)
    files = {"mrt-erc.txt": "erc:\nwhen: 2010\nwhere: loc-3\nwhere: ark:/99999/other\n"}
    job = repository.job(
        2,
        files,
        erc_what="Chicken",
        dublin_core={"rights": ("free",)},
        local_id=("loc-4", "loc-1"),
        submission_mode=UPDATE,
    )

    stored = repository.recorded(job)

    assert stored.ark == ark
    assert erc(repository, stored) == [
        "who: Tracy",
        "what: Chicken",
        "when: 2010",
        f"where: {ark}",
        "where: loc-1",
        "where: loc;2",
        "where: loc-3",
        "where: loc-4",
        "where: ark:/99999/other",
    ]
    assert dublin_core(repository, stored) == {
        "title": ["Chicken"],
        "creator": ["Tracy"],
        "subject": ["dogs"],
        "date": ["2010"],
        "rights": ["free"],
        "identifier": [ark, "loc-1", "loc;2", "loc-3", "loc-4"],
    }
    described = repository.described(ark)
    assert described.erc[:3] == (("who", "Tracy"), ("what", "Chicken"), ("when", "2010"))
    assert set(described.local_id) == {"loc-1", "loc;2", "loc-3", "loc-4"}


@pytest.mark.parametrize("mode", [ADD, RESET])
def test_another_whole_version_has_its_own_jobs_description_and_no_local_id_is_lost(
    repository: Repository, mode: SubmissionMode
) -> None:
    ark = first(repository)
    job = repository.job(2, {"b": "b"}, primary_id=ark, local_id=("loc-3",), submission_mode=mode)

    stored = repository.recorded(job)

    assert erc(repository, stored) == [
        "who: (:unas)",
        "what: (:unas)",
        "when: (:unas)",
        f"where: {ark}",
        "where: loc-3",
    ]
    assert "subject" not in dublin_core(repository, stored)
    assert repository.described(ark).local_id == ("loc-1", "loc;2", "loc-3")


def test_an_update_starts_from_the_version_before_it_whether_that_is_recorded_or_not(
    repository: Repository,
) -> None:
    ark = first(repository)
    repository.work(repository.job(2, {"b": "b"}, primary_id=ark, erc_what="Newer", submission_mode=UPDATE))

    stored = repository.work(repository.job(3, {"c": "c"}, primary_id=ark, submission_mode=UPDATE))

    assert erc(repository, stored)[:2] == ["who: Tracy", "what: Newer"]


def test_an_update_of_what_is_not_there_is_described_by_its_job(repository: Repository) -> None:
    stored = repository.work(repository.job(1, erc_what="First", submission_mode=UPDATE))

    assert erc(repository, stored)[:2] == ["who: (:unas)", "what: First"]


def test_an_update_that_is_interrupted_anywhere_is_described_the_same(repository: Repository) -> None:
    ark = first(repository)
    for number in range(2, 40):
        job = repository.job(number, {"b": str(number)}, primary_id=ark, submission_mode=UPDATE)
        calls = iter(range(2, 1000))

        def check(calls: Iterator[int] = calls, last: int = number) -> None:
            if next(calls) == last:
                raise AttemptOver("the lock is lost")

        interrupted = False
        try:
            repository.work(job, CheckedAttempt(check))
        except AttemptOver:
            interrupted = True
        stored = repository.work(job)

        assert (stored.number, erc(repository, stored)[1]) == (number, "what: Husky")
        if not interrupted:
            break
    assert number > 8


def test_an_attempt_after_a_later_version_records_the_description_of_its_own(repository: Repository) -> None:
    ark = first(repository)
    job = repository.job(2, {"b": "b"}, primary_id=ark, submission_mode=UPDATE)
    repository.work(job)
    repository.recorded(
        repository.job(3, {"c": "c"}, primary_id=ark, erc_what="Later", submission_mode=UPDATE)
    )
    Workspace.of(job, repository.settings.working).stored.unlink()

    repository.work(job)
    stored = Workspace.of(job, repository.settings.working).stored
    noted = json.loads(stored.read_bytes())
    stored.write_text(json.dumps({**noted, "erc": "erc:\nwhat: of an attempt that was over\n"}))
    record.work(job, repository.services())

    texts = {version.number: version for version in repository.described(ark).versions}
    assert sorted(texts) == [1, 2, 3]
    assert repository.described(ark).erc[1] == ("what", "Later")
    kernels = repository.inventory.database.read(
        lambda connection: connection.exec_driver_sql(
            "SELECT number, value FROM inv_dublinkernels JOIN inv_versions ON inv_versions.id = "
            "inv_version_id WHERE element = 'what' ORDER BY number"
        ).all()
    )
    assert [tuple(row) for row in kernels] == [(1, "Husky"), (2, "Husky"), (3, "Later")]


def test_ezid_keeps_the_description_of_an_object_that_is_updated(
    repository: Repository, service: Ezid, tmp_path: Path
) -> None:
    services = ezid_services(repository, service, tmp_path)
    job = repository.job(1, {"a": "a"}, erc_what="Husky", local_id=("loc-1",))
    process.work(job, services)
    process.work(
        repository.job(2, {"b": "b"}, erc_who="Tracy", local_id=("loc-1",), submission_mode=UPDATE), services
    )

    (known,) = service.identifiers.values()
    assert known["erc"].startswith("who: Tracy\nwhat: Husky\n")
    assert known["erc"].endswith("where: loc-1")


def test_ezid_is_told_nothing_of_an_update_that_storage_refuses(
    repository: Repository, service: Ezid, tmp_path: Path
) -> None:
    services = ezid_services(repository, service, tmp_path)
    process.work(repository.job(1, {"a": "a"}, erc_what="Husky", local_id=("loc-1",)), services)
    before = dict(service.identifiers)
    asked = len(service.asked)
    refused = repository.job(
        2,
        {"b": "b", "mrt-delete.txt": "gone\n"},
        erc_what="Refused",
        local_id=("loc-1",),
        submission_mode=UPDATE,
    )

    with pytest.raises(StepFailed, match="cannot be deleted: it is not in version 1") as failed:
        process.work(refused, services)

    assert failed.value.kind is FailureKind.CONTENT
    assert (service.identifiers, len(service.asked)) == (before, asked)


def ezid_services(repository: Repository, service: Ezid, folder: Path) -> StepContext:
    settings = local_settings(folder, ezid_url=service.url, ezid_user=USER, ezid_password=PASSWORD)
    minter = EzidMinter(settings, pause=0.01)
    return dataclasses.replace(repository.services(), minter_of=lambda _: minter)
