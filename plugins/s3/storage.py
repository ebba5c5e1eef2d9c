"""Objects in an OCFL storage root in S3."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from pipeline.attempt import UNATTENDED, Attempt, CheckedAttempt, in_parallel, throttled
from pipeline.deployment import Expected
from pipeline.fixity import ContentFile, StoredVersion
from pipeline.outcome import (
    DamagedObject,
    Service,
    ServiceDown,
    StepFailed,
    fault_of,
    of_object,
    system,
    transient,
)
from pipeline.plugins import lacking
from pipeline.settings import Settings, read_settings
from pipeline.storage.base import StoreRequest, check_request, stored_elsewhere
from pipeline.storage.ocfl import objects
from pipeline.storage.ocfl.reading import OcflReader
from plugins.s3.keys import CONNECTIONS, Refused
from plugins.s3.root import BucketObject, BucketRoot, Head
from plugins.s3.settings import S3Settings

if TYPE_CHECKING:
    from plugins.s3.bucket import S3Bucket

T = TypeVar("T")
R = TypeVar("R")

OBJECT_DEPTH = 4
"""Folders above the files of an object: three of the layout and its own."""

MAX_KEY_BYTES = 1024
"""Bytes of a key in UTF-8, by S3's rules."""

MIN_MULTIPART_BYTES = 5 << 20
"""Minimum size of a file uploaded in parts, by S3's rules."""


def open_storage(settings: Settings, expected: Expected | None = None) -> "S3Storage":
    own = read_settings(S3Settings)
    return S3Storage(lambda: _open_bucket(settings, own), expected)


def _open_bucket(settings: Settings, own: S3Settings) -> "S3Bucket":
    """boto3 is an extra and takes half a second to import, so it is imported when a bucket is first used."""
    try:
        from plugins.s3.bucket import open_bucket
    except ModuleNotFoundError as error:
        missing = lacking("s3_root", f"package {error.name}", "arkline[s3]")
        raise system(f"{missing}, then resume the job") from error
    return open_bucket(settings, own)


