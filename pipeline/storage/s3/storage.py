"""Objects in an OCFL storage root in S3."""

import hashlib
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from functools import cached_property
from typing import TypeVar

from pipeline.attempt import UNATTENDED, Attempt, CheckedAttempt, throttled
from pipeline.files import ContentFile, FoundFile, StoredFile, StoredVersion
from pipeline.outcome import StepFailed, system, transient
from pipeline.parallel import in_parallel
from pipeline.records import now
from pipeline.storage.base import StoreRequest
from pipeline.storage.ocfl import objects, reading
from pipeline.storage.ocfl.bucket import AT_ONCE, Bucket, Conflict, Unlike
from pipeline.storage.ocfl.bucket_root import BucketRoot, Head, Keys
from pipeline.storage.ocfl.change import check, check_here, check_kept, describe, grown, unlike

T = TypeVar("T")
R = TypeVar("R")

KEY_LIMIT = 1024
"""Bytes of a key in UTF-8, by S3's rules."""

LARGE = 5 << 20
"""Bytes of the smallest file that may be sent in parts, by S3's rules."""


class S3Storage:
    """`opened` gives the bucket when it is first used: what it needs to load takes time."""

    def __init__(self, opened: Callable[[], Bucket]) -> None:
        self._opened = opened

    @cached_property
    def root(self) -> BucketRoot:
        return BucketRoot(self._opened())

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        """Send the files, checking digests; ask `fence`; replace the root inventory; write what follows.

        Each of these may be the last that this process does.
        """
        check(request)
        attempt = throttled(CheckedAttempt(fence))
        self.root.open()
        head, keys = self._settled(request.ark)
        if not (head and head.inventory.number_of(request.jid)):
            inventory = self._send(request, head, keys, attempt)
            fence()
            # A conflict may be with this very version: the answer to our first request for it was lost.
            with suppress(Conflict):
                self.root.commit(request.ark, head, inventory)
            head, keys = self._settled(request.ark)
        number = head.inventory.number_of(request.jid) if head else None
        if head is None or number is None:
            fence()
            raise transient(
                f"another process made a version of {request.ark} at the same moment; the next try of "
                f"{request.jid} comes after it"
            )
        return self._describe(head, keys, number)

    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        check(request)
        attempt.check()
        self.root.open()
        head, _ = self.root.survey(request.ark)
        if not (head and head.inventory.number_of(request.jid)):
            grown(request, head.inventory if head else None)

    def version_of(self, ark: str, jid: str, node: int | None = None) -> StoredVersion | None:
        head = self.root.head(ark)
        number = head.inventory.number_of(jid) if head else None
        return self._describe(head, self.root.keys(ark), number) if head and number else None

    def read(self, ark: str, path: str, number: int | None = None, node: int | None = None) -> bytes | None:
        head = self.root.head(ark)
        inventory = head.inventory if head else None
        version = (
            inventory.versions.get(inventory.head if number is None else f"v{number}") if inventory else None
        )
        sha512 = version.digests().get(path) if version else None
        if inventory is None or sha512 is None:
            return None
        place = inventory.manifest[sha512][0]
        got = self.root.bucket.get(self.root.place(ark, place))
        if got is None or hashlib.sha512(got.data).hexdigest() != sha512:
            raise self._damaged(ark, place, "its sha512 is another" if got else "it is missing")
        return got.data

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        """Files of earlier versions are looked for, not read: so the cost is that of what was added."""
        inventory = self._own_inventory(version.ark, f"v{version.number}")
        head = self.root.head(version.ark)
        check_kept(
            version, inventory, head.inventory if head else None, self.root.url(version.ark, "").rstrip("/")
        )
        keys = self.root.keys(version.ark)

        def compare(file: StoredFile, attempt: Attempt) -> None:
            place = inventory.manifest[file.sha512][0]
            held = keys.get(place)
            if file.added:
                self._read_held(version.ark, place, file, attempt)
            elif held is None or held.size != file.size:
                how = unlike(file, (held.size, "")) if held else "it is missing"
                raise self._damaged(version.ark, place, how)

        _each(compare, version.files, throttled(attempt))

    def read_back(
        self,
        ark: str,
        url: str,
        numbers: Collection[int] = (),
        on_read: Callable[[int], None] = lambda _: None,
    ) -> Iterator[FoundFile]:
        check_here(ark, url, "s3:", self.root.bucket.url)
        if self.root.bucket.get(objects.ROOT_DECLARATION[0]) is None:
            raise transient(
                f"{self.root.bucket.url} is no OCFL storage root: is ARKLINE_S3_ROOT what the workers have?"
            )
        head = self.root.head(ark)

        def read(place: str) -> reading.Read:
            where = self.root.url(ark, place)
            found = self.root.bucket.digest(self.root.place(ark, place), on_read)
            if found is None:
                return reading.Read(0, "", problem=f"{where} is missing", place=where)
            return reading.Read(0, "", *found, place=where)

        for each in reading.read_versions(head.inventory if head else None, numbers, read):
            yield FoundFile(each.number, each.path, now(), each.size, each.sha512, each.problem, each.place)

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        """Nothing: what was sent lies in its object's own place, and the object's next writer settles it."""
        del ended
        return ()

    def _settled(self, ark: str) -> tuple[Head | None, Keys]:
        """Head and keys of the object, once what a writer left to be written of it is there."""
        head, keys = self.root.survey(ark)
        if head:
            self.root.settle(ark, head, keys)
        return head, keys

    def _send(
        self, request: StoreRequest, head: Head | None, keys: Keys, attempt: Attempt
    ) -> objects.Inventory:
        """Bring what the object does not hold yet; what it holds is read, since ours will be thrown away.

        Answers the inventory of the version that could now be made.
        """
        held = head.inventory.manifest if head else {}
        inventory = grown(request, head.inventory if head else None)
        first = objects.first_paths({file.path: file.sha512 for file in request.files})
        if any(file.size > LARGE for file in request.files):
            self.root.bucket.drop_uploads(self.root.place(request.ark))

        def send(file: ContentFile, attempt: Attempt) -> tuple[str, str] | None:
            if file.sha512 in held:
                self._read_held(request.ark, held[file.sha512][0], file, attempt)
            elif first[file.sha512] == file.path:
                return file.sha512, self._bring(request.ark, inventory.head, file, keys, attempt)
            return None

        brought = {sha512: (place,) for sha512, place in filter(None, _each(send, request.files, attempt))}
        return inventory.model_copy(update={"manifest": {**inventory.manifest, **brought}})

    def _bring(self, ark: str, version: str, file: ContentFile, keys: Keys, attempt: Attempt) -> str:
        """Where the file lies now: under its own name, or another one if that is too long or taken.

        It is taken by an attempt that did not end. What such a one left is used if it is the same.
        """
        content = f"{version}/{objects.CONTENT}"
        for place in (f"{content}/{file.path}", f"{content}/{secrets.token_hex(16)}"):
            if len(self.root.url(ark, place).encode()) > KEY_LIMIT:
                continue
            if place not in keys and self._uploaded(self.root.place(ark, place), file, attempt):
                return place
            found = self.root.bucket.digest(self.root.place(ark, place), lambda _: attempt.check())
            if found == (file.size, file.sha512):
                return place
        raise transient(f"{self.root.url(ark, content)} is being written by another process")

    def _uploaded(self, key: str, file: ContentFile, attempt: Attempt) -> bool:
        """False if the key is taken."""
        attempt.check()
        try:
            self.root.bucket.upload(key, file.source, file.size, file.sha512, attempt)
        except Conflict:
            return False
        except Unlike as other:
            raise system(
                f"{file.source} is not what was downloaded: {unlike(file, other.found)}; "
                "delete the job and submit it again"
            ) from other
        except OSError as error:
            raise system(f"{file.source}: {error.strerror or error}") from error
        return True

    def _read_held(self, ark: str, place: str, file: ContentFile | StoredFile, attempt: Attempt) -> None:
        found = self.root.bucket.digest(self.root.place(ark, place), lambda _: attempt.check())
        if found != (file.size, file.sha512):
            raise self._damaged(ark, place, unlike(file, found) if found else "it is missing")

    def _own_inventory(self, ark: str, version: str) -> objects.Inventory:
        data, beside = (
            self.root.bucket.get(self.root.place(ark, f"{version}/{name}"))
            for name in (objects.INVENTORY, objects.SIDECAR)
        )
        where = self.root.url(ark, f"{version}/{objects.INVENTORY}")
        if data is None or beside is None:
            raise system(f"{where} or its sidecar is missing")
        return objects.vouched(data.data, beside.data, where)

    def _damaged(self, ark: str, place: str, how: str) -> StepFailed:
        return system(f"{self.root.url(ark, place)} is damaged: {how}; restore it, then resume")

    def _describe(self, head: Head, keys: Keys, number: int) -> StoredVersion:
        ark = head.inventory.id

        def size_of(place: str) -> int:
            if place not in keys:
                raise self._damaged(ark, place, "it is missing")
            return keys[place].size

        return describe(head.inventory, number, size_of, self.root.url(ark, f"v{number}"))


def _each(work: Callable[[T, Attempt], R], things: Iterable[T], attempt: Attempt) -> list[R]:
    """What `work` answers for all things; the first failure ends it."""
    with closing(in_parallel(work, things, AT_ONCE, attempt)) as outcomes:
        return [outcome.result() for _, outcome in outcomes]
