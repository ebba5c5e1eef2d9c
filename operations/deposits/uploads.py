"""Uploads: bytes that a depositor transfers to the site, to be submitted as `upload:ID/NAME`.

An upload belongs to the principal that began it; for everyone else it does not exist.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from operations.site import Site
from pipeline.errors import UsageRefused
from pipeline.fixity import READ_CHUNK
from pipeline.names import UnsafeName, UploadAddress, is_upload, parse_upload_url, quote_name, safe_name
from pipeline.outcome import ServiceDown
from pipeline.principal import Principal, Role
from pipeline.records import Record, Submission
from pipeline.uploads import quota, stored, writing
from pipeline.uploads.stored import Declared, Upload, UploadedFile
from pipeline.uploads.writing import PartWriter
from tasks.logs import log
from zkstate.record import space


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


def begin_upload(site: Site, principal: Principal, key: str = "") -> Upload:
    """A new upload; with a `key`, the principal's earlier upload with that key, if it still exists.

    ServiceDown if the upload folder is not mounted.
    """
    require_depositor(principal)
    _require_mounted(site)
    wished = hashlib.sha256(f"{principal.identity}\n{key}".encode()).hexdigest()[:32] if key else ""
    root, held = site.settings.uploads_folder, site.quotas.of(principal.identity)
    is_there = bool(wished) and stored.folder_of(root, wished).exists()
    with _taking(held, entries=0 if is_there else 1):
        begun = writing.create(root, principal.identity, wished)
        with writing.storing(root):
            held.note(begun.id)
    return begun


@contextmanager
def _taking(held: quota.Quota, entries: int = 0, size: int = 0) -> Iterator[None]:
    """Take entries and bytes of the quota; UploadQuota is logged for administrators."""
    with ExitStack() as taken:
        try:
            taken.enter_context(held.taking(entries, size))
        except quota.UploadQuota as refused:
            log().warning("upload quota reached", message=str(refused))
            raise
        yield


def _require_mounted(site: Site) -> None:
    """Require the marked upload folder. It is marked at the first upload; the record notes that, so that
    no other folder is marked."""
    root = site.settings.uploads_folder
    noted = space.was_marked(site.session)
    if not noted and not stored.is_marked(root):
        with writing.storing(root):
            stored.mark(root)
    stored.require(root)
    if not noted:
        space.note_marked(site.session)


def own_upload(site: Site, principal: Principal, upload: str) -> Upload:
    """The principal's upload; `upload-missing` if there is no such upload, or it is not the principal's.

    If nothing was ever uploaded, the folder has no mark, which is not an outage.
    """
    root = site.settings.uploads_folder
    try:
        return stored.load(root, upload, principal.identity)
    except ServiceDown:
        if stored.is_marked(root) or space.was_marked(site.session):
            raise
        raise stored.missing(upload) from None


def view_upload(site: Site, principal: Principal, upload: str) -> UploadView:
    root = site.settings.uploads_folder
    return UploadView(
        upload=own_upload(site, principal, upload),
        files=stored.files(root, upload),
        unfinished=stored.parts(root, upload),
    )


@contextmanager
def write_file(
    site: Site,
    principal: Principal,
    upload: str,
    declared: Declared,
    *,
    resumable: bool = False,
    offset: int | None = None,
) -> Iterator[PartWriter]:
    """Receive a file into the principal's upload; see `pipeline.uploads.writing.writing`. UploadQuota."""
    own_upload(site, principal, upload)
    try:
        safe_name(declared.name)
    except UnsafeName as error:
        raise UsageRefused(f"{error}: give the file another name") from error
    root, held = site.settings.uploads_folder, site.quotas.of(principal.identity)
    with writing.storing(root):
        held.note(upload)
    begun = stored.part_folder(root, upload, declared.name).exists()
    try:
        with ExitStack() as opened:
            with _taking(held, entries=0 if begun else 1):
                part = opened.enter_context(
                    writing.writing(
                        root,
                        upload,
                        declared,
                        site.settings.upload_bytes,
                        resumable=resumable,
                        offset=offset,
                        taking=lambda size: _taking(held, size=size),
                    )
                )
            yield part
    except BaseException:
        held.forget()  # what had arrived may have been removed
        raise


