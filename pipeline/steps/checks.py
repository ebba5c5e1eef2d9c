"""The checks of the profile, in the states in which they run: what they read, and what findings mean."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.checking import running
from pipeline.checking.running import NOTHING_FOUND, Checking, Judged
from pipeline.checking.stored import StoredFiles
from pipeline.checks import CheckedFile, CheckRun, Stage
from pipeline.fixity import StoredVersion
from pipeline.names import PRODUCER
from pipeline.records import Job
from pipeline.steps.context import StepContext
from pipeline.steps.expected_files import deposited
from pipeline.working_storage.mount import ContentGone
from pipeline.working_storage.workspace import DownloadedFile

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checked:
    """What checks of a job found, and what that means."""

    runs: tuple[CheckRun, ...] = ()
    judged: Judged = NOTHING_FOUND


def before_storing(job: Job, context: StepContext, downloaded: Iterable[DownloadedFile]) -> Checked:
    """Check the deposited files; StepFailed(content) if a finding stops the job.

    What an earlier step or attempt has checked is not checked again, unless the check has another version.
    """
    checking = context.checking(job)
    if not checking.at(Stage.DOWNLOADED):
        return Checked()
    folder = checking.workspace.producer
    given = tuple(
        CheckedFile(file.path, folder / file.path, file.size, file.sha512)
        for file in deposited(job, downloaded)
    )
    runs = running.run(checking, Stage.DOWNLOADED, given)
    return Checked(runs, running.judge(checking, runs, given))


def after_storing(job: Job, context: StepContext, version: StoredVersion, stage: Stage) -> Checked:
    """Check what the version added to storage; `runs` are those of all stages up to this one."""
    checking = context.checking(job)
    if not checking.rules:
        return Checked()
    digests = {path: sha512 for path, _, sha512 in _added(version)}
    judged = NOTHING_FOUND
    if checking.at(stage):
        files = _files(checking, context, version)
        judged = running.judge(checking, running.run(checking, stage, files), files)
        for remark in judged.remarks:
            _log.warning("a check of a stored version: %s", remark)
    return Checked(running.noted(checking, digests), judged)


def _added(version: StoredVersion) -> Iterator[tuple[str, int, str]]:
    """Path, size and digest of the deposited files that the version added."""
    for file in version.files:
        if file.added and file.path.startswith(PRODUCER):
            yield file.path.removeprefix(PRODUCER), file.size, file.sha512


def _files(checking: Checking, context: StepContext, version: StoredVersion) -> tuple[CheckedFile, ...]:
    """The files as they were downloaded; if working storage does not have them any more, from storage."""
    workspace = checking.workspace
    try:
        sizes = {file.path: file.size for file in workspace.read_content()}
    except ContentGone:
        sizes = {}
    added = tuple(_added(version))
    are_there = all(sizes.get(path) == size for path, size, _ in added)
    folder = workspace.producer if are_there else workspace.attempt / "stored"
    files = tuple(CheckedFile(path, folder / path, size, sha512) for path, size, sha512 in added)
    if not are_there:
        stored = StoredFiles.of(context.storage, version.ark, version.url, version.number)
        for file in sorted(files, key=lambda file: file.path):
            stored.copy(file, workspace, context.attempt)
    return files
