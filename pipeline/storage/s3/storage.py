"""Objects in an OCFL storage root in S3."""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from functools import cached_property
from typing import TypeVar

from pipeline.attempt import UNATTENDED, Attempt, CheckedAttempt, throttled
from pipeline.files import ContentFile, ReadBackFile, StoredFile, StoredVersion
from pipeline.outcome import system, transient
from pipeline.parallel import in_parallel
from pipeline.storage.base import OnRead, StoreRequest, ignore
from pipeline.storage.ocfl import objects, reading
from pipeline.storage.ocfl.bucket import CONNECTIONS, Bucket, Conflict, DigestMismatch
from pipeline.storage.ocfl.bucket_root import BucketObject, BucketRoot, Head, Keys
from pipeline.storage.rules import changed_source, check_request, stored_elsewhere

T = TypeVar("T")
R = TypeVar("R")

MAX_KEY_BYTES = 1024
"""Bytes of a key in UTF-8, by S3's rules."""

MIN_MULTIPART_BYTES = 5 << 20
"""Size of the smallest file that may be uploaded in parts, by S3's rules."""


class S3Storage:
    """`open_bucket` is called when the bucket is first used, because loading boto3 takes time."""

    def __init__(self, open_bucket: Callable[[], Bucket]) -> None:
        self._open_bucket = open_bucket

    @cached_property
    def root(self) -> BucketRoot:
        return BucketRoot(self._open_bucket())

    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        check_request(request)
        attempt.check()
        self.root.open()
        head, _ = self.root.head_and_keys(request.ark)
        if not (head and head.inventory.number_of(request.jid)):
            objects.next_inventory(head.inventory if head else None, request)

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Upload the files and check their digests; call `fence`; replace the root inventory; write the rest.

        The process may stop after any of these steps.
        """
        check_request(request)
        self.root.open()
        head, keys = self._repaired(request.ark)
        if not (head and head.inventory.number_of(request.jid)):
            inventory = self._upload(request, head, keys, throttled(CheckedAttempt(fence)))
            fence()
            # A conflict may be with this very version: the answer to our first request was lost.
            with suppress(Conflict):
                self.root.commit(request.ark, head, inventory)
            head, keys = self._repaired(request.ark)
        number = head.inventory.number_of(request.jid) if head else None
        if head is None or number is None:
            fence()
            raise transient(
                f"another process published a version of {request.ark} at the same time; {request.jid} will "
                "try again"
            )
        return self._describe(head, keys, number)

    def version_of(self, ark: str, jid: str, node: int | None = None) -> StoredVersion | None:
        head = self.root.head(ark)
        number = head.inventory.number_of(jid) if head else None
        return self._describe(head, self.root.keys(ark), number) if head and number else None

    def read(self, ark: str, path: str, number: int | None = None, node: int | None = None) -> bytes | None:
        head = self.root.head(ark)
        return reading.read_file(BucketObject(self.root, ark), head.inventory if head else None, path, number)

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        stored = BucketObject(self.root, version.ark, self.root.keys(version.ark))
        inventory = reading.read_version(stored, f"v{version.number}")
        head = self.root.head(version.ark)
        reading.check_stored(version, inventory, head.inventory if head else None)

        def verify_file(file: StoredFile, attempt: Attempt) -> None:
            reading.verify_file(stored, inventory, file, attempt)

        _in_parallel(verify_file, version.files, throttled(attempt))

    def read_back(
        self, ark: str, url: str, numbers: Collection[int] = (), on_read: OnRead = ignore
    ) -> Iterator[ReadBackFile]:
        if not url.startswith("s3:"):
            raise stored_elsewhere(ark, url, f"the OCFL root {self.root.bucket.url}")
        if self.root.bucket.get(objects.ROOT_DECLARATION[0]) is None:
            raise transient(
                f"{self.root.bucket.url} is not an OCFL storage root: set ARKLINE_S3_ROOT as for the workers"
            )
        head = self.root.head(ark)
        stored = BucketObject(self.root, ark)
        yield from reading.read_back(stored, head.inventory if head else None, numbers, on_read)

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        """Nothing to do: uploaded files are under the object's own prefix, and its next writer repairs it."""
        del ended
        return ()

    def _repaired(self, ark: str) -> tuple[Head | None, Keys]:
        """Head and keys of the object, after the work of a stopped writer was finished."""
        head, keys = self.root.head_and_keys(ark)
        if head:
            self.root.repair(ark, head, keys)
        return head, keys

    def _upload(
        self, request: StoreRequest, head: Head | None, keys: Keys, attempt: Attempt
    ) -> objects.Inventory:
        """Upload new content; read content that the object has already, because our copy will be deleted.

        Returns the inventory of the version that can now be published.
        """
        stored = BucketObject(self.root, request.ark, keys)
        manifest = head.inventory.manifest if head else {}
        inventory = objects.next_inventory(head.inventory if head else None, request)
        first_paths = objects.first_paths(request.digests)
        if any(file.size > MIN_MULTIPART_BYTES for file in request.files):
            self.root.bucket.drop_uploads(self.root.key(request.ark))

        def upload(file: ContentFile, attempt: Attempt) -> tuple[str, str] | None:
            if file.sha512 in manifest:
                reading.compare_bytes(stored, manifest[file.sha512][0], file, attempt)
            elif first_paths[file.sha512] == file.path:
                return file.sha512, self._upload_file(request.ark, inventory.head, file, keys, attempt)
            return None

        added = {
            sha512: (path,) for sha512, path in filter(None, _in_parallel(upload, request.files, attempt))
        }
        return inventory.model_copy(update={"manifest": {**inventory.manifest, **added}})

    def _upload_file(self, ark: str, version: str, file: ContentFile, keys: Keys, attempt: Attempt) -> str:
        """The content path of the file: its own name, or a random one if that is too long or taken.

        A name is taken by an unfinished attempt; its content is used if it has the same bytes.
        """
        content = f"{version}/{objects.CONTENT}"
        for path in (f"{content}/{file.path}", f"{content}/{secrets.token_hex(16)}"):
            if len(self.root.url(ark, path).encode()) > MAX_KEY_BYTES:
                continue
            if path not in keys and self._uploaded(self.root.key(ark, path), file, attempt):
                return path
            actual = self.root.bucket.digest(self.root.key(ark, path), lambda _: attempt.check())
            if actual == (file.size, file.sha512):
                return path
        raise transient(f"another process is writing {self.root.url(ark, content)}")

    def _uploaded(self, key: str, file: ContentFile, attempt: Attempt) -> bool:
        """False if the key is taken."""
        attempt.check()
        try:
            self.root.bucket.upload(key, file.source, file.size, file.sha512, attempt)
        except Conflict:
            return False
        except DigestMismatch as mismatch:
            raise changed_source(file, mismatch.actual) from mismatch
        except OSError as error:
            raise system(f"{file.source}: {error.strerror or error}") from error
        return True

    def _describe(self, head: Head, keys: Keys, number: int) -> StoredVersion:
        ark = head.inventory.id
        stored = BucketObject(self.root, ark, keys)
        return reading.describe(stored, head.inventory, number, self.root.url(ark, f"v{number}"))


def _in_parallel(work: Callable[[T, Attempt], R], files: Iterable[T], attempt: Attempt) -> list[R]:
    """The results of `work` for all files; the first failure stops the others."""
    with closing(in_parallel(work, files, CONNECTIONS, attempt)) as outcomes:
        return [outcome.result() for _, outcome in outcomes]
