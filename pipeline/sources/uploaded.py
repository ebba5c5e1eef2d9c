"""Files of uploads as a content source: copied from the site's folder, and checked like a download."""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pipeline.attempt import Attempt, Progress
from pipeline.fixity import OF_RECORD, READ_CHUNK, DigestMismatch, ignore, size_and_sha512
from pipeline.names import quote_name
from pipeline.outcome import StepFailed, content, system
from pipeline.sources.part import open_part
from pipeline.sources.transfer import DocumentTooLarge, Download, Downloaded
from pipeline.uploads.reading import StoredUpload, faults, locate


@dataclass(frozen=True)
class UploadedSource:
    root: Path

    def size(self, url: str) -> int:
        return locate(self.root, url).file.size

    def read(self, url: str, limit: int) -> bytes:
        """A small document, at most `limit` bytes."""
        stored = locate(self.root, url)
        if stored.file.size > limit:
            raise DocumentTooLarge(quote_name(stored.file.name), f"{stored.file.size:,} bytes", limit)
        with faults(self.root):
            data = stored.path.read_bytes()
        if size_and_sha512([data], ignore) != (stored.file.size, stored.file.sha512):
            raise _damaged(stored)
        return data

    def copy(self, file: Download, attempt: Attempt) -> Downloaded:
        """Copy one file; it appears once it has the digests of the upload and of the depositor.

        A copy and no link: the job's files may be changed in place by a fault, and the upload must not.
        """
        stored = locate(self.root, file.url)
        file.check_stated(stored.file.size)
        algorithms = {OF_RECORD, file.digest.algorithm if file.digest else OF_RECORD}
        with open_part(file.part, algorithms, file.draft) as part:
            part.restart()
            with faults(self.root):
                source = stored.path.open("rb")
            with source:
                while chunk := _next(source, self.root):
                    attempt.check()
                    part.append(chunk)
                    attempt.report(Progress(bytes=part.size))
            if (part.size, part.digests.value()) != (stored.file.size, stored.file.sha512):
                part.discard()
                raise _damaged(stored)
            try:
                if file.digest is not None:
                    part.digests.check(file.digest, file.label)
            except DigestMismatch as mismatch:
                part.discard()
                raise content(str(mismatch)) from mismatch
            attempt.check()
            part.publish(file.target)
            return Downloaded(part.size, part.digests.value())


def _next(source: BinaryIO, root: Path) -> bytes:
    with faults(root):
        return source.read(READ_CHUNK)


def _damaged(stored: StoredUpload) -> StepFailed:
    return system(
        f"{stored.path} does not have the bytes that were uploaded as {quote_name(stored.file.name)}: "
        "restore it and resume the job, or have the file uploaded and submitted again"
    )
