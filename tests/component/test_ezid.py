from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.identifiers import ezid as ezid_client
from pipeline.identifiers.ezid import MARK, EzidMinter
from pipeline.outcome import ServiceDown, StepFailed
from pipeline.profiles.profile import MinterName, Profile
from pipeline.records import Job
from pipeline.settings import Settings
from pipeline.states import FailureKind, JobState
from pipeline.steps.context import open_clients
from tests.servers.ezid import PASSWORD, USER, Ezid, Fault, ezid
from tests.support.memory_record import MemoryJobRecord
from tests.support.records import a_job, jid
from tests.support.repository import OWNER
from tests.support.step_context import local_settings

PROFILE = Profile(name="demo", owner=OWNER, collections=("ark:/99999/collection",), context="Demo")
ERC = (("who", "Müller: 100% sure"), ("what", "two\nlines"), ("when", "2009"), ("where", "loc-1"))
MAINTENANCE = b"<html>\n<body>We are moving house</body></html>"


@pytest.fixture
def service() -> Iterator[Ezid]:
    with ezid() as running:
        yield running


@pytest.fixture
def job_record() -> MemoryJobRecord:
    return MemoryJobRecord()


def with_ezid(service: Ezid, home: Path, **changes: Any) -> Settings:
    given = {"ezid_url": service.url, "ezid_user": USER, "ezid_password": PASSWORD, **changes}
    return local_settings(home, **given)


@pytest.fixture
def minter(service: Ezid, tmp_path: Path) -> EzidMinter:
    target = "https://keep.example/m/{ark}"
    return EzidMinter(with_ezid(service, tmp_path, ezid_target=target), pause=0.01)


def a_new_job(number: int = 1) -> Job:
    return a_job(number, JobState.PROCESSING, primary_id=None)


def test_an_ark_is_named_by_our_counter_and_reserved_at_ezid(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord
) -> None:
    job = a_new_job()

    ark = minter.mint(job, PROFILE, job_record)

    assert job_record.identifiers(job).primary_id == ark
    assert set(service.identifiers) == {ark}
    assert service.identifiers[ark]["_status"] == "reserved"
    assert service.identifiers[ark][MARK].startswith(f"{job.bid}/{job.jid} ")


def test_an_announced_ark_is_public_with_its_metadata_and_target(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord
) -> None:
    ark = minter.mint(a_new_job(), PROFILE, job_record)

    minter.announce(ark, PROFILE, ERC)

    kept = service.identifiers[ark]
    assert kept["_status"] == "public"
    assert kept["erc"] == "who: Müller: 100%25 sure\nwhat: two%0Alines\nwhen: 2009\nwhere: loc-1"
    assert kept["mrt.creator"] == "Demo"
    assert kept["_target"] == f"https://keep.example/m/ark%3A%2F99999%2F{ark.rpartition('/')[2]}"


def test_the_profiles_co_owner_owns_the_ark(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord
) -> None:
    ark = minter.mint(a_new_job(), PROFILE.model_copy(update={"ezid_co_owner": "library"}), job_record)

    assert service.identifiers[ark]["_owner"] == "library"


def test_a_withdrawn_ark_is_told_of_the_new_version_and_stays_withdrawn(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord
) -> None:
    ark = minter.mint(a_new_job(), PROFILE, job_record)
    service.identifiers[ark]["_status"] = "unavailable | withdrawn"

    minter.announce(ark, PROFILE, ERC)

    assert service.identifiers[ark]["_status"] == "unavailable | withdrawn"
    assert "erc" in service.identifiers[ark]


def test_metadata_that_looks_like_a_refusal_is_none(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord
) -> None:
    ark = minter.mint(a_new_job(), PROFILE, job_record)
    service.identifiers[ark] |= {"error": "bad request", "success": "ark:/99999/fk4other"}

    minter.announce(ark, PROFILE, ERC)

    assert service.identifiers[ark]["_status"] == "public"


def test_an_ark_that_ezid_does_not_know_is_left_alone(minter: EzidMinter, service: Ezid) -> None:
    minter.announce("ark:/99999/fk4given", PROFILE, ERC)

    assert service.identifiers == {}


def test_ezid_is_not_asked_about_an_ark_below_another_shoulder(minter: EzidMinter, service: Ezid) -> None:
    minter.announce("ark:/12345/given", PROFILE, ERC)

    assert service.asked == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault(502, b"<html>Bad Gateway</html>"),
        Fault(503, b"error: concurrency limit exceeded"),
        Fault(429, b"", (("Retry-After", "0"),)),
        Fault(200, b"error: internal server error"),
        Fault(200, MAINTENANCE),
        Fault(200, b"\xff\xfe: not text"),
        Fault(200, b""),
        Fault(cut=True),
    ],
    ids=["502", "503", "429", "internal error", "no ANVL", "no UTF-8", "empty", "cut"],
)
def test_a_passing_fault_costs_a_second_try_and_no_second_ark(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord, fault: Fault
) -> None:
    service.faults = [fault]

    ark = minter.mint(a_new_job(), PROFILE, job_record)

    assert set(service.identifiers) == {ark}
    assert job_record.counters.total() == 1


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(502, b""), "answered 502"),
        (Fault(200, b"error: database is locked"), "answered 'database is locked'"),
        (Fault(200, MAINTENANCE), "gave an answer that is not EZID's"),
        (Fault(cut=True), "cannot be reached, or the connection broke"),
    ],
)
def test_an_outage_fails_the_try_and_the_next_one_uses_the_same_ark(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord, fault: Fault, says: str
) -> None:
    service.faults = [fault] * 3
    job = a_new_job()

    with pytest.raises(StepFailed, match=says) as failed:
        minter.mint(job, PROFILE, job_record)

    assert failed.value.kind is FailureKind.TRANSIENT
    assert service.url in failed.value.message
    assert minter.mint(job, PROFILE, job_record) == job_record.identifiers(job).primary_id
    assert len(service.identifiers) == job_record.counters.total() == 1


