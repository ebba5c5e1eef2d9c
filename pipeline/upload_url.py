"""Addresses of files that a depositor uploaded: `upload:ID/NAME`, with NAME percent-encoded.

Rule: a manifest may name files of its own upload only: whoever may submit the manifest may submit them.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from pipeline.errors import UsageRefused
from pipeline.names import UnsafeName, quote_name, safe_name

SCHEME = "upload"

ID_PATTERN = r"[0-9a-f]{32}"

_PREFIX = f"{SCHEME}:"
_ID = re.compile(ID_PATTERN)


class NotAnUpload(UsageRefused):
    """The text is not the address of an upload, or of a file in one."""


@dataclass(frozen=True)
class UploadAddress:
    """An upload, or one of its files; `name` is '' for the upload as a whole."""

    upload: str
    name: str = ""

    @property
    def url(self) -> str:
        written = quote(self.name, safe="/")
        return f"{_PREFIX}{self.upload}/{written}" if self.name else f"{_PREFIX}{self.upload}"


def is_upload(url: str) -> bool:
    return url[: len(_PREFIX)].lower() == _PREFIX


def is_local(text: str) -> bool:
    """Whether the text names a file or folder of this machine, and no URL."""
    return "://" not in text and not is_upload(text)


def is_upload_id(text: str) -> bool:
    return bool(_ID.fullmatch(text))


def parse_upload_url(url: str) -> UploadAddress:
    """The parts of an address; NotAnUpload if it cannot be one.

    >>> parse_upload_url("upload:00112233445566778899aabbccddeeff/my%20file.jpg").name
    'my file.jpg'
    """
    upload, slash, written = url[len(_PREFIX) :].partition("/")
    if not is_upload(url) or not is_upload_id(upload):
        raise NotAnUpload(f"{quote_name(url)} is not the address of an upload, such as upload:ID/NAME")
    if not slash:
        return UploadAddress(upload)
    try:
        name = safe_name(unquote(written, errors="strict"))
    except (UnicodeDecodeError, UnsafeName) as error:
        raise NotAnUpload(f"{quote_name(url)} names no file of an upload: {error}") from error
    return UploadAddress(upload, name)


def upload_problem(url: str) -> str | None:
    """Why the address of an upload cannot be used; None if its text is in order."""
    try:
        parse_upload_url(url)
    except NotAnUpload as problem:
        return str(problem)
    return None


def foreign_upload(url: str, manifest_url: str) -> str | None:
    """Why the manifest at `manifest_url` must not name `url`; None if it may."""
    if not is_upload(url):
        return None
    if is_upload(manifest_url):
        try:
            if parse_upload_url(url).upload == parse_upload_url(manifest_url).upload:
                return None
        except NotAnUpload as problem:
            return str(problem)
    return (
        f"{quote_name(url)} is not in the upload of this manifest: upload the manifest and the files that it "
        "names together"
    )
