"""Downloading: the job's files arrive in `producer/`, whole and checked, and `landing.json` lists them.

A file appears in `producer/` only after its digest was checked, and `landing.json` is written last. So a
worker that takes over after a crash anywhere in between finds whole files, keeps those that still have
their digest, and fetches the others.
"""

import os
import shutil
from contextlib import closing
from pathlib import Path

from pipeline.attempt import Attempt
from pipeline.containers.unpack import Limits, unpack
from pipeline.outcome import Done, StepFailed, Wait, content
from pipeline.parallel import in_parallel
from pipeline.records import Job, PayloadType
from pipeline.settings import Settings
from pipeline.sources.fetch import Download
from pipeline.states import FailureKind
from pipeline.steps import resume as earlier
from pipeline.steps.collection_limits import CollectionLimits, allowed
from pipeline.steps.context import StepContext
from pipeline.steps.expected_files import FileSpec, wanted
from pipeline.working_storage.capacity import full_is_transient, in_units
from pipeline.working_storage.workspace import DownloadedFile, Workspace

FAILURES_TOLD = 20
"""Files that cannot be had after which no others are tried: enough for the depositor to see a pattern."""

MESSAGE = 1800
"""Characters of a message that are kept, less some for its beginning."""

ARCHIVE = "container"
"""The container's name in the attempt's folder; its own name may be anything."""


def work(job: Job, context: StepContext) -> Done | Wait:
    workspace = Workspace.of(job)
    files = wanted(job)
    rules = allowed(context)
    rules.check_bytes(sum(file.size or 0 for file in files))
    with full_is_transient("downloading"):
        if job.configuration.payload_type is PayloadType.CONTAINER:
            landed = _container(files[0], workspace, context, rules)
        else:
            landed = _files(files, workspace, context, rules, _is_manifest(job))
        landed = _declared(job, files, landed)
        context.attempt.check()
        workspace.write_downloaded(landed)
        _make_durable(workspace.landing)
    earlier.remove_attempts(workspace)
    size = sum(file.size for file in landed)
    bare = sum(file.digest is None for file in files)
    return Done(
        space_needed=size,
        message=f"{_count(len(landed))}, {in_units(size)}"
        + (f"; no digest was declared for {bare:,} of {_count(len(files))}" if bare else ""),
    )


def _is_manifest(job: Job) -> bool:
    return job.configuration.payload_type is PayloadType.OBJECT_MANIFEST


def _declared(
    job: Job, files: tuple[FileSpec, ...], landed: tuple[DownloadedFile, ...]
) -> tuple[DownloadedFile, ...]:
    """With the digest that was declared of each file; of a container's files, that of the container."""
    name = job.configuration.payload_name or "manifest"
    container = files[0].name if job.configuration.payload_type is PayloadType.CONTAINER else ""

    def declared(file: DownloadedFile, wanted: FileSpec) -> DownloadedFile:
        place = f"{name} line {wanted.line}" if _is_manifest(job) else "submission"
        known = {"declared_by": place, "container": container} if wanted.digest else {"declared_by": ""}
        # of a container, processing may have noted before what the content itself declares: it does so again
        return file.model_copy(update={"container": "", "digest": wanted.digest, **known})

    return tuple(map(declared, landed, files * len(landed) if container else files))


def _count(files: int) -> str:
    return f"{files:,} file{'s'[: files != 1]}"


def _make_durable(path: Path) -> None:
    """Have `path` and its entry in its folder on the disk before the record says that they are.

    A journaling file system keeps the order of renames: those of the files before it are durable, too.
    """
    for each in (path, path.parent):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _files(
    files: tuple[FileSpec, ...],
    workspace: Workspace,
    context: StepContext,
    rules: CollectionLimits,
    in_manifest: bool,
) -> tuple[DownloadedFile, ...]:
    noted = earlier.notes(workspace)

    def land(file: FileSpec, attempt: Attempt) -> DownloadedFile:
        return _land(file, workspace, context, noted, rules, attempt)

    landed: dict[int, DownloadedFile] = {}
    size = 0
    failures: dict[int, str] = {}
    outcomes = in_parallel(land, files, context.settings.download_threads, context.attempt)
    with closing(outcomes):
        for file, future in outcomes:
            try:
                landed[file.line] = future.result()
            except StepFailed as failure:
                if failure.kind is not FailureKind.CONTENT and not failures:
                    raise
                if failure.kind is FailureKind.CONTENT:
                    # The others go on: the depositor is told of all at once, and what arrives is kept.
                    failures[file.line] = failure.message
                if failure.kind is not FailureKind.CONTENT or len(failures) >= FAILURES_TOLD:
                    break
            else:
                earlier.note(workspace, landed[file.line])
                size += landed[file.line].size
                rules.check_bytes(size)
    if failures:
        raise content(_told(failures, len(files), in_manifest=in_manifest))
    result = tuple(landed[file.line] for file in files)
    context.attempt.check()
    earlier.remove_strays(workspace, result)
    return result


