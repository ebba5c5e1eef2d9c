from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.identifiers.minter import Minter
from pipeline.outcome import AttemptOver
from pipeline.profiles.profile import Profile
from pipeline.records import Identifiers, Job, JobConfiguration, JobStatus, PayloadType
from pipeline.states import JobState
from tests.support import arks
from tests.support.memory_record import MemoryJobRecord


def profile(shoulder: str = "fk4") -> Profile:
    return Profile(
        name="demo", owner="ark:/99999/owner", collections=("ark:/99999/collection",), shoulder=shoulder
    )


def job(jid: str, ark: str | None = None, version: int = 0) -> Job:
    return Job(
        jid=jid,
        bid="bid0000000000",
        configuration=JobConfiguration(
            batch_id="bid0000000000",
            profile_name="demo",
            payload_url="http://localhost/a",
            payload_type=PayloadType.FILE,
            working_dir="/nowhere",
        ),
        identifiers=Identifiers(primary_id=ark),
        status=JobStatus(status=JobState.PROCESSING),
        version=version,
        priority=5,
        space_needed=0,
    )


def test_a_minted_ark_stands_in_the_record_at_once() -> None:
    job_record = MemoryJobRecord()

    ark = Minter().mint(job("jid1"), profile(), job_record)

    assert ark.startswith("ark:/99999/fk4")
    assert arks.is_valid(ark)
    assert job_record.identifiers(job("jid1")).primary_id == ark


def test_asking_again_gives_the_same_ark() -> None:
    job_record = MemoryJobRecord()
    minter = Minter()

    assert minter.mint(job("jid1"), profile(), job_record) == minter.mint(job("jid1"), profile(), job_record)
    assert job_record.counters == {"99999_fk4": 1}


def test_a_job_with_an_ark_keeps_it() -> None:
    job_record = MemoryJobRecord()

    assert Minter().mint(job("jid1", ark="ark:/12345/own"), profile(), job_record) == "ark:/12345/own"
    assert not job_record.counters


def test_each_shoulder_counts_for_itself() -> None:
    job_record = MemoryJobRecord()

    Minter().mint(job("jid1"), profile("fk4"), job_record)
    Minter().mint(job("jid2"), profile("m5"), job_record)

    assert job_record.counters == {"99999_fk4": 1, "99999_m5": 1}


def test_many_jobs_at_once_get_different_arks() -> None:
    job_record = MemoryJobRecord()
    with ThreadPoolExecutor(16) as threads:
        arks = list(threads.map(lambda n: Minter().mint(job(f"jid{n}"), profile(), job_record), range(200)))

    assert len(set(arks)) == 200


def test_an_attempt_that_is_over_mints_nothing() -> None:
    job_record = MemoryJobRecord()
    job_record.owner["jid1"] = 7

    with pytest.raises(AttemptOver):
        Minter().mint(job("jid1", version=6), profile(), job_record)

    assert not job_record.counters
