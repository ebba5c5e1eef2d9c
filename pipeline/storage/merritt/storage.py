"""Objects in the Merritt storage service, which fetches the files of a version from working storage.

The service knows no jobs. A version belongs to a job if its `system/mrt-ingest.txt` names the job; so a
version whose answer was lost is found, and is not stored twice (docs/decisions/0018).
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.description import anvl, storage_manifest
from pipeline.files import ContentFile, ReadBackFile, StoredFile, StoredVersion
from pipeline.http.retry import FIRST_PAUSE
from pipeline.names import PRODUCER, quote_name
from pipeline.outcome import StepFailed, content, system
from pipeline.records import SubmissionMode, now
from pipeline.settings import Settings
from pipeline.storage.base import OnRead, StoreRequest, ignore
from pipeline.storage.merritt.http import Absent, MerrittHttp
from pipeline.storage.merritt.manifest import (
    InvalidManifest,
    ManifestObject,
    ManifestVersion,
    parse,
)
from pipeline.storage.rules import carried_paths, describe_mismatch, stored_elsewhere

POSTED_BYTES = 1_000_000
"""A smaller manifest is sent with the request; a larger one is fetched by the service, like a file."""

INGEST = "system/mrt-ingest.txt"
_MANIFEST = "storage.checkm"
_NODE = re.compile(r"/manifest/(\d+)/[^/]+\Z")
_DECODED = re.compile("%20|%7c", re.IGNORECASE)


class MerrittStorage:
    def __init__(self, settings: Settings, pause: float = FIRST_PAUSE) -> None:
        self._settings = settings
        self._http = MerrittHttp(settings, pause)

    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        attempt.check()
        node = self._node(request.node)
        stored = self._object(request.ark, node)
        if self._version_of(stored, request.jid, node) is None:
            _check(request, stored)

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        node = self._node(request.node)
        stored = self._object(request.ark, node)
        version = self._version_of(stored, request.jid, node)
        if stored and version:
            return self._describe(stored, version, request.jid, node)
        _check(request, stored)
        form = self._form(request, stored)
        action = "update" if request.mode is SubmissionMode.UPDATE and stored else "add"
        fence()
        state = self._http.post(request.jid, form, action, node, request.ark)
        if state.get("objectID") != request.ark or not str(state.get("identifier", "")).isdigit():
            raise system(f"{self._http.name} answered for {state.get('objectID')}, not for {request.ark}")
        return self._confirmed(request, node, int(state["identifier"]))

    def version_of(self, ark: str, jid: str, node: int | None = None) -> StoredVersion | None:
        chosen = self._node(node)
        stored = self._object(ark, chosen)
        version = self._version_of(stored, jid, chosen)
        return self._describe(stored, version, jid, chosen) if stored and version else None

    def read(self, ark: str, path: str, number: int | None = None, node: int | None = None) -> bytes | None:
        chosen = self._node(node)
        stored = self._object(ark, chosen)
        version = _version(stored, stored.head.number if stored and number is None else number)
        file = version.files.get(path) if version else None
        if version is None or file is None:
            return None
        data = self._http.get("content", chosen, ark, version.number, path)
        if data is not None and file.sha512 not in (None, hashlib.sha512(data).hexdigest()):
            raise system(
                f"{self._http.name} delivers a damaged {quote_name(path)} of {ark}: restore it in "
                "that service"
            )
        return data

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        """Files of earlier versions are compared with the manifest; files of this version are read."""
        node = _node_in(version.url)
        listed = _version(self._object(version.ark, node), version.number)
        if listed is None:
            raise system(f"{self._http.name} no longer has version {version.number} of {version.ark}")
        for file in version.files:
            attempt.check()
            entry = listed.files.get(file.path)
            if entry is None or (entry.size, entry.sha512) != (file.size, file.sha512):
                raise system(
                    f"{self._http.name} lists a different {quote_name(file.path)} of "
                    f"{version.ark} than it was sent"
                )
            if file.added:
                self._compare_bytes(version, file, node, attempt)

    def read_back(
        self, ark: str, url: str, numbers: Collection[int] = (), on_read: OnRead = ignore
    ) -> Iterator[ReadBackFile]:
        """The service delivers all files; the digests in its manifest are not used."""
        if _NODE.search(url) is None:
            raise stored_elsewhere(ark, url, self._http.name)
        node = _node_in(url)
        stored = self._object(ark, node)
        results: dict[str, ReadBackFile] = {}
        for version in stored.versions if stored else ():
            if numbers and version.number not in numbers:
                continue
            for path, file in sorted(version.files.items()):
                if file.key not in results:
                    results[file.key] = self._read_back_file(ark, version.number, path, node, on_read)
                yield replace(results[file.key], number=version.number, path=path)

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        """Nothing to do: the service keeps unfinished versions to itself."""
        del ended
        return ()

    def _read_back_file(
        self, ark: str, number: int, path: str, node: int, on_read: Callable[[int], None]
    ) -> ReadBackFile:
        url = self._http.shown_url("content", node, ark, number, path)
        try:
            size, sha512 = self._digest((node, ark, number, path), on_read)
        except Absent as absent:
            return ReadBackFile(number, path, now(), problem=absent.message, place=url)
        return ReadBackFile(number, path, now(), size, sha512, place=url)

    def _digest(self, parts: tuple[int, str, int, str], on_read: Callable[[int], None]) -> tuple[int, str]:
        """Size and sha512 of a file of (node, ark, version, path)."""
        digest, size = hashlib.sha512(), 0
        for piece in self._http.pieces("content", *parts):
            on_read(len(piece))
            digest.update(piece)
            size += len(piece)
        return size, digest.hexdigest()

    def _compare_bytes(self, version: StoredVersion, file: StoredFile, node: int, attempt: Attempt) -> None:
        actual = self._digest((node, version.ark, version.number, file.path), lambda _: attempt.check())
        if actual != (file.size, file.sha512):
            raise system(
                f"{self._http.name} delivers a damaged {quote_name(file.path)} of {version.ark} version "
                f"{version.number}: {describe_mismatch(file, actual)}; restore it in that service"
            )

    def _node(self, node: int | None) -> int:
        return self._settings.storage_service_node if node is None else node

    def _object(self, ark: str, node: int) -> ManifestObject | None:
        body = self._http.get("manifest", node, ark)
        try:
            stored = parse(body) if body is not None else None
        except InvalidManifest as error:
            raise system(f"{self._http.name} gives an invalid manifest of {ark}: {error}") from error
        if stored and stored.ark != ark:
            raise system(f"{self._http.name} answered for {stored.ark}, not for {ark}")
        return stored

    def _version_of(self, stored: ManifestObject | None, jid: str, node: int) -> ManifestVersion | None:
        """The job's version. The search starts at the latest: usually it is that one or none."""
        for version in reversed(stored.versions if stored else ()):
            ingest = version.files.get(INGEST)
            added = ingest is not None and ingest.version == version.number
            if stored and added and jid == self._job_of(stored, version, node):
                return version
        return None

    def _job_of(self, stored: ManifestObject, version: ManifestVersion, node: int) -> str | None:
        text = self._http.get("content", node, stored.ark, version.number, INGEST)
        try:
            return dict(anvl.parse(text or b"", INGEST)).get("job")
        except StepFailed:
            return None  # a file of another system with the same name

    def _form(self, request: StoreRequest, stored: ManifestObject | None) -> dict[str, str]:
        manifest = storage_manifest.write(request.files, self._source_url)
        form = {"t": "json"}
        if len(manifest) < POSTED_BYTES:
            form["manifest"] = manifest.decode()
        else:
            form["url"] = self._source_url(_write_manifest(request, manifest))
        if request.mode is SubmissionMode.UPDATE and stored:
            # our own files describe one version: those that this version lacks are deleted
            obsolete = (
                path
                for path in stored.head.files
                if not path.startswith(PRODUCER) and path not in request.digests
            )
            form["delete"] = "".join(f"{path}\n" for path in (*request.delete, *sorted(obsolete)))
        return form

    def _source_url(self, path: Path) -> str:
        """The URL at which the service reads a file of working storage."""
        prefix = self._settings.working_storage_url
        if not prefix:
            return path.absolute().as_uri()
        try:
            below = path.absolute().relative_to(self._settings.working)
        except ValueError as error:
            raise system(f"{path} is not in working storage, {self._settings.working}") from error
        return f"{prefix.rstrip('/')}/{quote(below.as_posix())}"

    def _confirmed(self, request: StoreRequest, node: int, number: int) -> StoredVersion:
        """The version as the service lists it; StepFailed(system) if it differs from the request."""
        stored = self._object(request.ark, node)
        version = _version(stored, number)
        if stored is None or version is None:
            raise system(f"{self._http.name} reported version {number} of {request.ark}, but has none")
        for file in request.files:
            entry = version.files.get(file.path)
            if entry is None or (entry.size, entry.sha512) != (file.size, file.sha512):
                listed = f"{entry.size} bytes, {entry.algorithm} {entry.digest}" if entry else "nothing"
                raise system(
                    f"{self._http.name} lists {listed} for {quote_name(file.path)} in version {number} of "
                    f"{request.ark}, not {file.size} bytes, sha512 {file.sha512}"
                )
        return self._describe(stored, version, request.jid, node)

    def _describe(
        self, stored: ManifestObject, version: ManifestVersion, jid: str, node: int
    ) -> StoredVersion:
        return StoredVersion(
            ark=stored.ark,
            number=version.number,
            jid=jid,
            created=version.created,
            files=tuple(
                StoredFile(file.path, file.size, file.sha512 or "", added=file.version == version.number)
                for _, file in sorted(version.files.items())
            ),
            url=self._http.shown_url("manifest", node, stored.ark),
        )