class S3Storage(OcflReader):
    """`open_bucket` is called when the bucket is first used, because loading boto3 takes time."""

    def __init__(self, open_bucket: Callable[[], "S3Bucket"], expected: Expected | None = None) -> None:
        self.expected = expected
        self._open_bucket = open_bucket

    @cached_property
    def root(self) -> BucketRoot:
        return BucketRoot(self._open_bucket())

    @fault_of(Service.STORAGE)
    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        check_request(request)
        attempt.check()
        self.confirm()
        self.root.open()
        head = self.object(request.ark).head_for_writer()
        if not (head and head.inventory.number_of(request.jid, request.key)):
            objects.next_inventory(head.inventory if head else None, request)

    @fault_of(Service.STORAGE)
    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Upload the files and check their digests; call `fence`; replace the root inventory; write the rest.

        The process may stop after any of these steps.
        """
        check_request(request)
        self.confirm()
        self.root.open()
        stored = self.object(request.ark)
        head = stored.repaired_head()
        if not (head and head.inventory.number_of(request.jid, request.key)):
            inventory = self._upload(request, stored, head, throttled(CheckedAttempt(fence)))
            self.confirm()
            fence()
            # The conflict may be with this very version: the answer to our first request was lost.
            with suppress(Refused):
                stored.commit(head, inventory)
            stored = self.object(request.ark)
            head = stored.repaired_head()
        number = head.inventory.number_of(request.jid, request.key) if head else None
        if head is None or number is None:
            fence()
            raise of_object(
                request.ark,
                f"another process published a version of {request.ark} at the same time; {request.jid} will "
                "try again",
            )
        return stored.describe(head.inventory, number)

    def distinguishes_case(self) -> bool:
        return True

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        """Nothing to do: uploaded files are under the object's own prefix, and its next writer cleans up."""
        del ended
        return ()

    @property
    def place(self) -> str:
        return self.root.bucket.url

    def inventories(self) -> Iterator[tuple[str, objects.Inventory | StepFailed]]:
        """The root inventories; keys are listed in pages, so that memory does not grow with the bucket."""
        bucket = self.root.bucket
        for key, _ in bucket.iterate(""):
            if key.count("/") != OBJECT_DEPTH or not key.endswith(f"/{objects.INVENTORY}"):
                continue
            try:
                stored = bucket.get(key)
                inventory = objects.parse(stored.data, f"{bucket.url}/{key}") if stored else None
            except ServiceDown:
                raise
            except StepFailed as fault:
                yield f"{bucket.url}/{key}", fault
                continue
            if inventory is not None:
                yield f"{bucket.url}/{key}", inventory

    def read_root_file(self, path: str) -> bytes | None:
        stored = self.root.bucket.get(path)
        return stored.data if stored else None

    def add_root_file(self, path: str, data: bytes) -> None:
        self.root.open()
        with suppress(Refused):
            self.root.bucket.put(path, data, None)

    def object(self, ark: str) -> BucketObject:
        return BucketObject(self.root.bucket, ark)

    def failures(self) -> AbstractContextManager[None]:
        """The bucket translates its errors itself; transient ones are the service's."""
        return fault_of(Service.STORAGE)

    def check_readable(self, ark: str, url: str) -> None:
        if not url.startswith("s3:"):
            raise stored_elsewhere(ark, url, f"the OCFL root {self.root.bucket.url}")
        if self.root.bucket.get(objects.DECLARATION) is None:
            raise transient(
                f"{self.root.bucket.url} is not an OCFL storage root: set ARKLINE_S3_ROOT as for the workers"
            )

    def check_inventories(self, version: StoredVersion) -> objects.Inventory:
        """Finishes first what a writer left that stopped after its version was published."""
        try:
            return super().check_inventories(version)
        except DamagedObject:
            self.object(version.ark).repaired_head()
            return super().check_inventories(version)

    def for_all(self, work: Callable[[T, Attempt], R], files: Iterable[T], attempt: Attempt) -> list[R]:
        """The results of `work`; the first failure stops the others."""
        with closing(in_parallel(work, files, CONNECTIONS, attempt)) as outcomes:
            return [outcome.result() for _, outcome in outcomes]

    def _upload(
        self, request: StoreRequest, stored: BucketObject, head: Head | None, attempt: Attempt
    ) -> objects.Inventory:
        """Upload new content; read back content that the object has, because our copy will be deleted.

        Returns the inventory of the version that can now be published.
        """
        manifest = head.inventory.manifest if head else {}
        inventory = objects.next_inventory(head.inventory if head else None, request)
        first_paths = objects.first_paths(request.digests)
        if any(file.size > MIN_MULTIPART_BYTES for file in request.files):
            self.root.bucket.drop_uploads(stored.key(""))

        def upload(file: ContentFile, attempt: Attempt) -> tuple[str, str] | None:
            if file.sha512 in manifest:
                stored.compare_bytes(manifest[file.sha512][0], file, attempt)
            elif first_paths[file.sha512] == file.path:
                return file.sha512, self._upload_file(stored, inventory.head, file, attempt)
            return None

        uploaded = self.for_all(upload, request.files, attempt)
        added = {sha512: (path,) for sha512, path in filter(None, uploaded)}
        return inventory.model_copy(update={"manifest": {**inventory.manifest, **added}})

    def _upload_file(self, stored: BucketObject, version: str, file: ContentFile, attempt: Attempt) -> str:
        """The content path of the file: its own name, or a random one if that is too long or taken.

        A name may be taken by an unfinished attempt; its content is used if it has the same bytes.
        """
        content = f"{version}/{objects.CONTENT}"
        for path in (f"{content}/{file.path}", f"{content}/{secrets.token_hex(16)}"):
            if len(stored.location(path).encode()) > MAX_KEY_BYTES:
                continue
            if path not in stored.listing() and self._uploaded(stored.key(path), file, attempt):
                return path
            if stored.digest(path, lambda _: attempt.check()) == (file.size, file.sha512):
                return path
        raise of_object(stored.location(content), f"another process is writing {stored.location(content)}")

    def _uploaded(self, key: str, file: ContentFile, attempt: Attempt) -> bool:
        """Upload the file; False if the key is taken."""
        attempt.check()
        try:
            self.root.bucket.upload(key, file, attempt)
        except Refused:
            return False
        except OSError as error:
            raise system(f"{file.source}: {error.strerror or error}") from error
        return True
