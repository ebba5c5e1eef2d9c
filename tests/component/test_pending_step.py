import hashlib
from pathlib import Path
from typing import Any

import pytest

from pipeline.attempt import CheckedAttempt
from pipeline.fixity import Digest
from pipeline.manifests.checkm import ManifestProfile, Row, write
from pipeline.outcome import AttemptOver, Done, StepFailed
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind, JobState
from pipeline.steps import pending
from pipeline.working_storage.workspace import Workspace
from tests.servers.http_source import HttpSource
from tests.support.memory_record import MemoryJobRecord
from tests.support.step_context import UNUSED, collection, local_settings, services, working_job

ROWS = tuple(Row(line=0, url=f"http://example.org/{name}", name=name) for name in ("a.txt", "b.txt"))
MANIFEST = write(ManifestProfile.OBJECT, ROWS)


def sha256(data: bytes) -> Digest:
    return Digest(algorithm="sha256", value=hashlib.sha256(data).hexdigest())


def pending_job(settings: Settings, url: str, **facts: Any) -> Job:
    kind = facts.pop("payload_type", PayloadType.OBJECT_MANIFEST)
    return working_job(settings, JobState.PENDING, kind, url, **facts)


def test_a_job_of_a_collection_on_hold_is_held_before_its_payload_is_looked_at(settings: Settings) -> None:
    job_record = MemoryJobRecord()
    job_record.held.add("demo")

    outcome = pending.work(
        pending_job(settings, "http://example.org/m.checkm"), services(settings, job_record, UNUSED)
    )

    assert isinstance(outcome, Done)
    assert outcome.event is Event.HOLD
    assert "demo is on hold" in outcome.message


@pytest.mark.parametrize("kind", [PayloadType.FILE, PayloadType.CONTAINER])
def test_a_file_is_acquired_without_being_fetched(settings: Settings, kind: PayloadType) -> None:
    job = pending_job(settings, "http://example.org/a.zip", payload_type=kind)

    assert pending.work(job, services(settings, fetcher=UNUSED)) == Done(event=Event.ACQUIRE)


@pytest.mark.parametrize("kind", PayloadType)
def test_a_payload_that_cannot_be_fetched_at_all_is_refused(settings: Settings, kind: PayloadType) -> None:
    with pytest.raises(StepFailed, match="http and https only") as failure:
        pending.work(
            pending_job(settings, "ftp://example.org/a", payload_type=kind),
            services(settings, fetcher=UNUSED),
        )

    assert failure.value.kind is FailureKind.CONTENT


@pytest.mark.parametrize("name", ["../a", "/a", "a//b"])
def test_a_file_with_an_unsafe_name_is_refused(settings: Settings, name: str) -> None:
    job = pending_job(settings, "http://example.org/a", payload_type=PayloadType.FILE, payload_name=name)

    with pytest.raises(StepFailed, match=r"file name .*; submit it with a different file name") as failure:
        pending.work(job, services(settings, fetcher=UNUSED))

    assert failure.value.kind is FailureKind.CONTENT


def test_a_manifest_is_kept_as_it_was_given(settings: Settings, source: HttpSource) -> None:
    job = pending_job(
        settings, source.put("/m.checkm", MANIFEST), digest=sha256(MANIFEST), size=len(MANIFEST)
    )

    outcome = pending.work(job, services(settings))

    assert outcome == Done(event=Event.ACQUIRE, message="the manifest lists 2 files")
    assert Workspace.of(job, settings.working).manifest.read_bytes() == MANIFEST


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ({"digest": sha256(b"other")}, "sha256"),
        ({"size": 7}, "but 7 were declared"),
    ],
)
def test_a_manifest_that_is_not_the_declared_one_is_refused(
    settings: Settings, source: HttpSource, facts: dict[str, Any], complaint: str
) -> None:
    job = pending_job(settings, source.put("/m.checkm", MANIFEST), **facts)

    with pytest.raises(StepFailed, match=complaint) as failure:
        pending.work(job, services(settings))

    assert failure.value.kind is FailureKind.CONTENT
    assert not Workspace.of(job, settings.working).manifest.exists()


def test_a_corrupt_manifest_is_refused_naming_file_and_line(settings: Settings, source: HttpSource) -> None:
    corrupt = MANIFEST.replace(b"http://example.org/b.txt", b"hzzp://example.org/b.txt")
    line = 1 + corrupt[: corrupt.index(b"hzzp")].count(b"\n")
    job = pending_job(settings, source.put("/m.checkm", corrupt))

    with pytest.raises(StepFailed, match=rf"m\.checkm: line {line}: ") as failure:
        pending.work(job, services(settings))

    assert failure.value.kind is FailureKind.CONTENT


