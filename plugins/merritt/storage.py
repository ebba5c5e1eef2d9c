"""Objects in the Merritt storage service, which fetches a version's files from working storage.

The service has no concept of jobs. A version belongs to a job if its `system/mrt-ingest.txt` names the job;
so the next attempt finds a version whose answer was lost, and does not store it twice (docs/decisions/0018).
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from pipeline.attempt import UNATTENDED, Attempt
from pipeline.deployment import Expected
from pipeline.description import anvl
from pipeline.errors import UsageRefused
from pipeline.file_system import write_whole
from pipeline.fixity import (
    ContentFile,
    OnRead,
    ReadBackFile,
    StoredFile,
    StoredVersion,
    ignore,
    size_and_sha512,
)
from pipeline.http.service import FIRST_PAUSE
from pipeline.manifests import storage_manifest
from pipeline.names import PRODUCER, quote_name
from pipeline.outcome import DamagedObject, StepFailed, content, damaged, system
from pipeline.records import SubmissionMode, now, reused
from pipeline.settings import Settings, read_settings
from pipeline.storage import base
from pipeline.storage.base import (
    NOTHING_READ,
    OutgoingFile,
    StoreRequest,
    VersionEntry,
    carried_paths,
    check_names,
    describe_mismatch,
    stored_elsewhere,
)
from plugins.merritt.http import Absent, MerrittHttp
from plugins.merritt.manifest import ManifestObject, ManifestVersion, listed, parse
from plugins.merritt.settings import MerrittSettings

POSTED_BYTES = 1_000_000
"""Maximum size of a manifest sent with the request; the service fetches a larger one like a file."""

INGEST = "system/mrt-ingest.txt"
_MANIFEST = "storage.checkm"
_DECODED = re.compile("%20|%7c", re.IGNORECASE)
_NODE = re.compile(r"/manifest/(\d+)/[^/]+\Z")


def open_storage(settings: Settings, expected: Expected | None) -> "MerrittStorage":
    """The storage; `expected` is not used: the service belongs to no single deployment."""
    del expected
    return MerrittStorage(settings, read_settings(MerrittSettings))


class MerrittStorage:
    def __init__(self, settings: Settings, own: MerrittSettings, pause: float = FIRST_PAUSE) -> None:
        self._working = settings.working
        self._own = own
        self._http = MerrittHttp(settings, own, pause)

    def check(self, request: StoreRequest, attempt: Attempt = UNATTENDED) -> None:
        attempt.check()
        node = self.node_of(request.node)
        stored = self._object(request.ark, node)
        if self._version_of(stored, request.jid, node, request.key) is None:
            _check_request(request, stored)

    def store(self, request: StoreRequest, fence: Callable[[], None]) -> StoredVersion:
        node = self.node_of(request.node)
        stored = self._object(request.ark, node)
        own = self._version_of(stored, request.jid, node, request.key)
        if own is None:
            _check_request(request, stored)
            own = self._make_version(request, stored, node, fence), request.key
        return self._describe(request.ark, *own, request.jid, node)

    def distinguishes_case(self) -> bool:
        """True: its nodes are buckets."""
        return True

    def node_of(self, node: int | None) -> int:
        return self._own.storage_service_node if node is None else node

    def version_of(self, ark: str, jid: str, node: int | None = None, key: str = "") -> StoredVersion | None:
        chosen = self.node_of(node)
        own = self._version_of(self._object(ark, chosen), jid, chosen, key)
        return self._describe(ark, *own, jid, chosen) if own else None

    def has_object(self, ark: str, node: int | None = None) -> bool:
        return self._object(ark, self.node_of(node)) is not None

    def versions(self) -> Iterator[VersionEntry]:
        raise UsageRefused(f"{self._http.name} cannot list its objects: ask that service for a list")

    def versions_of(self, ark: str, url: str = "") -> tuple[VersionEntry, ...]:
        node = _node_in(url) if url else self.node_of(None)
        return listed(self._object(ark, node), self._http.shown_url("manifest", node, ark))

    def deployment_store(self) -> None:
        """None: the service belongs to many repositories, and keeps no file of ours outside objects."""

    def read(
        self, ark: str, path: str, number: int | None = None, node: int | None = None, url: str = ""
    ) -> bytes | None:
        chosen = _node_in(url) if url else self.node_of(node)
        version = _version(self._object(ark, chosen), number)
        file = version.files.get(path) if version else None
        if version is None or file is None:
            return None
        data = self._http.get("content", chosen, ark, version.number, path)
        if data is None:
            raise self._lost(ark, path)
        if file.sha512 not in (None, hashlib.sha512(data).hexdigest()):
            raise damaged(
                f"{self._http.name} delivers a damaged {quote_name(path)} of {ark}: restore it in that "
                "service"
            )
        return data

    def _lost(self, ark: str, path: str) -> DamagedObject:
        return damaged(
            f"{self._http.name} lists {quote_name(path)} of {ark}, and does not have it: restore it in that "
            "service"
        )

    def verify(self, version: StoredVersion, attempt: Attempt = UNATTENDED) -> None:
        """Compare files of earlier versions with the manifest; read the files of this version."""
        node = _node_in(version.url)
        listed = _version(self._object(version.ark, node), version.number)
        if listed is None:
            raise system(f"{self._http.name} no longer has version {version.number} of {version.ark}")
        for file in version.files:
            attempt.check()
            self._check_listed(version.ark, listed, file)
            if file.added:
                self._compare_bytes(version, file, node, attempt)

    def read_back(
        self,
        ark: str,
        url: str,
        numbers: Collection[int] = (),
        on_read: OnRead = ignore,
        already: Mapping[str, ReadBackFile] = NOTHING_READ,
    ) -> Iterator[ReadBackFile]:
        """Read back all files; the digests in the service's manifest are not used."""
        stored, node = self._opened(ark, url)
        results: dict[str, ReadBackFile] = {}
        for version in stored.versions if stored else ():
            if numbers and version.number not in numbers:
                continue
            for path, file in sorted(version.files.items()):
                if file.key not in results:
                    place = self._http.shown_url("content", node, ark, version.number, path)
                    results[file.key] = already.get(place) or self._read_back_file(
                        ark, version.number, path, node, on_read
                    )
                yield replace(results[file.key], number=version.number, path=path)

    def problems_of(self, ark: str, url: str) -> tuple[str, ...]:
        """Empty: the service does not expose the files that describe an object."""
        del ark, url
        return ()

    def read_out(self, ark: str, url: str, number: int, path: str = "") -> Iterator[OutgoingFile]:
        node = self._node_of(url, ark)
        if path:
            yield OutgoingFile(path, self._pieces(node, ark, number, path))
            return
        version = _version(self._object(ark, node), number)
        for one in sorted(version.files) if version else ():
            yield OutgoingFile(one, self._pieces(node, ark, number, one))

    def _pieces(self, *parts: str | int) -> Iterator[bytes]:
        try:
            yield from self._http.pieces("content", *parts)
        except Absent as absent:
            raise damaged(absent.message) from absent

    def _opened(self, ark: str, url: str) -> tuple[ManifestObject | None, int]:
        """The object as the service lists it, and its node, for reading."""
        node = self._node_of(url, ark)
        return self._object(ark, node), node

    def _node_of(self, url: str, ark: str) -> int:
        if _NODE.search(url) is None:
            raise stored_elsewhere(ark, url, self._http.name)
        return _node_in(url)

    def tidy(self, ended: Callable[[str], bool]) -> tuple[str, ...]:
        """Nothing to do: the service does not expose unfinished versions."""
        del ended
        return ()

    def _read_back_file(self, ark: str, number: int, path: str, node: int, on_read: OnRead) -> ReadBackFile:
        url = self._http.shown_url("content", node, ark, number, path)
        try:
            size, sha512 = self._digest((node, ark, number, path), on_read)
        except Absent as absent:
            return ReadBackFile(number, path, now(), problem=absent.message, place=url)
        return ReadBackFile(number, path, now(), size, sha512, place=url)

    def _digest(self, parts: tuple[int, str, int, str], on_read: OnRead) -> tuple[int, str]:
        """Size and sha512 of the file with these (node, ark, version, path)."""
        return size_and_sha512(self._http.pieces("content", *parts), on_read)

    def _compare_bytes(self, version: StoredVersion, file: StoredFile, node: int, attempt: Attempt) -> None:
        parts = node, version.ark, version.number, file.path
        try:
            actual = self._digest(parts, lambda _: attempt.check())
        except Absent as absent:
            raise self._lost(version.ark, file.path) from absent
        if actual != (file.size, file.sha512):
            raise damaged(
                f"{self._http.name} delivers a damaged {quote_name(file.path)} of {version.ark} version "
                f"{version.number}: {describe_mismatch(file, actual)}; restore it in that service"
            )

    def _object(self, ark: str, node: int) -> ManifestObject | None:
        body = self._http.get("manifest", node, ark)
        try:
            stored = parse(body) if body is not None else None
        except ValueError as error:
            raise damaged(f"{self._http.name} gives an invalid manifest of {ark}: {error}") from error
        if stored and stored.ark != ark:
            raise system(f"{self._http.name} answered for {stored.ark}, not for {ark}")
        return stored

    def _version_of(
        self, stored: ManifestObject | None, jid: str, node: int, key: str
    ) -> tuple[ManifestVersion, str] | None:
        """The job's version and its key; searches from the latest version, which usually is it if any is.

        StepFailed if another job with the same id created it.
        """
        for version in reversed(stored.versions if stored else ()):
            ingest = version.files.get(INGEST)
            if stored is None or ingest is None or ingest.version != version.number:
                continue
            job, stored_key = self._job_of(stored, version, node)
            if jid == job:
                if key and stored_key and key != stored_key:
                    raise reused(jid, f"it stored version {version.number} of {stored.ark}")
                return version, stored_key
        return None

    def _job_of(self, stored: ManifestObject, version: ManifestVersion, node: int) -> tuple[str, str]:
        """Id and key of the job; empty if the service has neither."""
        text = self._http.get("content", node, stored.ark, version.number, INGEST)
        try:
            elements = dict(anvl.parse(text or b"", INGEST))
        except StepFailed:
            return "", ""  # another system's file with the same name
        return elements.get("job", ""), elements.get("jobKey", "")

    def _make_version(
        self, request: StoreRequest, stored: ManifestObject | None, node: int, fence: Callable[[], None]
    ) -> ManifestVersion:
        """Create the version; returns it as listed by the service. StepFailed(system) if it differs."""
        name, ark = self._http.name, request.ark
        _write_own_files(request)
        form = self._form(request, stored)
        action = "update" if request.mode is SubmissionMode.UPDATE and stored else "add"
        fence()
        state = self._http.post(request.jid, form, action, node, ark)
        number = str(state.get("identifier", ""))
        if state.get("objectID") != ark or not number.isdigit():
            raise system(f"{name} answered for {state.get('objectID')}, not for {ark}")
        version = _version(self._object(ark, node), int(number))
        if version is None:
            raise system(f"{name} reported version {number} of {ark}, but has none")
        for file in request.files:
            self._check_listed(ark, version, file)
        return version

    def _form(self, request: StoreRequest, stored: ManifestObject | None) -> dict[str, str]:
        manifest = storage_manifest.write(request.files, self._source_url)
        form = {"t": "json"}
        if len(manifest) < POSTED_BYTES:
            form["manifest"] = manifest.decode()
        else:
            form["url"] = self._source_url(_write_manifest(request, manifest))
        if request.mode is SubmissionMode.UPDATE and stored:
            # our own files describe one version: those missing from this version are deleted
            obsolete = (
                path
                for path in stored.head.files
                if not path.startswith(PRODUCER) and path not in request.digests
            )
            form["delete"] = "".join(f"{path}\n" for path in (*request.delete, *sorted(obsolete)))
        return form

    def _source_url(self, path: Path) -> str:
        """The URL at which the service reads a file of working storage."""
        prefix = self._own.working_storage_url
        if not prefix:
            return path.absolute().as_uri()
        try:
            below = path.absolute().relative_to(self._working)
        except ValueError as error:
            raise system(f"{path} is not in working storage, {self._working}") from error
        return f"{prefix.rstrip('/')}/{quote(below.as_posix())}"

    def _check_listed(self, ark: str, version: ManifestVersion, file: ContentFile | StoredFile) -> None:
        """StepFailed(system) unless the service lists the file as it was sent."""
        entry = version.files.get(file.path)
        if entry is None or (entry.size, entry.sha512) != (file.size, file.sha512):
            listed = f"{entry.size} bytes, {entry.algorithm} {entry.digest}" if entry else "nothing"
            raise system(
                f"{self._http.name} lists {listed} for {quote_name(file.path)} in version "
                f"{version.number} of {ark}, not {file.size} bytes, sha512 {file.sha512}"
            )

    def _describe(self, ark: str, version: ManifestVersion, key: str, jid: str, node: int) -> StoredVersion:
        files = tuple(
            StoredFile(file.path, file.size, file.sha512 or "", added=file.version == version.number)
            for _, file in sorted(version.files.items())
        )
        url = self._http.shown_url("manifest", node, ark)
        return StoredVersion(ark, version.number, jid, version.created, files, url, key)


