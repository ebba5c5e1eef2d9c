import hashlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.fixity import Digest
from pipeline.manifests.checkm import ManifestProfile, Row, write
from pipeline.manifests.split import Plan, PlannedJob, plan, priority_of
from pipeline.outcome import StepFailed
from pipeline.records import PayloadType, Submission
from pipeline.states import FailureKind
from tests.support import manifests

LIMIT = 100_000
ARK = "ark:/99999/fk4abc"
DIGEST = Digest(algorithm="md5", value="0" * 32)
SINGLE = ["file", "container", "object_manifest"]
BATCHES = {
    "batch_manifest": (ManifestProfile.BATCH, PayloadType.OBJECT_MANIFEST, "checkm"),
    "container_batch_manifest": (ManifestProfile.CONTAINER_BATCH, PayloadType.CONTAINER, "zip"),
    "single_file_batch_manifest": (ManifestProfile.FILE_BATCH, PayloadType.FILE, "jpg"),
}


def submitted(kind: str = "batch_manifest", **changes: object) -> Submission:
    given = {
        "profile_name": "demo",
        "payload_url": "https://x.edu/payload.zip",
        "type": kind,
        **changes,
    }
    return Submission.model_validate(given)


def serving(data: bytes) -> Callable[[str, int], bytes]:
    return lambda url, limit: data


def not_read(url: str, limit: int) -> bytes:
    raise AssertionError(f"{url} was read")


def manifest(*rows: Row, kind: str = "batch_manifest") -> bytes:
    return write(BATCHES[kind][0], rows)


def planned(submission: Submission, *rows: Row, priority: int | None = None) -> Plan:
    return plan(submission, serving(manifest(*rows, kind=submission.type)), LIMIT, priority)


def numbered(count: int, suffix: str = "checkm") -> list[Row]:
    return [Row(0, f"https://x.edu/{n}.{suffix}", f"{n}.{suffix}") for n in range(count)]


def refusal(submission: Submission, data: bytes = b"") -> str:
    with pytest.raises(StepFailed) as caught:
        plan(submission, serving(data), LIMIT)
    assert caught.value.kind is FailureKind.CONTENT
    return caught.value.message


@pytest.mark.parametrize("kind", SINGLE)
def test_a_single_payload_is_one_job_with_the_values_of_the_form(kind: str) -> None:
    submission = submitted(
        kind,
        digest=DIGEST,
        size=7,
        erc_who="who",
        erc_what="what",
        erc_when="when",
        local_id=("l-1", "l-2"),
        primary_id=ARK,
    )

    assert list(plan(submission, not_read, LIMIT).jobs) == [
        PlannedJob(
            payload_url="https://x.edu/payload.zip",
            payload_type=PayloadType(kind),
            payload_name="payload.zip",
            named_by_source=kind != "object_manifest",
            digest=DIGEST,
            size=7,
            erc_who="who",
            erc_what="what",
            erc_when="when",
            local_id=("l-1", "l-2"),
            primary_id=ARK,
            priority=5,
        ),
    ]


def test_the_name_of_the_form_goes_before_that_of_the_url() -> None:
    (job,) = plan(submitted("file", payload_filename="a.txt"), not_read, LIMIT).jobs

    assert job.payload_name == "a.txt"


@pytest.mark.parametrize("kind", BATCHES)
def test_a_batch_manifest_is_one_job_for_each_row(kind: str) -> None:
    _, payload_type, suffix = BATCHES[kind]
    jobs = planned(submitted(kind), *numbered(3, suffix)).jobs

    assert [job.payload_url for job in jobs] == [f"https://x.edu/{n}.{suffix}" for n in range(3)]
    assert [job.payload_name for job in jobs] == [f"{n}.{suffix}" for n in range(3)]
    assert {job.payload_type for job in jobs} == {payload_type}


def test_the_values_of_a_row_win_over_those_of_the_form() -> None:
    submission = submitted(erc_who="form who", erc_what="form what", erc_when="form when")
    full = Row(
        0,
        "https://x.edu/a",
        "a",
        digest=DIGEST,
        size=5,
        primary_id=ARK,
        local_id=("l",),
        creator="row who",
        title="row what",
        date="row when",
    )
    first, second = planned(submission, full, Row(0, "https://x.edu/b", "b")).jobs

    assert (first.erc_who, first.erc_what, first.erc_when) == ("row who", "row what", "row when")
    assert (first.digest, first.size, first.primary_id, first.local_id) == (DIGEST, 5, ARK, ("l",))
    assert (second.erc_who, second.erc_what, second.erc_when) == ("form who", "form what", "form when")


