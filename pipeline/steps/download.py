"""Downloading: the job's files arrive in `producer/`, complete and checked, and `landing.json` lists them.

A file appears in `producer/` only after its digest has been checked; `landing.json` is written last, and then
everything is synced at once. So a worker that takes over after a crash at any point reads the existing files,
keeps those that still have their digest, and fetches the others.
"""

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from pipeline import causes
from pipeline.attempt import Attempt, in_parallel
from pipeline.causes import FailureCause
from pipeline.checking.running import NOTHING_FOUND
from pipeline.containers.unpack import Limits
from pipeline.decoding.calls import manifest_reader, read_fetch_lists, unpack
from pipeline.file_system import empty_folders, sync_tree
from pipeline.humanize import counted
from pipeline.manifests.checkm import Row
from pipeline.names import PAGE_SUFFIXES, SIGN_IN, duplicates, foreign_upload, quote_name
from pipeline.outcome import Done, RateLimited, StepFailed, Wait, content
from pipeline.profiles.profile import Profile
from pipeline.records import Job, PayloadType
from pipeline.sources.download import Download
from pipeline.states import Event, FailureKind
from pipeline.steps import checks, earlier_version, resume
from pipeline.steps.context import StepContext
from pipeline.steps.download_space import DownloadProgress, DownloadSpace, NoRoom, give_back
from pipeline.steps.expected_files import (
    ManifestLost,
    check_bytes,
    check_files,
    expected_files,
    named,
    save_manifest,
    with_upload_digests,
)
from pipeline.working_storage import mount
from pipeline.working_storage.capacity import full_waits, in_units
from pipeline.working_storage.workspace import DownloadedFile, Workspace, remove_renamed

EXPANSION = 200
"""Maximum ratio of a container's unpacked bytes to its own."""

FAILURES_REPORTED = 20
"""Failed files after which no further files are tried: enough for the depositor to see a pattern."""

FOLDERS_NAMED = 3

MESSAGE_LIMIT = 1800
"""Characters of a stored message, less a margin for its beginning."""


def remark(downloaded: Sequence[DownloadedFile], empty: Sequence[str] = ()) -> str:
    """Notes for the depositor to check; '' if there are none."""
    return "; ".join(filter(None, (_guessed_names(downloaded), _web_pages(downloaded), _empty(empty))))


def _web_pages(downloaded: Sequence[DownloadedFile]) -> str:
    """A note on files that are web pages, contrary to their names: their number and the first name."""
    pages = [file.path for file in downloaded if file.is_web_page]
    if not pages:
        return ""
    first = (
        f"{counted(len(pages), 'file')}, the first {quote_name(pages[0])},"
        if len(pages) > 1
        else quote_name(pages[0])
    )
    return f"{first} came as a web page (HTML): open it and compare; {SIGN_IN}"


def _empty(folders: Sequence[str]) -> str:
    if not folders:
        return ""
    named = ", ".join(map(quote_name, folders[:FOLDERS_NAMED]))
    more = len(folders) - FOLDERS_NAMED
    return f"folders without files are not stored: {named}" + (f" and {more:,} more" if more > 0 else "")


def _guessed_names(downloaded: Sequence[DownloadedFile]) -> str:
    """A note on names with an undeclared encoding: their number, the assumed encodings, the first name."""
    guessed = [file for file in downloaded if file.name_encoding]
    if not guessed:
        return ""
    encodings = " and ".join(sorted({file.name_encoding for file in guessed}))
    return (
        f"the names of {counted(len(guessed), 'file')} in the container are not marked as UTF-8 and were "
        f"read as {encodings}, the first as {quote_name(guessed[0].path)}: compare the names with yours"
    )


def summary(failures: Mapping[int, str], files: int, place: Callable[[int], str]) -> str:
    """The failures in the order of the manifest, as many as a message can hold.

    `place`: returns the beginning of the message for a line.
    """
    lines = [place(line) + message for line, message in sorted(failures.items())]
    if len(lines) == 1:
        return lines[0]
    at_least = "at least " if len(lines) >= FAILURES_REPORTED else ""
    text = f"{at_least}{len(lines)} of {files:,} files cannot be downloaded"
    for number, line in enumerate(lines):
        if len(text) + len(line) > MESSAGE_LIMIT:
            return f"{text}; and {len(lines) - number} more"
        text += f"{';' if number else ':'} {line}"
    return text


ARCHIVE = "container"
"""The container's name in the attempt's folder, since its own name may be anything."""