def _version(stored: ManifestObject | None, number: int | None) -> ManifestVersion | None:
    """The version with this number, or the latest; None if there is none."""
    if stored is None:
        return None
    return stored.head if number is None else stored.version(number)


def _node_in(url: str) -> int:
    if match := _NODE.search(url):
        return int(match[1])
    raise system(f"{url} is not the address of an object in the storage service")


def _check_request(request: StoreRequest, stored: ManifestObject | None) -> None:
    """StepFailed unless the service can store this version."""
    base.check_request(request)
    for file in request.files:
        if _DECODED.search(file.path):
            raise content(
                f"file name {quote_name(file.path)} contains '%20' or '%7c', which the storage service "
                "decodes to a blank or a bar: rename the file"
            )
    latest = stored.head.files if stored else {}
    carried = carried_paths(request, stored.head.number if stored else 0, latest)
    if carried:
        check_names(carried | request.digests.keys())
    foreign = sorted(path for path in carried - request.digests.keys() if latest[path].sha512 is None)
    if foreign:
        raise system(
            f"{quote_name(foreign[0])} of {request.ark} has a {latest[foreign[0]].algorithm} digest, not "
            "sha512, so an update cannot keep it: submit the whole object with mode add"
        )


def _write_own_files(request: StoreRequest) -> None:
    """Write our own files to their places in working storage, from where the service fetches them."""
    for file in request.files:
        if file.data is not None:
            file.source.parent.mkdir(exist_ok=True)
            write_whole(file.source, file.data)


def _write_manifest(request: StoreRequest, manifest: bytes) -> Path:
    """Write the manifest beside the files, where the service can read it."""
    first: ContentFile = request.files[0]
    path = first.source.parents[first.path.count("/")] / _MANIFEST
    write_whole(path, manifest)
    return path
