"""The files that a job fetches (its payload, or those in its object manifest), and their limits.

A payload without a manifest is line 1.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pipeline import causes
from pipeline.decoding.calls import manifest_reader
from pipeline.file_system import is_fault_of
from pipeline.http.urls import redact_url
from pipeline.manifests import lines
from pipeline.manifests.checkm import ManifestProfile, ReadRows, Row, check_declared, parse_rows
from pipeline.names import PRODUCER, UnsafeName, foreign_upload, is_upload, name_in, safe_name
from pipeline.outcome import StepFailed, caused_by, content, system
from pipeline.profiles.profile import Profile
from pipeline.records import Job, JobConfiguration, PayloadType, SubmissionMode
from pipeline.states import FailureKind
from pipeline.steps.context import StepContext
from pipeline.uploads.stored import locate
from pipeline.working_storage.capacity import full_waits, in_units
from pipeline.working_storage.workspace import DownloadedFile, Workspace


def check_files(profile: Profile, count: int) -> None:
    """Raise a content failure if the collection accepts fewer files."""
    limit = profile.limits.object_files
    if limit is not None and count > limit:
        raise content(
            f"the object has {count:,} files, but collection {profile.name} accepts at most {limit:,}: "
            "divide it, or ask the collection's owner"
        ).because(causes.LIMIT_EXCEEDED(limit=f"object_files of {limit:,}"))


def check_bytes(profile: Profile, count: int) -> None:
    """Raise a content failure if the collection accepts fewer bytes."""
    limit = profile.limits.object_bytes
    if limit is not None and count > limit:
        raise content(
            f"the object has more than the {in_units(limit)} that collection {profile.name} accepts: "
            "divide it, or ask the collection's owner to raise limits.object_bytes"
        ).because(causes.LIMIT_EXCEEDED(limit=f"object_bytes of {limit:,} bytes"))


class ManifestLost(StepFailed):
    """The working directory no longer has the object manifest that the step pending saved."""


@caused_by(causes.CONTENT_LOST(), FailureKind.SYSTEM)
def expected_files(job: Job, working: Path, parse: ReadRows = parse_rows) -> tuple[Row, ...]:
    """The files of the job's object, or its container. ManifestLost if its manifest is gone."""
    if job.configuration.payload_type is not PayloadType.OBJECT_MANIFEST:
        return (payload_file(job.configuration),)
    path = Workspace.of(job, working).manifest
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ManifestLost(FailureKind.SYSTEM, f"{path} is gone from working storage") from error
    except OSError as error:
        if is_fault_of(error, working):
            raise  # an outage of working storage
        raise system(
            f"{path} cannot be read ({error.strerror}): restore working storage and resume the job, "
            "or delete it and submit it again"
        ) from error
    # The names were checked while the job was pending.
    return read_manifest(data, job.configuration, case_fold=False, parse=parse)


def with_upload_digests(files: tuple[Row, ...], uploads: Path) -> tuple[Row, ...]:
    """The files; uploaded files without a digest get the one declared at the upload."""
    return tuple(
        replace(file, digest=locate(uploads, file.url).file.digest)
        if file.digest is None and is_upload(file.url)
        else file
        for file in files
    )


def save_manifest(job: Job, context: StepContext) -> int:
    """Fetch, check and save the object manifest in the working directory; returns its number of files."""
    settings, workspace = context.settings, Workspace.of(job, context.settings.working)
    data = context.fetcher.read(job.configuration.payload_url, settings.manifest_limit, context.attempt)
    case_fold = not context.profile.case_sensitive_names
    parse = manifest_reader(context.decoder, context.attempt)
    most = settings.object_files
    files = read_manifest(data, job.configuration, case_fold=case_fold, most=most, parse=parse)
    context.attempt.check()
    with full_waits("saving the manifest"):
        workspace.publish(workspace.manifest, data)
    return len(files)


@caused_by(causes.NAME_REFUSED())
def payload_file(configuration: JobConfiguration) -> Row:
    """The payload as one file; a content failure if it has no usable name."""
    name, url = configuration.payload_name, configuration.payload_url
    try:
        if not configuration.named_by_source:
            name = safe_name(name or name_in(url), PRODUCER)
    except UnsafeName as error:
        raise content(f"{redact_url(url)}: {error}; submit it with a different file name") from error
    return Row(1, url, name, configuration.digest, configuration.size)


def deposited(job: Job, downloaded: Iterable[DownloadedFile]) -> Iterator[DownloadedFile]:
    """The files that become part of the object: the list of deletions of an update does not."""
    is_update = job.configuration.submission_mode is SubmissionMode.UPDATE
    return (file for file in downloaded if not (is_update and file.path == lines.DELETION_LIST))


@caused_by(causes.NAME_REFUSED())
def named(file: Row, stated: str) -> str:
    """The name of a file that the depositor did not name: the source's, else the URL's."""
    try:
        return stated or safe_name(name_in(file.url), PRODUCER)
    except UnsafeName as error:
        raise content(
            f"{redact_url(file.url)}: neither the source nor the URL names the file: "
            "submit it with a name (--name)"
        ) from error


@caused_by(causes.MANIFEST_INVALID())
def read_manifest(
    data: bytes,
    configuration: JobConfiguration,
    *,
    case_fold: bool,
    most: int | None = None,
    parse: ReadRows = parse_rows,
) -> tuple[Row, ...]:
    """The files in the object manifest `data`; a content failure unless it is valid and as declared.

    At most `most` rows, to limit memory: 100,000 take about 120 MB besides the manifest's own bytes.
    """
    name = configuration.payload_name or redact_url(configuration.payload_url)
    check_declared(data, name, configuration.size, configuration.digest)
    rows = tuple(parse(data, name, ManifestProfile.OBJECT, case_fold, most))
    for row in rows:
        if problem := foreign_upload(row.url, configuration.payload_url):
            raise content(f"line {row.line} of {name}: {problem}")
    return rows
