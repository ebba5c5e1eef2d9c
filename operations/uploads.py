"""Uploads: bytes that a depositor hands over to the site, to be submitted as `upload:ID/NAME`.

An upload belongs to the principal that began it; to everybody else it does not exist.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pipeline.errors import UsageRefused
from pipeline.fixity import READ_CHUNK
from pipeline.names import UnsafeName, quote_name, safe_name
from pipeline.outcome import ServiceDown
from pipeline.principal import Principal, Role
from pipeline.records import Record, Submission
from pipeline.settings import Settings
from pipeline.upload_url import UploadAddress, is_upload, parse_upload_url
from pipeline.uploads import layout, quota, reading, removal, writing
from pipeline.uploads.layout import Declared, Upload, UploadedFile
from pipeline.uploads.quota import Quotas
from pipeline.uploads.writing import PartWriter
from tasks.logs import log
from zkstate import upload_mark
from zkstate.session import Session


class UploadView(Record):
    """An upload and its files."""

    upload: Upload
    files: tuple[UploadedFile, ...] = ()
    unfinished: tuple[Declared, ...] = ()


class Unfinished(Record):
    """A file that has not arrived whole; it continues at byte `offset`."""

    name: str
    offset: int
    size: int | None = None


def require_depositor(principal: Principal) -> None:
    """Forbidden unless the principal may submit to some collection."""
    some = min(principal.collections) if principal.collections else None
    principal.require(Role.DEPOSITOR, "upload files", some)


def begin_upload(
    session: Session,
    settings: Settings,
    principal: Principal,
    key: str = "",
    quotas: Quotas | None = None,
) -> Upload:
    """A new upload; with a `key`, the principal's earlier upload under the same key, if it is still there.

    ServiceDown if the folder of uploads is not mounted.
    """
    require_depositor(principal)
    _require_mounted(session, settings)
    wished = hashlib.sha256(f"{principal.identity}\n{key}".encode()).hexdigest()[:32] if key else ""
    root, held = settings.uploads_folder, _held(settings, principal, quotas)
    is_there = bool(wished) and layout.folder_of(root, wished).exists()
    with _taking(held, entries=0 if is_there else 1):
        begun = writing.create(root, principal.identity, wished)
        with writing.storing(root):
            held.note(begun.id)
    return begun


def _held(settings: Settings, principal: Principal, quotas: Quotas | None) -> quota.Quota:
    """The principal's quota; without the quotas of a process, what the principal has is measured."""
    return (quotas or Quotas(settings)).of(principal.identity)


@contextmanager
def _taking(held: quota.Quota, entries: int = 0, size: int = 0) -> Iterator[None]:
    """UploadQuota, which administrators find in the log."""
    with ExitStack() as taken:
        try:
            taken.enter_context(held.taking(entries, size))
        except quota.UploadQuota as refused:
            log().warning("upload quota reached", message=str(refused))
            raise
        yield


def _require_mounted(session: Session, settings: Settings) -> None:
    """The folder is marked for the first upload; the record notes that, so that no other folder is."""
    root = settings.uploads_folder
    noted = upload_mark.was_marked(session)
    if not noted and not layout.is_marked(root):
        layout.mark(root)
    layout.require(root)
    if not noted:
        upload_mark.note_marked(session)


def own_upload(session: Session, settings: Settings, principal: Principal, upload: str) -> Upload:
    """UploadMissing unless there is such an upload and it is the principal's.

    Where nothing was ever uploaded, the folder has no mark, and it is not an outage.
    """
    root = settings.uploads_folder
    try:
        return reading.load(root, upload, principal.identity)
    except ServiceDown:
        if layout.is_marked(root) or upload_mark.was_marked(session):
            raise
        raise layout.missing(upload) from None


def view_upload(session: Session, settings: Settings, principal: Principal, upload: str) -> UploadView:
    root = settings.uploads_folder
    return UploadView(
        upload=own_upload(session, settings, principal, upload),
        files=reading.files(root, upload),
        unfinished=reading.parts(root, upload),
    )


@contextmanager
def write_file(  # noqa: PLR0913 - who writes what, and where it continues
    session: Session,
    settings: Settings,
    principal: Principal,
    upload: str,
    declared: Declared,
    *,
    resumable: bool = False,
    offset: int | None = None,
    quotas: Quotas | None = None,
) -> Iterator[PartWriter]:
    """Receive a file of the principal's upload; see `pipeline.uploads.writing.writing`. UploadQuota."""
    own_upload(session, settings, principal, upload)
    try:
        safe_name(declared.name)
    except UnsafeName as error:
        raise UsageRefused(f"{error}: give the file another name") from error
    root, held = settings.uploads_folder, _held(settings, principal, quotas)
    with writing.storing(root):
        held.note(upload)
    begun = layout.part_folder(root, upload, declared.name).exists()
    try:
        with ExitStack() as opened:
            with _taking(held, entries=0 if begun else 1):
                part = opened.enter_context(
                    writing.writing(
                        root,
                        upload,
                        declared,
                        settings.upload_bytes,
                        resumable=resumable,
                        offset=offset,
                        taking=lambda size: _taking(held, size=size),
                    )
                )
            yield part
    except BaseException:
        held.forget()  # what arrived may have been removed
        raise