def test_local_ids_digest_and_size_of_the_form_are_not_those_of_the_rows() -> None:
    rows = numbered(1)
    data = manifest(*rows)
    digest = Digest(algorithm="sha256", value=hashlib.sha256(data).hexdigest())
    (job,) = planned(submitted(local_id=("localidten",), digest=digest, size=len(data)), *rows).jobs

    assert (job.local_id, job.digest, job.size) == ((), None, None)


def test_a_primary_identifier_for_a_whole_batch_is_refused() -> None:
    assert "give it in the manifest's column" in refusal(submitted(primary_id=ARK), manifest(*numbered(2)))


def test_a_primary_identifier_that_is_no_ark_is_refused() -> None:
    assert "'doi:10.5060/x' is not an ARK" in refusal(submitted("file", primary_id="doi:10.5060/x"))


def test_the_digest_of_a_batch_manifest_is_checked() -> None:
    message = refusal(submitted(payload_filename="m.checkm", digest=DIGEST), manifest(*numbered(1)))

    assert "manifest 'm.checkm': the md5 digest is" in message
    assert message.endswith("submit it again with the correct digest")


def test_the_size_of_a_batch_manifest_is_checked() -> None:
    assert "but 7 were declared" in refusal(submitted(size=7), manifest(*numbered(1)))


def test_a_batch_manifest_over_the_limit_is_refused() -> None:
    many = b"#" * (LIMIT + 1)

    assert f"manifest 'payload.zip' is larger than {LIMIT} bytes: divide it" in refusal(submitted(), many)
    nameless = refusal(submitted(payload_url="https://x.edu/"), many)
    assert nameless.startswith("manifest 'the payload' is larger")


def test_the_reader_is_asked_for_no_more_than_the_limit() -> None:
    asked = []

    def read(url: str, limit: int) -> bytes:
        asked.append((url, limit))
        return manifest(*numbered(1))

    plan(submitted(), read, LIMIT)

    assert asked == [("https://x.edu/payload.zip", LIMIT)]


def test_what_the_reader_finds_wrong_is_passed_on() -> None:
    gone = StepFailed(FailureKind.TRANSIENT, "x.edu does not answer")

    def read(url: str, limit: int) -> bytes:
        raise gone

    with pytest.raises(StepFailed) as caught:
        plan(submitted(), read, LIMIT)

    assert caught.value is gone


def test_a_manifest_of_another_profile_than_submitted_is_refused_naming_both() -> None:
    message = refusal(
        submitted("batch_manifest"), manifest(*numbered(1, "zip"), kind="container_batch_manifest")
    )

    assert "is a mrt-container-batch-manifest" in message
    assert "but a mrt-batch-manifest" in message
    assert "submit it as type container-batch-manifest" in message


def test_a_manifest_without_headers_is_read_as_what_it_was_submitted_as() -> None:
    assert len(plan(submitted(), serving(b"https://x.edu/a.checkm\n#%eof"), LIMIT).jobs) == 1


def test_a_faulty_manifest_is_refused_with_name_and_line() -> None:
    message = refusal(submitted(payload_filename="m.checkm"), b"ftp://x.edu/a\n#%eof")

    assert message.startswith("manifest 'm.checkm': line 1: the URL does not begin with")


def test_a_batch_manifest_without_rows_is_refused() -> None:
    assert "the manifest has no rows" in refusal(
        submitted(), b"#%profile | " + ManifestProfile.BATCH.uri.encode() + b"\n#%eof"
    )


def test_a_container_may_have_any_name_as_its_content_tells_its_format() -> None:
    (job,) = plan(submitted("container", payload_url="https://x.edu/datafile/4711"), not_read, LIMIT).jobs

    assert (job.payload_name, job.named_by_source) == ("4711", True)


@pytest.mark.parametrize("kind", ["file", "container"])
def test_a_name_that_the_depositor_gave_is_not_that_of_the_source(kind: str) -> None:
    (job,) = plan(submitted(kind, payload_filename="a.zip"), not_read, LIMIT).jobs

    assert (job.payload_name, job.named_by_source) == ("a.zip", False)


@pytest.mark.parametrize("url", ["https://osf.io/download/", "https://osf.io/a%5Cb", "https://osf.io"])
def test_a_payload_whose_url_has_no_usable_name_has_that_of_its_host_until_the_source_answers(
    url: str,
) -> None:
    (job,) = plan(submitted("file", payload_url=url), not_read, LIMIT).jobs

    assert (job.payload_name, job.named_by_source) == ("osf.io", True)


