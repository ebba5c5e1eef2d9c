"""A worker takes a deposit from an upload: the same checks, the same chain of digests as from a URL."""

import hashlib
from typing import Any

import pytest

from pipeline.attempt import UNATTENDED
from pipeline.fixity import Digest
from pipeline.manifests.checkm import ManifestProfile, Row, write
from pipeline.names import UploadAddress
from pipeline.outcome import Done, ServiceDown, StepFailed
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.states import FailureKind, JobState
from pipeline.steps import estimate, pending
from pipeline.uploads import stored, writing
from pipeline.uploads.stored import Declared, Upload
from pipeline.working_storage.workspace import Workspace
from tests.support.downloading import assert_downloaded, downloaded, md5
from tests.support.step_context import services, working_job


@pytest.fixture
def upload(settings: Settings) -> Upload:
    stored.mark(settings.uploads_folder)
    return writing.create(settings.uploads_folder, "token:ada")


def put(settings: Settings, upload: Upload, name: str, data: bytes, digest: Digest | None = None) -> str:
    declared = Declared(name=name, digest=digest)
    with writing.writing(settings.uploads_folder, upload.id, declared, 1 << 20) as part:
        part.append(data)
        part.finish()
    return UploadAddress(upload.id, name).url


def job(settings: Settings, url: str, kind: PayloadType = PayloadType.FILE, **facts: Any) -> Job:
    return working_job(settings, JobState.DOWNLOADING, kind, url, payload_name="", **facts)


def manifest_job(settings: Settings, upload: Upload, rows: list[Row]) -> Job:
    url = put(settings, upload, "m.checkm", write(ManifestProfile.OBJECT, rows))
    return job(settings, url, PayloadType.OBJECT_MANIFEST)


def test_an_uploaded_file_is_downloaded_with_the_digest_that_was_given_at_the_upload(
    settings: Settings, upload: Upload
) -> None:
    deposit = job(settings, put(settings, upload, "my photo|1.jpg", b"bytes", md5(b"bytes")))

    outcome = downloaded(deposit, settings)

    assert outcome.message == "1 file, 5 bytes"
    assert_downloaded(deposit, {"my photo|1.jpg": b"bytes"})
    (file,) = Workspace.of(deposit, settings.working).read_downloaded()
    assert (file.digest, file.declared_by) == (md5(b"bytes"), "upload")


def test_a_manifest_names_files_of_its_upload_and_its_digests_come_first(
    settings: Settings, upload: Upload
) -> None:
    first = put(settings, upload, "x/1", b"one", md5(b"one"))
    second = put(settings, upload, "x/2", b"two", md5(b"two"))
    sha1 = Digest(algorithm="sha1", value=hashlib.sha1(b"one", usedforsecurity=False).hexdigest())
    deposit = manifest_job(settings, upload, [Row(0, first, "a.txt", sha1), Row(0, second, "folder/b.txt")])
    assert isinstance(pending.work(deposit, services(settings)), Done)

    downloaded(deposit, settings)

    assert_downloaded(deposit, {"a.txt": b"one", "folder/b.txt": b"two"})
    files = Workspace.of(deposit, settings.working).read_downloaded()
    assert [file.digest for file in files] == [sha1, md5(b"two")]


def test_the_size_of_an_upload_is_known_before_it_is_copied(settings: Settings, upload: Upload) -> None:
    deposit = job(settings, put(settings, upload, "a.txt", b"bytes"))

    outcome = estimate.work(deposit, services(settings))

    assert isinstance(outcome, Done)
    assert outcome.space_needed == 5


@pytest.mark.parametrize("manifest", ["http://example.org/m.checkm", f"upload:{'0' * 32}/m.checkm"])
def test_a_manifest_must_not_name_files_of_another_upload(
    settings: Settings, upload: Upload, manifest: str
) -> None:
    theirs = put(settings, upload, "secret.txt", b"secret")
    deposit = job(settings, manifest, PayloadType.OBJECT_MANIFEST)
    workspace = Workspace.of(deposit, settings.working)
    workspace.publish(workspace.manifest, write(ManifestProfile.OBJECT, [Row(0, theirs, "a.txt")]))

    with pytest.raises(StepFailed, match="not in the upload of this manifest") as failure:
        downloaded(deposit, settings)

    assert failure.value.kind is FailureKind.CONTENT


def test_an_upload_that_is_gone_is_a_failure_of_content_and_a_missing_mount_an_outage(
    settings: Settings, upload: Upload
) -> None:
    url = put(settings, upload, "a.txt", b"bytes")
    with pytest.raises(StepFailed, match=r"has no complete file 'b\.txt'") as failure:
        downloaded(job(settings, url.replace("a.txt", "b.txt")), settings)
    assert failure.value.kind is FailureKind.CONTENT

    (settings.uploads_folder / stored.MARK).unlink()
    with pytest.raises(ServiceDown, match="mount it"):
        downloaded(job(settings, url), settings)


def test_damage_of_an_upload_is_not_stored_and_is_the_sites_to_repair(
    settings: Settings, upload: Upload
) -> None:
    url = put(settings, upload, "a.txt", b"bytes")
    stored.locate(settings.uploads_folder, url).path.write_bytes(b"bytez")

    with pytest.raises(StepFailed, match="does not have the bytes that were uploaded") as failure:
        downloaded(job(settings, url), settings)
    with pytest.raises(StepFailed, match="does not have the bytes that were uploaded"):
        HttpFetcher(settings).read(url, 10, UNATTENDED)

    assert failure.value.kind is FailureKind.SYSTEM


def test_a_wrong_digest_of_the_submission_is_a_failure_of_content(settings: Settings, upload: Upload) -> None:
    url = put(settings, upload, "a.txt", b"bytes")

    with pytest.raises(StepFailed, match="than you declared") as failure:
        downloaded(job(settings, url, digest=md5(b"other")), settings)

    assert failure.value.kind is FailureKind.CONTENT