def receive_file(  # noqa: PLR0913 - who writes what, and from where
    session: Session,
    settings: Settings,
    principal: Principal,
    upload: str,
    declared: Declared,
    stream: BinaryIO,
    quotas: Quotas | None = None,
) -> UploadedFile:
    """The file once all bytes of the stream are in the principal's upload."""
    with write_file(session, settings, principal, upload, declared, quotas=quotas) as part:
        while chunk := stream.read(READ_CHUNK):
            part.append(chunk)
        return part.finish()


@dataclass(frozen=True)
class FormPlace:
    """Where the files of a form are until the form was dealt with."""

    session: Session
    settings: Settings
    principal: Principal
    quotas: Quotas
    _paths: list[Path] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.settings.uploads_folder

    def open_file(self) -> BinaryIO:
        """Forbidden, or ServiceDown if the folder of uploads is not mounted."""
        require_depositor(self.principal)
        _require_mounted(self.session, self.settings)
        with writing.storing(self.root):
            folder = self.root / layout.FORMS
            folder.mkdir(exist_ok=True)
            prefix = layout.owner_folder(self.root, self.principal.identity).name
            descriptor, path = tempfile.mkstemp(dir=folder, prefix=f"{prefix}.")
            self._paths.append(Path(path))
            return os.fdopen(descriptor, "r+b", buffering=0)

    def write(self, file: BinaryIO, data: bytes) -> None:
        """UploadQuota, UploadsFull."""
        held = self.quotas.of(self.principal.identity)
        with _taking(held, size=len(data)), writing.storing(self.root):
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]

    def release(self) -> None:
        """Take the names away: the bytes are there while the files are open, and no longer count."""
        for path in self._paths:
            path.unlink(missing_ok=True)
        self.quotas.of(self.principal.identity).forget()


def find_file(
    session: Session, settings: Settings, principal: Principal, upload: str, name: str
) -> UploadedFile | Unfinished | None:
    """The file, complete or not; None if the upload has nothing of it."""
    own_upload(session, settings, principal, upload)
    root = settings.uploads_folder
    if (file := reading.find_file(root, upload, name)) is not None:
        return file
    if (part := reading.find_part(root, upload, name)) is None:
        return None
    return Unfinished(name=name, offset=reading.part_size(root, upload, name), size=part.size)


def sole_name(session: Session, settings: Settings, principal: Principal, upload: str) -> str:
    """The name of the only file, complete or not; UsageRefused if the upload has none or several."""
    own_upload(session, settings, principal, upload)
    names = reading.first_names(settings.uploads_folder, upload)
    if len(names) != 1:
        number = "several files" if names else "no file"
        raise UsageRefused(f"upload {upload} has {number}: name one of them, as upload:{upload}/NAME")
    return names.pop()


def remove_upload(
    session: Session, settings: Settings, principal: Principal, upload: str, quotas: Quotas | None = None
) -> None:
    """Remove the principal's upload; refused once a batch was made of it."""
    if own_upload(session, settings, principal, upload).submitted is not None:
        raise UsageRefused(
            f"upload {upload} was submitted: it is removed by itself once its batch no longer needs it"
        )
    removal.remove(settings.uploads_folder, upload)
    _held(settings, principal, quotas).forget()


def remove_unless_submitted(
    session: Session, settings: Settings, principal: Principal, upload: str, quotas: Quotas | None = None
) -> None:
    try:
        remove_upload(session, settings, principal, upload, quotas)
    except UsageRefused:
        return  # a batch may have been made of it


def resolved_url(session: Session, settings: Settings, principal: Principal, url: str) -> str:
    """The URL; for an upload, the address of its file, which is there and the principal's."""
    if not is_upload(url):
        return url
    address = parse_upload_url(url)
    own_upload(session, settings, principal, address.upload)
    name = address.name or sole_name(session, settings, principal, address.upload)
    if reading.find_file(settings.uploads_folder, address.upload, name) is None:
        raise UsageRefused(
            f"upload {address.upload} has no complete file {quote_name(name)}: upload it, then submit it"
        )
    return UploadAddress(address.upload, name).url


def use_upload(session: Session, settings: Settings, principal: Principal, submission: Submission) -> None:
    """Refuse a payload that is not the principal's, and keep the upload for the batch that is made of it."""
    url = submission.payload_url
    if not is_upload(url):
        return
    if resolved_url(session, settings, principal, url) != url:
        raise UsageRefused(f"{quote_name(url)} names no file: give upload:ID/NAME")
    removal.use(settings.uploads_folder, parse_upload_url(url).upload, principal.identity)


@dataclass(frozen=True)
class SiteUploader:
    """Uploads beside the stack, straight into the site's folder; an `operations.local_deposit.Uploader`."""

    session: Session
    settings: Settings
    principal: Principal

    def begin(self, key: str) -> str:
        return begin_upload(self.session, self.settings, self.principal, key).id

    def put(self, upload: str, name: str, chunks: Iterable[bytes], size: int) -> UploadedFile:
        declared = Declared(name=name, size=size)
        with write_file(self.session, self.settings, self.principal, upload, declared) as part:
            for chunk in chunks:
                part.append(chunk)
            return part.finish()
