"""What EZID knows after jobs that were interrupted, or lost its answers."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.identifiers.ezid import EzidMinter
from pipeline.outcome import AttemptOver, StepFailed
from pipeline.records import Identifiers
from pipeline.steps import process
from tests.servers.ezid import PASSWORD, USER, Ezid, Fault, ezid
from tests.support.repository import Repository
from tests.support.step_context import local_settings


@pytest.fixture
def service() -> Iterator[Ezid]:
    with ezid() as running:
        yield running


@pytest.fixture
def minter(service: Ezid, tmp_path: Path) -> EzidMinter:
    settings = local_settings(tmp_path, ezid_url=service.url, ezid_user=USER, ezid_password=PASSWORD)
    return EzidMinter(settings, pause=0.01)


def test_a_job_interrupted_anywhere_has_one_ark_at_ezid_and_it_is_public(
    repository: Repository, minter: EzidMinter, service: Ezid
) -> None:
    for number in range(1, 60):
        job = repository.job(number, local_id=(f"loc-{number}",))
        calls = iter(range(1, 1000))

        def check(calls: Iterator[int] = calls, last: int = number) -> None:
            if next(calls) == last:
                raise AttemptOver("the lock is lost")

        interrupted = False
        try:
            process.work(
                job,
                dataclasses.replace(repository.services(CheckedAttempt(check)), minter_of=lambda _: minter),
            )
        except AttemptOver:
            interrupted = True
        process.work(job, dataclasses.replace(repository.services(), minter_of=lambda _: minter))

        ark = repository.identifiers(job).primary_id
        assert ark is not None
        assert len(service.identifiers) == number
        assert service.identifiers[ark]["_status"] == "public"
        if not interrupted:
            break
    assert number > 6


def test_a_job_whose_answer_was_lost_at_every_request_ends_with_one_ark(
    repository: Repository, minter: EzidMinter, service: Ezid
) -> None:
    service.faults = [Fault(cut=True)] * 9
    job = repository.job(1)
    tries = 0
    while not repository.job_record.identifiers(job).primary_id or service.faults:
        tries += 1
        with pytest.raises(StepFailed, match="the connection broke"):
            process.work(job, dataclasses.replace(repository.services(), minter_of=lambda _: minter))

    process.work(job, dataclasses.replace(repository.services(), minter_of=lambda _: minter))

    assert tries == 3
    assert list(service.identifiers) == [repository.identifiers(job).primary_id]


@pytest.mark.parametrize("lost", [0, 1, 2, 3, 4], ids=lambda number: f"answer {number} lost")
def test_jobs_with_one_local_id_have_one_ark_also_if_ezid_was_away_when_it_was_minted(
    repository: Repository, minter: EzidMinter, service: Ezid, lost: int
) -> None:
    first, second = (repository.job(number, local_id=("loc-1",)) for number in (1, 2))
    services = dataclasses.replace(repository.services(), minter_of=lambda _: minter)
    service.faults = [Fault(503, b"")] * 3
    with pytest.raises(StepFailed, match="answered 503"):
        process.work(first, services)
    service.faults = [Fault()] * lost + [Fault(cut=True)]

    process.work(second, services)
    process.work(first, services)

    arks = {repository.identifiers(job).primary_id for job in (first, second)}
    assert set(service.identifiers) == arks
    (ark,) = arks
    assert ark is not None
    assert service.identifiers[ark]["_status"] == "public"
    assert repository.jobs_of(ark) == [second.jid, first.jid]


def test_a_name_that_somebody_else_registered_while_ezid_was_away_is_not_overwritten(
    repository: Repository, minter: EzidMinter, service: Ezid
) -> None:
    first, second = (repository.job(number, local_id=("loc-1",)) for number in (1, 2))
    services = dataclasses.replace(repository.services(), minter_of=lambda _: minter)
    service.faults = [Fault(503, b"")] * 3
    with pytest.raises(StepFailed, match="answered 503"):
        process.work(first, services)
    ark = str(repository.identifiers(first).primary_id)
    service.identifiers[ark] = {"_status": "public", "erc": "what: another"}

    for job in (first, second):
        with pytest.raises(StepFailed, match=f"{ark} was just minted, but EZID has this ARK"):
            process.work(job, services)

    assert service.identifiers[ark]["erc"] == "what: another"
    assert repository.jobs_of(ark) == []


def test_a_job_that_was_stored_announces_its_older_description_no_more(
    repository: Repository, minter: EzidMinter, service: Ezid
) -> None:
    first = repository.job(1, local_id=("loc-1",), erc_what="old")
    services = dataclasses.replace(repository.services(), minter_of=lambda _: minter)
    process.work(first, services)
    process.work(repository.job(2, local_id=("loc-1",), erc_what="new"), services)

    process.work(first, services)

    ark = repository.identifiers(first).primary_id
    assert ark is not None
    assert "what: new" in service.identifiers[ark]["erc"]
    assert repository.identifiers(first) == Identifiers(primary_id=ark, local_id=("loc-1",), assigned=True)


def test_an_object_that_a_depositor_named_at_ezid_is_described_by_jobs_that_know_its_local_id(
    repository: Repository, minter: EzidMinter, service: Ezid
) -> None:
    services = dataclasses.replace(repository.services(), minter_of=lambda _: minter)
    ark = "ark:/99999/fk4given"
    service.identifiers[ark] = {"_status": "public", "erc": "what: old"}
    process.work(repository.job(1, primary_id=ark, local_id=("loc-1",)), services)

    process.work(repository.job(2, local_id=("loc-1",), erc_what="new"), services)

    assert "what: new" in service.identifiers[ark]["erc"]
    assert repository.jobs_of(ark) == ["jid0000000001", "jid0000000002"]
