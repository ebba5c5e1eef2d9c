"""A job's working directory, and the list of downloaded files that the steps pass on.

Layout of a working directory: `producer/` the depositor's files, complete ones only; `system/` our files;
`attempts/TOKEN/` one attempt's unfinished files; `manifest.checkm` the object manifest;
`landing.json` the downloaded files with size and digest, written last; `stored.json` the stored version.
"""

from pathlib import Path

from pydantic import TypeAdapter

from pipeline.files import StoredVersion
from pipeline.fixity import Digest
from pipeline.outcome import system
from pipeline.records import Job, Record


class DownloadedFile(Record):
    """One file under `producer/`: its path there, size in bytes, and digest of record."""

    path: str
    size: int
    sha512: str
    url: str = ""
    digest: Digest | None = None
    """Declared for the file, or for `container`; checked before the file was put here."""
    declared_by: str | None = None
    """Where the digest was declared, in words; empty if none was, None in records of early releases."""
    container: str = ""
    """The container whose digest it is; empty if the digest is the file's own."""


_FILES = TypeAdapter(tuple[DownloadedFile, ...])
_STORED = TypeAdapter(StoredVersion)


class Workspace:
    """Paths of one job's working directory."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder = folder
        self.producer = folder / "producer"
        self.system = folder / "system"
        self.attempt = folder / "attempts" / token
        self.manifest = folder / "manifest.checkm"
        self.downloaded = folder / "landing.json"
        self.stored = folder / "stored.json"

    @classmethod
    def of(cls, job: Job) -> "Workspace":
        return cls(Path(job.configuration.working_dir), job.status.op or "none")

    def publish(self, path: Path, data: bytes) -> None:
        """Write a file below the working directory; it is complete or absent at any moment."""
        self.attempt.mkdir(parents=True, exist_ok=True)
        draft = self.attempt / f"{path.name}.draft"
        draft.write_bytes(data)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.replace(path)

    def write_downloaded(self, files: tuple[DownloadedFile, ...]) -> None:
        self.publish(self.downloaded, _FILES.dump_json(files, indent=1))

    def read_downloaded(self) -> tuple[DownloadedFile, ...]:
        try:
            return _FILES.validate_json(self.downloaded.read_bytes())
        except (OSError, ValueError) as error:
            raise system(
                f"{self.downloaded} is missing or damaged ({error}): "
                "fail the job and resume it from downloading"
            ) from error


def write_stored(workspace: Workspace, version: StoredVersion) -> None:
    workspace.publish(workspace.stored, _STORED.dump_json(version, indent=1))


def read_stored(workspace: Workspace) -> StoredVersion | None:
    """The stored version; None if the file is lost; then storage has the answer."""
    try:
        return _STORED.validate_json(workspace.stored.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