def test_a_slow_answer_is_not_waited_for_longer_than_the_timeout(
    service: Ezid, job_record: MemoryJobRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ezid_client, "TIMEOUT", 0.2)
    minter = EzidMinter(with_ezid(service, tmp_path), pause=0.01)
    service.faults = [Fault(hold=True)] * 3
    job = a_new_job()

    with pytest.raises(StepFailed, match="did not answer in time") as failed:
        minter.mint(job, PROFILE, job_record)

    assert failed.value.kind is FailureKind.TRANSIENT
    assert minter.mint(job, PROFILE, job_record) in service.identifiers


def test_a_server_that_is_away_is_named_and_its_password_is_not(
    service: Ezid, job_record: MemoryJobRecord, tmp_path: Path
) -> None:
    url = f"http://me:hidden@127.0.0.1:{service.port}"
    service.faults = [Fault(502, b"")] * 3

    with pytest.raises(StepFailed) as failed:
        EzidMinter(with_ezid(service, tmp_path, ezid_url=url), 0.01).mint(a_new_job(), PROFILE, job_record)

    assert f"EZID (http://127.0.0.1:{service.port})" in failed.value.message
    assert "hidden" not in failed.value.message
    assert PASSWORD not in failed.value.message


def test_a_long_wait_that_ezid_asks_for_is_left_to_the_jobs_next_try(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord
) -> None:
    service.faults = [Fault(503, b"", (("Retry-After", "3600"),))]

    with pytest.raises(StepFailed, match="answered 503") as failed:
        minter.mint(a_new_job(), PROFILE, job_record)

    assert failed.value.retry_after == 3600
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(400, b"error: bad request - invalid metadata"), "refused ark:/99999/.*invalid metadata"),
        (Fault(404, b"<html>not here</html>"), "answered 404: check ARKLINE_EZID_URL"),
        (Fault(302, b"", (("Location", "/login"),)), "answered 302: check ARKLINE_EZID_URL"),
        (Fault(201, b"success: ark:/99999/fk4other"), "answered for ark:/99999/fk4other"),
    ],
)
def test_a_refusal_is_the_operators_and_is_not_repeated(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord, fault: Fault, says: str
) -> None:
    service.faults = [fault]

    with pytest.raises(StepFailed, match=says) as failed:
        minter.mint(a_new_job(), PROFILE, job_record)

    assert failed.value.kind is FailureKind.SYSTEM
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(403, b"error: forbidden"), "refused the login .403.: check ARKLINE_EZID_USER"),
        (Fault(200, b"error: forbidden"), "answered 'forbidden': check ARKLINE_EZID_USER"),
    ],
)
def test_a_refused_login_is_an_outage_and_is_not_repeated(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord, fault: Fault, says: str
) -> None:
    service.faults = [fault]

    with pytest.raises(ServiceDown, match=says):
        minter.mint(a_new_job(), PROFILE, job_record)

    assert len(service.asked) == 1


def test_a_wrong_password_is_told_and_not_shown(
    service: Ezid, job_record: MemoryJobRecord, tmp_path: Path
) -> None:
    minter = EzidMinter(with_ezid(service, tmp_path, ezid_password="wrong"))

    with pytest.raises(StepFailed, match="refused the login") as failed:
        minter.mint(a_new_job(), PROFILE, job_record)

    assert "wrong" not in failed.value.message


def test_a_name_that_somebody_else_registered_is_not_taken(
    minter: EzidMinter, service: Ezid, job_record: MemoryJobRecord
) -> None:
    ark = minter.mint(a_new_job(1), PROFILE, job_record)
    job_record.counters.clear()

    with pytest.raises(StepFailed, match=f"{ark} was just minted, but EZID has this ARK") as failed:
        minter.mint(a_new_job(2), PROFILE, job_record)

    assert failed.value.kind is FailureKind.SYSTEM
    assert service.identifiers[ark][MARK].startswith(f"{a_new_job(1).bid}/{jid(1)} ")


def test_ezid_is_used_if_the_settings_name_it(service: Ezid, tmp_path: Path) -> None:
    clients = open_clients(with_ezid(service, tmp_path))
    minter = clients.minter_of(PROFILE)

    minter.announce(minter.mint(a_new_job(1), PROFILE, MemoryJobRecord()), PROFILE, ())

    assert len(service.identifiers) == 1
    clients.inventory.database.close()


def test_a_profile_may_have_its_arks_from_the_local_minter_all_the_same(
    service: Ezid, tmp_path: Path
) -> None:
    minter = EzidMinter(with_ezid(service, tmp_path))
    local = PROFILE.model_copy(update={"minter": MinterName.LOCAL})

    minter.announce(minter.mint(a_new_job(1), local, MemoryJobRecord()), local, ())

    assert service.identifiers == {}


def test_a_profile_that_wants_ezid_gets_no_ark_without_it() -> None:
    wants = PROFILE.model_copy(update={"minter": MinterName.EZID})

    with pytest.raises(StepFailed, match="ARKLINE_EZID_URL is not set") as refused:
        EzidMinter(Settings()).mint(a_new_job(1), wants, MemoryJobRecord())

    assert refused.value.kind is FailureKind.SYSTEM
