"""Objects kept by the Merritt storage service, which fetches a version's files from working storage.

The service knows no job. A version is a job's if its `system/mrt-ingest.txt` names the job; so a version
whose answer was lost is found, and is not made twice (docs/decisions/0018).
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.description import anvl, storage_manifest
from pipeline.errors import UsageRefused
from pipeline.files import ContentFile, FoundFile, StoredFile, StoredVersion
from pipeline.http.retry import FIRST_PAUSE
from pipeline.names import PRODUCER, quote_name
from pipeline.outcome import StepFailed, content, system
from pipeline.records import SubmissionMode, now
from pipeline.settings import Settings
from pipeline.storage.base import StoreRequest
from pipeline.storage.merritt.http import Absent, MerrittHttp
from pipeline.storage.merritt.manifest import HeldFile, HeldObject, HeldVersion, NotAManifest, parse

POSTED = 1_000_000
"""Bytes of a manifest that is sent with the request; a larger one is fetched, as the files are."""

INGEST = "system/mrt-ingest.txt"
_MANIFEST = "storage.checkm"
_NODE = re.compile(r"/manifest/(\d+)/[^/]+\Z")
_CHANGED = re.compile("%20|%7c", re.IGNORECASE)


class MerrittStorage:
    def __init__(self, settings: Settings, pause: float = FIRST_PAUSE) -> None:
        self._settings = settings
        self._http = MerrittHttp(settings, pause)

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        node = self._node(request.node)
        held = self._held(request.ark, node)
        made = self._version_of(held, request.jid, node)
        if held and made:
            return self._describe(held, made, request.jid, node)
        _check(request, held)
        form = self._form(request, held)
        updates = request.mode is SubmissionMode.UPDATE and held is not None
        fence()
        state = self._http.post(request.jid, form, "update" if updates else "add", node, request.ark)
        if state.get("objectID") != request.ark or not str(state.get("identifier", "")).isdigit():
            raise system(f"{self._http.name} answered for {state.get('objectID')}, not for {request.ark}")
        return self._checked(request, node, int(state["identifier"]))

    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        attempt.check()
        node = self._node(request.node)
        held = self._held(request.ark, node)
        if self._version_of(held, request.jid, node) is None:
            _check(request, held)

    def version_of(self, ark: str, jid: str, node: int | None = None) -> StoredVersion | None:
        there = self._node(node)
        held = self._held(ark, there)
        made = self._version_of(held, jid, there)
        return self._describe(held, made, jid, there) if held and made else None

    def read(self, ark: str, path: str, number: int | None = None, node: int | None = None) -> bytes | None:
        there = self._node(node)
        held = self._held(ark, there)
        wanted = held.head.number if held and number is None else number
        version = next((each for each in held.versions if each.number == wanted), None) if held else None
        file = version.files.get(path) if version else None
        if version is None or file is None:
            return None
        data = self._http.get("content", there, ark, version.number, path)
        if data is not None and file.sha512 not in (None, hashlib.sha512(data).hexdigest()):
            raise system(
                f"{self._http.name} hands over a damaged {quote_name(path)} of {ark}: restore it there"
            )
        return data

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        """Files of earlier versions are looked for in the manifest, those of this version are read."""
        node = _node_in(version.url)
        held = self._held(version.ark, node)
        there = (
            next((each for each in held.versions if each.number == version.number), None) if held else None
        )
        if there is None:
            raise system(f"{self._http.name} has no version {version.number} of {version.ark} any more")
        for file in version.files:
            attempt.check()
            kept = there.files.get(file.path)
            if kept is None or (kept.size, kept.sha512) != (file.size, file.sha512):
                raise system(
                    f"{self._http.name} lists another {quote_name(file.path)} of {version.ark} than it got"
                )
            if file.added:
                self._read_back(version, file, node, attempt)

    def read_back(
        self,
        ark: str,
        url: str,
        numbers: Collection[int] = (),
        on_read: Callable[[int], None] = lambda _: None,
    ) -> Iterator[FoundFile]:
        """The service hands every file over; what it says of their digests is not asked."""
        if _NODE.search(url) is None:
            raise UsageRefused(
                f"{ark} was stored at {url}, but the settings name {self._http.name}: give this command the "
                "storage settings that the workers have"
            )
        node = _node_in(url)
        held = self._held(ark, node)
        known: dict[str, FoundFile] = {}
        for version in held.versions if held else ():
            if numbers and version.number not in numbers:
                continue
            for path, file in sorted(version.files.items()):
                if file.key not in known:
                    known[file.key] = self._found(ark, version.number, path, node, on_read)
                yield replace(known[file.key], number=version.number, path=path)

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        """Nothing: the service prepares its versions where only it can see them."""
        del ended
        return ()

    def _found(
        self, ark: str, number: int, path: str, node: int, on_read: Callable[[int], None]
    ) -> FoundFile:
        place = self._http.shown_url("content", node, ark, number, path)
        try:
            size, sha512 = self._read((node, ark, number, path), on_read)
        except Absent as absent:
            return FoundFile(number, path, now(), problem=absent.message, place=place)
        return FoundFile(number, path, now(), size, sha512, place=place)

    def _read(self, place: tuple[int, str, int, str], on_read: Callable[[int], None]) -> tuple[int, str]:
        digest, size = hashlib.sha512(), 0
        for piece in self._http.pieces("content", *place):
            on_read(len(piece))
            digest.update(piece)
            size += len(piece)
        return size, digest.hexdigest()

    def _read_back(self, version: StoredVersion, file: StoredFile, node: int, attempt: Attempt) -> None:
        size, sha512 = self._read((node, version.ark, version.number, file.path), lambda _: attempt.check())
        if (size, sha512) != (file.size, file.sha512):
            raise system(
                f"{self._http.name} hands over {quote_name(file.path)} of {version.ark} version "
                f"{version.number} "
                f"with {size} bytes and the sha512 {sha512}; stored were {file.size} bytes and {file.sha512}"
            )

    def _node(self, wanted: int | None) -> int:
        return self._settings.storage_service_node if wanted is None else wanted

    def _held(self, ark: str, node: int) -> HeldObject | None:
        body = self._http.get("manifest", node, ark)
        try:
            held = parse(body) if body is not None else None
        except NotAManifest as error:
            raise system(f"{self._http.name} has a manifest of {ark} that cannot be used: {error}") from error
        if held and held.ark != ark:
            raise system(f"{self._http.name} answered for {held.ark} when it was asked about {ark}")
        return held

    def _version_of(self, held: HeldObject | None, jid: str, node: int) -> HeldVersion | None:
        """The latest first: what is looked for nearly always is the latest, or not there."""
        for version in reversed(held.versions if held else ()):
            ours = version.files.get(INGEST)
            if held and ours and ours.version == version.number and jid == self._job_of(held, version, node):
                return version
        return None

    def _job_of(self, held: HeldObject, version: HeldVersion, node: int) -> str | None:
        text = self._http.get("content", node, held.ark, version.number, INGEST)
        try:
            return dict(anvl.parse(text or b"", INGEST)).get("job")
        except StepFailed:
            return None  # another system's file of that name

    def _form(self, request: StoreRequest, held: HeldObject | None) -> dict[str, str]:
        manifest = storage_manifest.write(request.files, self._source_url)
        form = {"t": "json"}
        if len(manifest) < POSTED:
            form["manifest"] = manifest.decode()
        else:
            form["url"] = self._source_url(_kept_manifest(request, manifest))
        if request.mode is SubmissionMode.UPDATE and held:
            given = {file.path for file in request.files}
            # our own files describe the version that they are in
            stale = (p for p in held.head.files if not p.startswith(PRODUCER) and p not in given)
            form["delete"] = "".join(f"{path}\n" for path in (*request.delete, *sorted(stale)))
        return form

    def _source_url(self, path: Path) -> str:
        """Where the service reads a file of working storage."""
        prefix = self._settings.working_storage_url
        if not prefix:
            return path.absolute().as_uri()
        try:
            below = path.absolute().relative_to(self._settings.working)
        except ValueError as error:
            raise system(f"{path} is not in working storage, {self._settings.working}") from error
        return f"{prefix.rstrip('/')}/{quote(below.as_posix())}"

    def _checked(self, request: StoreRequest, node: int, number: int) -> StoredVersion:
        """The version as the service has it, if it is what was asked for."""
        held = self._held(request.ark, node)
        made = next((each for each in held.versions if each.number == number), None) if held else None
        if held is None or made is None:
            raise system(
                f"{self._http.name} says that it made version {number} of {request.ark}, but has none"
            )
        for file in request.files:
            kept = made.files.get(file.path)
            if kept is None or (kept.size, kept.sha512) != (file.size, file.sha512):
                found = "nothing" if kept is None else f"{kept.size} bytes, {kept.algorithm} {kept.digest}"
                raise system(
                    f"{self._http.name} has {found} for {quote_name(file.path)} in version {number} of "
                    f"{request.ark}, not {file.size} bytes, sha512 {file.sha512}"
                )
        return self._describe(held, made, request.jid, node)

    def _describe(self, held: HeldObject, made: HeldVersion, jid: str, node: int) -> StoredVersion:
        return StoredVersion(
            ark=held.ark,
            number=made.number,
            jid=jid,
            created=made.created,
            files=tuple(_stored(file, made.number) for _, file in sorted(made.files.items())),
            url=self._http.shown_url("manifest", node, held.ark),
        )


def _stored(file: HeldFile, number: int) -> StoredFile:
    return StoredFile(file.path, file.size, file.sha512 or "", added=file.version == number)


def _kept_manifest(request: StoreRequest, manifest: bytes) -> Path:
    """The manifest, beside the files, where the service can read it."""
    first: ContentFile = request.files[0]
    folder = first.source.parents[first.path.count("/")]
    path = folder / _MANIFEST
    draft = folder / f"{_MANIFEST}.draft"
    draft.write_bytes(manifest)
    draft.replace(path)
    return path


def _node_in(url: str) -> int:
    found = _NODE.search(url)
    if found is None:
        raise system(f"{url} is not the address of an object in the storage service")
    return int(found[1])


def _check(request: StoreRequest, held: HeldObject | None) -> None:
    """StepFailed unless the service can make this version."""
    for file in request.files:
        if _CHANGED.search(file.path):
            raise content(
                f"file name {quote_name(file.path)} has '%20' or '%7c' in it, which storage reads "
                "for a blank or a bar: rename the file"
            )
    if request.new and held:
        raise system(
            f"{request.ark} was just minted, but it names an object already: the counter of minted "
            "identifiers was reset; set it beyond the last ARK in storage, then submit again"
        )
    if request.mode is SubmissionMode.RESET and not held:
        raise content(f"{request.ark} is to be reset, but there is no such object: submit it with mode add")
    if request.mode is SubmissionMode.UPDATE:
        _check_update(request, held.head.files if held else {})


def _check_update(request: StoreRequest, head: dict[str, HeldFile]) -> None:
    for path in request.delete:
        if path not in head:
            raise content(f"{quote_name(path)} is to be deleted, but it is not in {request.ark}")
    carried = {path for path in head if path.startswith(PRODUCER)} - set(request.delete)
    if not any(path.startswith(PRODUCER) for path in (*carried, *(file.path for file in request.files))):
        raise content(f"{request.ark} would have no file: an object needs at least one")
    given = {file.path for file in request.files}
    foreign = sorted(path for path in carried - given if head[path].sha512 is None)
    if foreign:
        raise system(
            f"{quote_name(foreign[0])} of {request.ark} has {head[foreign[0]].algorithm} not sha512: "
            "it cannot be carried into a version of ours; submit the whole object with mode add"
        )