def _land(
    file: FileSpec,
    workspace: Workspace,
    context: StepContext,
    noted: earlier.Notes,
    rules: CollectionLimits,
    attempt: Attempt,
) -> DownloadedFile:
    """The file in `producer/`: as an earlier attempt left it, or fetched."""
    target = workspace.producer / file.name
    kept = earlier.reusable(target, file, noted.get(file.name, []), attempt)
    if kept is not None:
        return kept
    part = f"parts/{file.line}"
    earlier.adopt_part(workspace, part, file, attempt)
    wanted_file = Download(file.url, target, workspace.attempt / part, file.digest, file.size, rules.bytes)
    arrived = context.fetcher.download(wanted_file, attempt)
    return DownloadedFile(path=file.name, size=arrived.size, sha512=arrived.sha512, url=file.url)


def _container(
    file: FileSpec, workspace: Workspace, context: StepContext, rules: CollectionLimits
) -> tuple[DownloadedFile, ...]:
    """The container's files in `producer/`, which is replaced as a whole: it is never half of each."""
    landed = earlier.landing(workspace, context.attempt)
    if landed is not None:
        return landed
    archive = workspace.attempt / ARCHIVE
    _fetch_container(file, workspace, context, rules)
    unpacked = workspace.attempt / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    files = unpack(archive, file.name, unpacked, _limits(context.settings, rules), context.attempt)
    for each in files:
        context.attempt.check()
        _make_durable(unpacked / each.path)
    rules.check_files(len(files))
    context.attempt.check()
    if workspace.producer.exists():
        shutil.rmtree(workspace.attempt / "replaced", ignore_errors=True)
        workspace.producer.rename(workspace.attempt / "replaced")
    unpacked.rename(workspace.producer)
    return tuple(
        DownloadedFile(path=each.path, size=each.size, sha512=each.sha512, url=file.url) for each in files
    )


def _fetch_container(
    file: FileSpec, workspace: Workspace, context: StepContext, rules: CollectionLimits
) -> None:
    """The container in the attempt's folder, from an earlier attempt or from its source."""
    archive = workspace.attempt / ARCHIVE
    earlier.adopt_whole(workspace, ARCHIVE)
    noted = earlier.notes(workspace).get(file.name, [])
    if earlier.reusable(archive, file, noted, context.attempt) is not None:
        return
    archive.unlink(missing_ok=True)
    part = f"parts/{file.line}"
    earlier.adopt_part(workspace, part, file, context.attempt)
    arrived = context.fetcher.download(
        Download(file.url, archive, workspace.attempt / part, file.digest, file.size, rules.bytes),
        context.attempt,
    )
    earlier.note(
        workspace, DownloadedFile(path=file.name, size=arrived.size, sha512=arrived.sha512, url=file.url)
    )


def _limits(settings: Settings, rules: CollectionLimits) -> Limits:
    return Limits(
        entries=settings.container_entries,
        bytes=min(settings.container_bytes, rules.bytes or settings.container_bytes),
        ratio=settings.container_ratio,
        case_fold=rules.case_fold,
    )


def _told(failures: dict[int, str], files: int, *, in_manifest: bool) -> str:
    """Every failure in the order of the manifest, as far as a message can hold them."""
    lines = [
        f"line {line}: {message}" if in_manifest else message for line, message in sorted(failures.items())
    ]
    if len(lines) == 1:
        return lines[0]
    at_least = "at least " if len(lines) >= FAILURES_TOLD else ""
    told = f"{at_least}{len(lines)} of {files:,} files cannot be had"
    for count, line in enumerate(lines):
        if len(told) + len(line) > MESSAGE:
            return f"{told}; and {len(lines) - count} more"
        told += f"{';' if count else ':'} {line}"
    return told
