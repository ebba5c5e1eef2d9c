"""The checks of the profile, in the states in which they run: what they read, and what findings mean."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pipeline.checking import running
from pipeline.checking.running import Checking
from pipeline.checks import CheckedFile, CheckRun, Stage
from pipeline.fixity import ContentFile, StoredVersion
from pipeline.names import PRODUCER
from pipeline.records import Job
from pipeline.steps.context import StepContext
from pipeline.working_storage.workspace import ContentGone, Workspace

_log = logging.getLogger(__name__)

Checked = tuple[tuple[CheckRun, ...], tuple[str, ...]]
"""The runs, and what the depositor should look at."""


def before_storing(job: Job, context: StepContext, files: Iterable[ContentFile]) -> Checked:
    """Check the deposited files; StepFailed(content) if a finding stops the job."""
    checking = context.checking(job)
    if not checking.at(Stage.DOWNLOADED):
        return (), ()
    given = tuple(
        CheckedFile(file.path.removeprefix(PRODUCER), file.source, file.size, file.sha512) for file in files
    )
    runs = running.run(checking, Stage.DOWNLOADED, given)
    return runs, running.judge(checking, runs, given)


def after_storing(job: Job, context: StepContext, version: StoredVersion, stage: Stage) -> Checked:
    """Check what the version added to storage; `runs` are those of all stages up to this one."""
    checking = context.checking(job)
    if not checking.rules:
        return (), ()
    digests = {path: sha512 for path, _, sha512 in _added(version)}
    remarks: tuple[str, ...] = ()
    if checking.at(stage):
        with _files(checking, context, version) as files:
            runs = running.run(checking, stage, files)
            remarks = running.judge(checking, runs, files)
        for remark in remarks:
            _log.warning("a check of a stored version: %s", remark)
    return running.noted(checking, digests), remarks


def _added(version: StoredVersion) -> Iterator[tuple[str, int, str]]:
    """Path, size and digest of the deposited files that the version added."""
    for file in version.files:
        if file.added and file.path.startswith(PRODUCER):
            yield file.path.removeprefix(PRODUCER), file.size, file.sha512


@contextmanager
def _files(
    checking: Checking, context: StepContext, version: StoredVersion
) -> Iterator[tuple[CheckedFile, ...]]:
    """The files as they were downloaded; if working storage does not have them any more, from storage."""
    workspace = checking.workspace
    try:
        sizes = {file.path: file.size for file in workspace.read_content()}
    except ContentGone:
        sizes = {}
    added = tuple(_added(version))
    folder = workspace.producer
    if any(sizes.get(path) != size for path, size, _ in added):
        folder = workspace.attempt / "stored"
        _copy(context, workspace, version, {path for path, _, _ in added})
    yield tuple(CheckedFile(path, folder / path, size, sha512) for path, size, sha512 in added)


def _copy(context: StepContext, workspace: Workspace, version: StoredVersion, paths: set[str]) -> None:
    """Copy the files from storage into the folder of this attempt, which goes with the working directory."""
    for file in context.storage.read_out(version.ark, version.url, version.number):
        path = file.path.removeprefix(PRODUCER)
        if not file.path.startswith(PRODUCER) or path not in paths:
            continue
        target = workspace.attempt / "stored" / path
        workspace.make_folder(target.parent)
        with target.open("wb") as copy:
            for piece in file.pieces:
                context.attempt.check()
                copy.write(piece)