def work(job: Job, context: StepContext) -> Done | Wait:
    mount.require(context.settings, context.job_record.working_storage)
    earlier = earlier_version.find(job, context)
    if earlier is not None:
        return earlier_version.pass_on(earlier)
    parse = manifest_reader(context.decoder, context.attempt)
    try:
        files = expected_files(job, context.settings.working, parse)
    except ManifestLost:
        save_manifest(job, context)
        files = expected_files(job, context.settings.working, parse)
    listed, files = files, with_upload_digests(files, context.settings.uploads_folder)
    profile = context.profile
    check_bytes(profile, sum(file.size or 0 for file in files))
    progress, space = DownloadProgress(context.attempt, files), DownloadSpace(job, context, files)
    workspace = Workspace.of(job, context.settings.working)
    step = _Download(job, context, workspace, files, profile, progress, space)
    with full_waits("downloading"):
        step.check_case()
        try:
            fetched = step.container() if step.is_container else step.all_files()
        except NoRoom as no_room:
            context.attempt.check()
            return give_back(no_room, workspace)
        uploaded = {file.line for file, before in zip(files, listed, strict=True) if file != before}
        downloaded = _with_declared_digests(step, fetched, uploaded)
        context.attempt.check()
        workspace.write_downloaded(downloaded)
        sync_tree(workspace.producer, (workspace.downloaded, workspace.folder))
    # an attempt that is over may still write there; leftovers are removed with the working directory
    remove_renamed(workspace.attempt.parent, workspace.attempt.name)
    # before a person decides; the others' files are checked while they are processed, which holds no place
    # of a download
    judged = checks.before_storing(job, context, downloaded).judged if profile.review else NOTHING_FOUND
    size = sum(file.size for file in downloaded)
    undeclared = sum(file.digest is None for file in files)
    fetched_by_bag = sum(file.url != files[0].url for file in downloaded) if step.is_container else 0
    noted = remark(downloaded, empty_folders(workspace.producer) if step.is_container else ())
    return Done(
        event=Event.REVIEW if profile.review else Event.SUCCEED,
        space_needed=size,
        space_grew=space.grew,
        message=f"{counted(len(downloaded), 'file')}, {in_units(size)}"
        + (f"; {fetched_by_bag:,} of them fetched as fetch.txt lists" if fetched_by_bag else "")
        + (
            f"; no digest was declared for {undeclared:,} of {counted(len(files), 'file')}"
            if undeclared
            else ""
        )
        + step.name_of_source(downloaded),
        remark="; ".join(filter(None, (noted, *judged.remarks))),
        checks=judged.summaries,
    )


