import tracemalloc
from collections.abc import Iterator

import pytest

from pipeline.fixity import Digest
from pipeline.manifests.checkm import Row
from pipeline.manifests.split import PackedJobs, PlannedJob, pack, plan
from pipeline.packed import BLOCK
from pipeline.records import PayloadType, Submission, SubmissionType

COUNT = 2 * BLOCK + 7


def planned(number: int) -> PlannedJob:
    return PlannedJob(
        payload_url=f"https://x.edu/{number}.txt",
        payload_type=PayloadType.FILE,
        payload_name=f"{number}\u00fc.txt",
        local_id=(f"l-{number}",),
        priority=9,
    )


@pytest.fixture(scope="module")
def packed() -> PackedJobs:
    blocks, count, _ = pack(planned(number) for number in range(COUNT))
    return PackedJobs(blocks, count, 9)


def test_packed_jobs_are_those_that_were_packed_in_their_order(packed: PackedJobs) -> None:
    assert len(packed) == COUNT
    assert list(packed) == [planned(number) for number in range(COUNT)]


@pytest.mark.parametrize(
    "which",
    [
        slice(0, 40),
        slice(BLOCK - 1, BLOCK + 1),
        slice(COUNT - 3, COUNT + 40),
        slice(COUNT, None),
        slice(None, None, 100),
        slice(-5, -2),
    ],
    ids=str,
)
def test_a_slice_of_packed_jobs_is_that_of_a_list(packed: PackedJobs, which: slice) -> None:
    assert list(packed[which]) == list(packed)[which]


@pytest.mark.parametrize("place", [0, BLOCK, COUNT - 1, -1, -COUNT])
def test_one_packed_job_is_that_of_a_list(packed: PackedJobs, place: int) -> None:
    assert packed[place] == list(packed)[place]


@pytest.mark.parametrize("place", [COUNT, -COUNT - 1])
def test_there_is_no_packed_job_beyond_the_last(packed: PackedJobs, place: int) -> None:
    with pytest.raises(IndexError):
        packed[place]


def test_nothing_can_be_packed() -> None:
    blocks, count, _ = pack(iter(()))

    assert list(PackedJobs(blocks, count, None)) == []


def test_the_plan_of_a_large_manifest_takes_a_tenth_of_its_rows_in_memory() -> None:
    rows_given = 10_000

    def rows(*_: object) -> Iterator[Row]:
        for number in range(rows_given):
            digest = Digest(algorithm="sha256", value=f"{number:064x}")
            yield Row(number, f"https://x.edu/files/{number}.txt", f"{number}.txt", digest, size=number)

    submission = Submission(
        profile_name="demo",
        payload_url="https://x.edu/a.checkm",
        type=SubmissionType.SINGLE_FILE_BATCH_MANIFEST,
    )
    tracemalloc.start()
    try:
        made = plan(submission, lambda url, limit: b"", 1, parse=rows)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(made.jobs) == rows_given
    assert most < 150 * rows_given, "bytes; a row alone takes more than 1,000"