def receive_file(
    site: Site, principal: Principal, upload: str, declared: Declared, stream: BinaryIO
) -> UploadedFile:
    """The file, once all bytes of the stream are in the principal's upload."""
    with write_file(site, principal, upload, declared) as part:
        while chunk := stream.read(READ_CHUNK):
            part.append(chunk)
        return part.finish()


@dataclass(frozen=True)
class FormPlace:
    """Where the files of a form are kept until the form has been processed."""

    site: Site
    principal: Principal
    _paths: list[Path] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.site.settings.uploads_folder

    def open_file(self) -> BinaryIO:
        """Open a new file; Forbidden, or ServiceDown if the upload folder is not mounted."""
        require_depositor(self.principal)
        _require_mounted(self.site)
        with writing.storing(self.root):
            folder = self.root / stored.FORMS
            folder.mkdir(exist_ok=True)
            prefix = stored.owner_folder(self.root, self.principal.identity).name
            descriptor, path = tempfile.mkstemp(dir=folder, prefix=f"{prefix}.")
            self._paths.append(Path(path))
            return os.fdopen(descriptor, "r+b", buffering=0)

    def write(self, file: BinaryIO, data: bytes) -> None:
        """Write all of `data`; UploadQuota, or `uploads-full`."""
        held = self.site.quotas.of(self.principal.identity)
        with _taking(held, size=len(data)), writing.storing(self.root):
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]

    def release(self) -> None:
        """Unlink the files: they remain readable while open, and no longer count."""
        for path in self._paths:
            path.unlink(missing_ok=True)
        self.site.quotas.of(self.principal.identity).forget()


def find_file(site: Site, principal: Principal, upload: str, name: str) -> UploadedFile | Unfinished | None:
    """The file, complete or not; None if none of it has arrived."""
    own_upload(site, principal, upload)
    root = site.settings.uploads_folder
    if (file := stored.find_file(root, upload, name)) is not None:
        return file
    if (part := stored.find_part(root, upload, name)) is None:
        return None
    return Unfinished(name=name, offset=stored.part_size(root, upload, name), size=part.size)


def sole_name(site: Site, principal: Principal, upload: str) -> str:
    """The name of the only file, complete or not; UsageRefused if there is none or more than one."""
    own_upload(site, principal, upload)
    names = stored.first_names(site.settings.uploads_folder, upload)
    if len(names) != 1:
        number = "several files" if names else "no file"
        raise UsageRefused(f"upload {upload} has {number}: name one of them, as upload:{upload}/NAME")
    return names.pop()


def remove_upload(site: Site, principal: Principal, upload: str, name: str = "") -> None:
    """Remove the principal's upload, or a complete file of it; refused once it has been submitted."""
    if own_upload(site, principal, upload).submitted is not None:
        raise UsageRefused(
            f"upload {upload} was submitted, and its files stay until its batch no longer needs them: other "
            "files need another upload, or another key"
        )
    root = site.settings.uploads_folder
    if name:
        writing.remove_file(root, upload, name)
    else:
        writing.remove(root, upload)
    site.quotas.of(principal.identity).forget()


def remove_unless_submitted(site: Site, principal: Principal, upload: str) -> None:
    try:
        remove_upload(site, principal, upload)
    except UsageRefused:
        return  # a batch may have been created from it


def resolved_url(site: Site, principal: Principal, url: str) -> str:
    """The URL; for an upload, the address of its file, which exists and belongs to the principal."""
    if not is_upload(url):
        return url
    address = parse_upload_url(url)
    own_upload(site, principal, address.upload)
    name = address.name or sole_name(site, principal, address.upload)
    if stored.find_file(site.settings.uploads_folder, address.upload, name) is None:
        raise UsageRefused(
            f"upload {address.upload} has no complete file {quote_name(name)}: upload it, then submit it"
        )
    return UploadAddress(address.upload, name).url


def use_upload(site: Site, principal: Principal, submission: Submission) -> None:
    """Refuse a payload that is not the principal's, and mark the upload as submitted."""
    url = submission.payload_url
    if not is_upload(url):
        return
    if resolved_url(site, principal, url) != url:
        raise UsageRefused(f"{quote_name(url)} names no file: give upload:ID/NAME")
    writing.use(site.settings.uploads_folder, parse_upload_url(url).upload, principal.identity)
