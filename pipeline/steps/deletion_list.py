"""The list of files that an update deletes from the object."""

from pipeline import names
from pipeline.outcome import content
from pipeline.records import Job, SubmissionMode
from pipeline.working_storage.workspace import DownloadedFile, Workspace

DELETIONS = "mrt-delete.txt"
"""A depositor's list of files that an update deletes: one path per line, relative to `producer/`."""


def is_deletion_list(job: Job, path: str) -> bool:
    return job.configuration.submission_mode is SubmissionMode.UPDATE and path == DELETIONS


def read_deletions(job: Job, workspace: Workspace, downloaded: tuple[DownloadedFile, ...]) -> tuple[str, ...]:
    """Logical paths that the update deletes."""
    if not any(is_deletion_list(job, file.path) for file in downloaded):
        return ()
    paths: dict[str, None] = {}
    try:
        text = (workspace.producer / DELETIONS).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise content(f"producer/{DELETIONS} is not UTF-8: save it as UTF-8 and submit again") from error
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line.strip():
            continue
        try:
            paths[f"producer/{names.safe_name(line)}"] = None
        except names.UnsafeName as error:
            raise content(f"producer/{DELETIONS} line {number}: {error}") from error
    return tuple(paths)