@dataclass(frozen=True)
class _Download:
    """The values shared by the downloads of one attempt."""

    job: Job
    context: StepContext
    workspace: Workspace
    files: tuple[Row, ...]
    profile: Profile
    progress: DownloadProgress
    space: DownloadSpace

    @property
    def is_container(self) -> bool:
        return self.job.configuration.payload_type is PayloadType.CONTAINER

    @property
    def is_named_by_source(self) -> bool:
        return self.job.configuration.named_by_source and not self.is_container

    def name_of_source(self, downloaded: tuple[DownloadedFile, ...]) -> str:
        """For the message: the name that the source gave the file; empty if it did not name it."""
        if not self.is_named_by_source or downloaded[0].path == self.files[0].name:
            return ""
        return f"; its source names it {quote_name(downloaded[0].path)}"

    @property
    def has_manifest(self) -> bool:
        return self.job.configuration.payload_type is PayloadType.OBJECT_MANIFEST

    @cached_property
    def can_hold_both_cases(self) -> bool:
        """Whether names that differ only in case remain two files here and in storage."""
        return self.workspace.distinguishes_case() and self.context.storage.distinguishes_case()

    @cached_property
    def made_folders(self) -> set[str]:
        """Folders that this attempt knows to exist."""
        return set()

    @cached_property
    def parts(self) -> Path:
        return self.workspace.attempt / "parts"

    @cached_property
    def attempts(self) -> list[Path]:
        """The folders of this and of earlier attempts, which may have parts of files."""
        return resume.attempts_of(self.workspace)

    def check_case(self) -> None:
        """StepFailed(content) if two names of the manifest would be one file here or in storage."""
        clash = next(iter(duplicates(file.name for file in self.files)), None)
        if clash and not self.can_hold_both_cases:
            raise content(
                f"{clash.reason}; the file system cannot hold both: rename one and submit again"
            ).because(causes.NAME_REFUSED())

    def all_files(self) -> tuple[DownloadedFile, ...]:
        """Fetch all files into `producer/`, several at a time, and remove any other file there.

        A content failure of one file does not stop the others: the depositor learns of all failures at
        once, and files that have arrived are not fetched again.
        """
        journal = resume.read_journals(self.workspace, self.attempts)
        present = resume.names_below(self.workspace.producer)
        files = self._with_names_of_source(present.intersection(journal))
        fresh = not self.attempts

        def one_file(file: Row, attempt: Attempt) -> DownloadedFile:
            if file.name in present and (left := self._left(file, journal, attempt)):
                return left
            return self._fetch(file, self.workspace.producer / file.name, attempt, fresh=fresh)

        place = "line {}: ".format if self.has_manifest else lambda _: ""
        result = self._gather(files, one_file, place)
        if present:  # else every file there belongs to this manifest
            self.context.attempt.check()
            resume.remove_unlisted(self.workspace, result)
        return result

    def _gather(
        self,
        files: tuple[Row, ...],
        one_file: Callable[[Row, Attempt], DownloadedFile],
        place: Callable[[int], str],
        size: int = 0,
    ) -> tuple[DownloadedFile, ...]:
        """Get all `files`, in order. `size`: further bytes of the object; `place` as in `summary`."""
        downloaded: dict[int, DownloadedFile] = {}
        failures: dict[int, str] = {}
        met: list[FailureCause | None] = []
        details: list[str] = []
        threads = self.context.settings.download_threads
        with (
            resume.journal_of(self.workspace) as note,
            closing(in_parallel(one_file, files, threads, self.context.attempt)) as outcomes,
        ):
            for file, future in outcomes:
                match future.exception():
                    case None:
                        done = downloaded[file.line] = future.result()
                        note(file, done)
                        self.progress.complete(file, done.size)
                        size += done.size
                        check_bytes(self.profile, size)
                    case StepFailed(kind=FailureKind.CONTENT) as failure:
                        failures[file.line] = str(failure)
                        met.append(failure.cause)
                        details += filter(None, [failure.detail])
                    case StepFailed() | RateLimited() if failures:
                        break  # content failures are reported first: this fault may be over by then
                    case fault:
                        raise fault
                if len(failures) >= FAILURES_REPORTED:
                    break
        if failures:
            failed = content(summary(failures, len(files), place)).because(causes.common(met))
            failed.detail = "; ".join(dict.fromkeys(details))
            raise failed
        return tuple(downloaded[file.line] for file in files)

    def _with_names_of_source(self, left: frozenset[str]) -> tuple[Row, ...]:
        """The files; a file named by its source gets the name under which an earlier attempt left it."""
        if not (self.is_named_by_source and left):
            return self.files
        return (replace(self.files[0], name=min(left)),)

    def _left(self, file: Row, journal: resume.Journal, attempt: Attempt) -> DownloadedFile | None:
        """The file that an earlier attempt left in `producer/`; None if it has to be fetched."""
        target = self.workspace.producer / file.name
        left = resume.reusable(target, file, journal.get(file.name, []), attempt)
        if left is not None:
            self.space.admit(file.line, left.size)
        return left

    def _fetch(self, file: Row, target: Path, attempt: Attempt, *, fresh: bool = False) -> DownloadedFile:
        """Fetch a file. `fresh`: no earlier attempt has left parts of files."""
        folder = os.path.dirname(target)  # noqa: PTH120 - for every small file
        for needed in (folder,) if fresh else (folder, str(self.parts)):
            if needed not in self.made_folders:
                self.workspace.make_folder(Path(needed))
                self.made_folders.add(needed)
        if not fresh:
            earlier = [folder for folder in self.attempts if folder != self.workspace.attempt]
            resume.adopt_part(self.workspace, earlier, f"parts/{file.line}", file, attempt)
        arrived = self.context.fetcher.download(
            Download(
                file.url,
                target,
                self.parts / str(file.line),
                file.digest,
                file.size,
                self.profile.limits.object_bytes,
                partial(self.space.admit, file.line),
                self.workspace.draft_of(str(file.line)) if fresh else None,
            ),
            self.progress.of(file, attempt),
        )
        name = file.name
        if self.is_named_by_source:
            name = named(file, arrived.name)
            target.replace(target.with_name(name))
        return DownloadedFile(
            path=name,
            size=arrived.size,
            sha512=arrived.sha512,
            url=file.url,
            is_web_page=arrived.is_web_page and not name.lower().endswith(PAGE_SUFFIXES),
        )

    def container(self) -> tuple[DownloadedFile, ...]:
        """Unpack the container into `producer/`, which is replaced as a whole and never holds a mixture."""
        attempt = self.context.attempt
        if (complete := resume.completed_download(self.workspace, attempt)) is not None:
            return complete
        (container,) = self.files
        journal = resume.read_journals(self.workspace, resume.attempts_of(self.workspace))
        archived = self._beside(container, ARCHIVE, attempt, noted=journal.get(container.name, []))
        with resume.journal_of(self.workspace) as note:
            note(container, archived)
        unpacked = self.workspace.attempt / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        limits = self._unpack_limits()
        archive = self.workspace.attempt / ARCHIVE
        admit = self.space.admit_unpacked
        files = unpack(self.context.decoder, archive, container.name, unpacked, limits, attempt, admit)
        check_files(self.profile, len(files))
        fetched = self._fetch_listed(unpacked, files, case_fold=limits.case_fold)
        attempt.check()
        if self.workspace.producer.exists():
            shutil.rmtree(self.workspace.attempt / "replaced", ignore_errors=True)
            self.workspace.producer.rename(self.workspace.attempt / "replaced")
        unpacked.rename(self.workspace.producer)
        return (*(file.model_copy(update={"url": container.url}) for file in files), *fetched)

    def _fetch_listed(
        self, unpacked: Path, files: tuple[DownloadedFile, ...], *, case_fold: bool
    ) -> tuple[DownloadedFile, ...]:
        """Fetch the files that bags in the container list in fetch.txt to their places in `unpacked`.

        As with the files of a manifest, an attempt uses complete files and parts of earlier attempts.
        """
        (container,) = self.files
        attempt, most = self.context.attempt, self.context.settings.object_files
        listed = read_fetch_lists(
            self.context.decoder, unpacked, files, attempt, case_fold=case_fold, most=most
        )
        places: dict[int, str] = {}
        specs: list[Row] = []
        for line, file in enumerate(listed, container.line + 1):
            if problem := foreign_upload(file.url, container.url):
                raise content(f"{file.where}: {problem}").because(causes.LISTS_INVALID())
            places[line] = f"{file.where}: "
            specs.append(Row(line, file.url, file.path, file.digest, file.size))
        size = sum(file.size for file in files)
        check_files(self.profile, len(files) + len(specs))
        check_bytes(self.profile, size + sum(spec.size or 0 for spec in specs))
        for spec in specs:
            self.space.admit(spec.line, spec.size or 0)
        self.progress.expect(tuple(specs))

        def one_file(file: Row, attempt: Attempt) -> DownloadedFile:
            return self._beside(
                file, f"{unpacked.name}/{file.name}", attempt, self.workspace.producer / file.name
            )

        return self._gather(tuple(specs), one_file, places.__getitem__, size)

    def _beside(
        self,
        file: Row,
        name: str,
        attempt: Attempt,
        *others: Path,
        noted: Sequence[DownloadedFile] = (),
    ) -> DownloadedFile:
        """The file at `name` in the attempt's folder: an earlier attempt's, one of `others`, or fetched."""
        path = self.workspace.attempt / name
        resume.adopt_file(self.workspace, name, self.attempts, *others)
        left = resume.reusable(path, file, list(noted), attempt)
        if left is not None:
            self.space.admit(file.line, left.size)
            return left
        path.unlink(missing_ok=True)
        return self._fetch(file, path, attempt)

    def _unpack_limits(self) -> Limits:
        settings, profile = self.context.settings, self.profile
        return Limits(
            entries=settings.object_files,
            bytes=profile.limits.object_bytes or settings.object_bytes,
            ratio=EXPANSION,
            name_encoding=profile.zip_name_encoding,
            case_fold=not (profile.case_sensitive_names and self.can_hold_both_cases),
        )


def _with_declared_digests(
    step: _Download, downloaded: tuple[DownloadedFile, ...], uploaded: Collection[int]
) -> tuple[DownloadedFile, ...]:
    """The files with their declared digests; files of a container get the digest of the container.

    `uploaded`: the lines whose digest the depositor gave with the upload.
    """
    name = step.job.configuration.payload_name or "manifest"
    container = step.files[0].name if step.is_container else ""

    def with_digest(file: DownloadedFile, expected: Row) -> DownloadedFile:
        place = f"{name} line {expected.line}" if step.has_manifest else "submission"
        place = "upload" if expected.line in uploaded else place
        declared = {"declared_by": place, "container": container} if expected.digest else {"declared_by": ""}
        # an earlier attempt's processing may have set what a container declares; processing sets it again
        return file.model_copy(update={"container": "", "digest": expected.digest, **declared})

    if not step.is_container:
        return tuple(map(with_digest, downloaded, step.files))
    (of_container,) = step.files
    # the bag declares the digest of a file in its fetch.txt, as for its other files
    undeclared = replace(of_container, digest=None)
    return tuple(
        with_digest(file, of_container if file.url == of_container.url else undeclared) for file in downloaded
    )