@pytest.mark.parametrize("name", ["../a.zip", "/a.zip", "a\n.zip"])
@pytest.mark.parametrize("kind", SINGLE)
def test_a_payload_of_an_unsafe_name_is_refused(kind: str, name: str) -> None:
    assert "submit it under another name" in refusal(submitted(kind, payload_filename=name))


def test_a_manifest_of_an_object_without_any_name_is_refused() -> None:
    assert "another name (--name)" in refusal(submitted("object-manifest", payload_url="https://x.edu/"))


def test_more_jobs_than_the_collection_takes_are_refused() -> None:
    data = manifest(*numbered(3))

    assert len(plan(submitted(), serving(data), LIMIT, most_jobs=3).jobs) == 3
    with pytest.raises(StepFailed, match=r"more than 2 rows: .*limits\.batch_jobs"):
        plan(submitted(), serving(data), LIMIT, most_jobs=2)


def test_a_manifest_is_not_read_beyond_the_jobs_that_the_collection_takes() -> None:
    """Nearly half a million rows fit into a manifest of the shipped size; each row needs memory."""
    asked: list[int | None] = []

    def parse(
        data: bytes, source: str, profile: ManifestProfile, case_fold: bool, most: int | None
    ) -> tuple[Row, ...]:
        asked.append(most)
        return ()

    plan(submitted(), serving(manifest(*numbered(3))), LIMIT, most_jobs=2, parse=parse)

    assert asked == [2]


@pytest.mark.parametrize(
    ("jobs", "priority"),
    [(0, 5), (1, 5), (10, 28), (100, 51), (1000, 74), (12_088, 98), (12_089, 99), (10**6, 99)],
)
def test_small_batches_are_more_urgent_than_large_ones(jobs: int, priority: int) -> None:
    assert priority_of(jobs) == priority


def test_the_priority_of_the_submission_goes_before_the_profiles_and_before_the_size() -> None:
    rows = numbered(10)

    assert {job.priority for job in planned(submitted(), *rows).jobs} == {28}
    assert {job.priority for job in planned(submitted(), *rows, priority=7).jobs} == {7}
    assert {job.priority for job in planned(submitted(priority=0), *rows, priority=7).jobs} == {0}


def test_the_same_payload_gives_the_same_plan() -> None:
    assert planned(submitted(), *numbered(5)) == planned(submitted(), *numbered(5))


@given(st.integers(0, 99))
def test_a_change_of_priority_does_not_make_another_plan_of_it(priority: int) -> None:
    assert (
        planned(submitted(priority=priority), *numbered(2)).sha256
        == planned(submitted(), *numbered(2)).sha256
    )


def test_any_change_of_a_row_makes_another_plan() -> None:
    row = Row(0, "https://x.edu/a", "a")
    rows = [
        row,
        Row(0, "https://x.edu/b", "a"),
        Row(0, "https://x.edu/a", "b"),
        Row(0, "https://x.edu/a", "a", digest=DIGEST),
        Row(0, "https://x.edu/a", "a", size=0),
        Row(0, "https://x.edu/a", "a", local_id=("l",)),
        Row(0, "https://x.edu/a", "a", primary_id=ARK),
        Row(0, "https://x.edu/a", "a", title="t"),
    ]
    plans = [planned(submitted(), each) for each in rows] + [planned(submitted(), row, row)]

    assert len({each.sha256 for each in plans}) == len(plans)


def test_the_digest_of_a_plan_is_the_same_in_every_release() -> None:
    """A batch that an older release began to split is finished by a newer one only if this stays."""
    assert planned(submitted(), *numbered(2)).sha256 == (
        "439f39b1350af8a4b0fed9cd5694b732fed819ee0557dcbd12bd3c771ebbf35b"
    )


SAME = manifests.manifest(
    "https://x.edu/a ||||| a.jpg | | box 1", "https://x.edu/b ||||| b.jpg | | box 1", profile=manifests.FILES
)


def test_two_rows_with_one_local_id_are_refused_and_named() -> None:
    submission = submitted("single_file_batch_manifest", new_version=True)

    assert "line 4: line 3 has the same local id 'box 1'" in refusal(submission, SAME)


def test_a_batch_of_an_earlier_release_may_repeat_a_local_id() -> None:
    submission = submitted("single_file_batch_manifest")

    assert len(plan(submission, serving(SAME), LIMIT).jobs) == 2
