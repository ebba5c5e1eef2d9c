"""Our own files of a version, under `system/`: its description, its events and its manifest.

A small file stays in memory until storage writes it, because on a network disk creating, renaming and
removing a file costs several round trips. A large file is written to working storage.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha512
from itertools import chain

from pipeline.attempt import Attempt
from pipeline.description import metadata
from pipeline.fixity import READ_CHUNK, ContentFile
from pipeline.manifests import storage_manifest
from pipeline.manifests.lines import DELETION_LIST
from pipeline.names import hide_secrets
from pipeline.records import Job, SubmissionMode
from pipeline.working_storage.workspace import Draft, Workspace

SUBMITTED_MANIFEST = "mrt-submission-manifest.txt"

ERC_PATH = f"system/{metadata.ERC}"

IN_MEMORY = 1 << 20
"""Maximum bytes of a file that stays in memory; a version has about ten such files."""


def compose_all(
    job: Job,
    workspace: Workspace,
    texts: Mapping[str, Iterable[bytes]],
    producer_files: tuple[ContentFile, ...],
    attempt: Attempt,
) -> tuple[ContentFile, ...]:
    """Compose the files with these texts and, last, the manifest of all other files."""
    composed = [_compose(workspace, name, pieces) for name, pieces in texts.items()]
    with suppress(FileNotFoundError), workspace.manifest.open(encoding="latin-1", newline="") as lines:
        composed.append(_compose(workspace, SUBMITTED_MANIFEST, _without_secrets(lines)))
    if job.configuration.submission_mode is SubmissionMode.UPDATE:
        with suppress(FileNotFoundError), (workspace.producer / DELETION_LIST).open("rb") as stream:
            pieces = iter(partial(stream.read, READ_CHUNK), b"")
            composed.append(_compose(workspace, DELETION_LIST, pieces))
    files = tuple(file for file, _ in composed)
    manifest = storage_manifest.write((*producer_files, *files))
    composed.append(_compose(workspace, storage_manifest.NAME, (manifest,)))
    attempt.check()
    for file, draft in composed:
        if draft is not None:
            workspace.place(draft, file.source)
    return tuple(file for file, _ in composed)


def _compose(workspace: Workspace, name: str, pieces: Iterable[bytes]) -> tuple[ContentFile, Draft | None]:
    """Compose a file, in memory or as a draft that no other attempt sees."""
    rest = iter(pieces)
    start, size = [], 0
    for piece in rest:
        start.append(piece)
        size += len(piece)
        if size > IN_MEMORY:
            draft = workspace.draft(name, chain(start, rest))
            return _file(workspace, name, draft.size, draft.sha512), draft
    data = b"".join(start)
    return _file(workspace, name, size, sha512(data).hexdigest(), data), None


def _file(workspace: Workspace, name: str, size: int, digest: str, data: bytes | None = None) -> ContentFile:
    mime_type = storage_manifest.mime_type(name)
    return ContentFile(f"system/{name}", workspace.system / name, size, digest, mime_type, data)


def _without_secrets(lines: Iterable[str]) -> Iterator[bytes]:
    """The lines without secrets in URLs, which would give every later reader access to the sources.

    Latin-1 maps bytes to characters one to one.
    """
    return (hide_secrets(line).encode("latin-1") for line in lines)