def test_a_batch_manifest_is_refused_with_the_type_to_submit_it_as(
    settings: Settings, source: HttpSource
) -> None:
    batch = write(ManifestProfile.BATCH, [Row(line=0, url="http://example.org/1.checkm", name="1.checkm")])

    with pytest.raises(StepFailed, match="submit it as type batch-manifest") as failure:
        pending.work(pending_job(settings, source.put("/m.checkm", batch)), services(settings))

    assert failure.value.kind is FailureKind.CONTENT


def test_a_manifest_over_the_limit_is_refused(source: HttpSource, tmp_path: Path) -> None:
    settings = local_settings(tmp_path, manifest_limit=10)

    with pytest.raises(StepFailed, match="the limit is 10; divide it, or ask the operator"):
        pending.work(pending_job(settings, source.put("/m.checkm", MANIFEST)), services(settings))


def test_a_manifest_of_more_files_than_allowed_is_refused(source: HttpSource, tmp_path: Path) -> None:
    settings = local_settings(tmp_path, object_files=1)

    with pytest.raises(StepFailed, match="more than 1 rows: divide it, or ask the operator"):
        pending.work(pending_job(settings, source.put("/m.checkm", MANIFEST)), services(settings))


def test_a_missing_manifest_is_refused_and_a_source_that_is_down_is_waited_for(
    settings: Settings, source: HttpSource
) -> None:
    kinds = []
    for status in (404, 503):
        job = pending_job(settings, source.put(f"/{status}.checkm", status=status))
        with pytest.raises(StepFailed) as failure:
            pending.work(job, services(settings))
        kinds.append(failure.value.kind)

    assert kinds == [FailureKind.CONTENT, FailureKind.TRANSIENT]


def test_a_kept_manifest_with_the_declared_digest_is_not_fetched_again(
    settings: Settings, source: HttpSource
) -> None:
    url = source.put("/m.checkm", MANIFEST)
    pending.work(pending_job(settings, url, digest=sha256(MANIFEST)), services(settings))

    pending.work(pending_job(settings, url, digest=sha256(MANIFEST), op="attempt-2"), services(settings))

    assert source.count("/m.checkm") == 1


def test_a_kept_manifest_without_digest_is_fetched_again(settings: Settings, source: HttpSource) -> None:
    pending.work(pending_job(settings, source.put("/m.checkm", MANIFEST)), services(settings))
    other = write(ManifestProfile.OBJECT, ROWS[:1])
    job = pending_job(settings, source.put("/m.checkm", other), op="attempt-2")

    pending.work(job, services(settings))

    assert Workspace.of(job, settings.working).manifest.read_bytes() == other


def test_a_kept_manifest_that_was_damaged_is_fetched_again(settings: Settings, source: HttpSource) -> None:
    job = pending_job(settings, source.put("/m.checkm", MANIFEST), digest=sha256(MANIFEST))
    pending.work(job, services(settings))
    Workspace.of(job, settings.working).manifest.write_bytes(b"")

    pending.work(job, services(settings))

    assert Workspace.of(job, settings.working).manifest.read_bytes() == MANIFEST


def test_an_attempt_that_is_over_keeps_no_manifest(settings: Settings, source: HttpSource) -> None:
    job = pending_job(settings, source.put("/m.checkm", MANIFEST))

    def check() -> None:
        raise AttemptOver("the lock is lost")

    with pytest.raises(AttemptOver):
        pending.work(job, services(settings, attempt=CheckedAttempt(check)))

    assert not Workspace.of(job, settings.working).manifest.exists()


def test_a_manifest_of_more_files_than_the_collection_takes_is_refused(
    settings: Settings, source: HttpSource
) -> None:
    collection(settings, limits={"object_files": 1})

    with pytest.raises(StepFailed, match="has 2 files, but collection demo accepts at most 1") as failure:
        pending.work(pending_job(settings, source.put("/m.checkm", MANIFEST)), services(settings))

    assert failure.value.kind is FailureKind.CONTENT


def test_names_that_differ_in_case_are_taken_unless_the_collection_refuses_them(
    settings: Settings, source: HttpSource
) -> None:
    rows = [Row(line=0, url=f"http://example.org/{name}", name=name) for name in ("a.txt", "A.txt")]
    url = source.put("/m.checkm", write(ManifestProfile.OBJECT, rows))
    assert pending.work(pending_job(settings, url), services(settings)) == Done(
        event=Event.ACQUIRE, message="the manifest lists 2 files"
    )

    collection(settings, case_sensitive_names=False)

    with pytest.raises(StepFailed, match="upper and lower case"):
        pending.work(pending_job(settings, url), services(settings))


def test_a_job_without_its_collections_profile_is_the_operators(
    settings: Settings, source: HttpSource
) -> None:
    job = pending_job(settings, source.put("/m.checkm", MANIFEST))
    (settings.profiles / "demo.yaml").unlink()

    with pytest.raises(StepFailed, match="no profile 'demo'") as failure:
        pending.work(job, services(settings))

    assert failure.value.kind is FailureKind.SYSTEM