def _version(stored: ManifestObject | None, number: int | None) -> ManifestVersion | None:
    return next((v for v in stored.versions if v.number == number), None) if stored else None


def _write_manifest(request: StoreRequest, manifest: bytes) -> Path:
    """Write the manifest beside the files, where the service can read it."""
    first: ContentFile = request.files[0]
    folder = first.source.parents[first.path.count("/")]
    path = folder / _MANIFEST
    draft = folder / f"{_MANIFEST}.draft"
    draft.write_bytes(manifest)
    draft.replace(path)
    return path


def _node_in(url: str) -> int:
    if match := _NODE.search(url):
        return int(match[1])
    raise system(f"{url} is not the address of an object in the storage service")


def _check(request: StoreRequest, stored: ManifestObject | None) -> None:
    """StepFailed unless the service can store this version."""
    for file in request.files:
        if _DECODED.search(file.path):
            raise content(
                f"file name {quote_name(file.path)} contains '%20' or '%7c', which the storage "
                "service decodes "
                "to a blank or a bar: rename the file"
            )
    latest = stored.head.files if stored else {}
    carried = carried_paths(request, stored.head.number if stored else 0, latest)
    foreign = sorted(path for path in carried - request.digests.keys() if latest[path].sha512 is None)
    if foreign:
        raise system(
            f"{quote_name(foreign[0])} of {request.ark} has a {latest[foreign[0]].algorithm} "
            "digest, not sha512, "
            "so an update cannot keep it: submit the whole object with mode add"
        )
