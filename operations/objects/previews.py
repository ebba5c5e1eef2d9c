"""Previews of stored files: the beginning of a text, an image, a picture of a large or rare one, a PDF.

Whoever may have the file may have its preview. A picture is made for each request and kept nowhere: it takes
seconds of one process, and a copy of what is under an embargo could outlive a decision about it.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import NamedTemporaryFile, gettempdir

from operations.objects import retrieval
from operations.objects.retrieval import ChosenFile, EventWriter
from operations.site import Site
from pipeline import codes
from pipeline.attempt import Attempt
from pipeline.decoding.calls import NoPicture, Picture, make_picture
from pipeline.errors import ArklineError
from pipeline.inventory.base import InventoryFile
from pipeline.outcome import DamagedObject
from pipeline.principal import Principal

TEXT_BYTES = 65_536
"""Bytes of a text that its preview shows."""

WHOLE_BYTES = 50_000_000
"""Maximum size of a file that a browser loads as a whole for a preview."""

PICTURE_BYTES = 500_000_000
"""Maximum size of an image of which a picture is made: it is copied to a temporary file."""

COPY = "arkline-preview-"
"""The beginning of the names of these copies."""

LEFT_SECONDS = 3600.0
"""Seconds after which a copy was left by a process that was killed: a preview takes a minute at most."""

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})
"""What browsers show."""
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/tiff", "image/bmp", "image/webp"})
UNTYPED = (".jp2", ".jpx", ".jpf", ".j2k", ".webp")
"""Endings of the names of images whose media type the record does not have."""
TEXTS = frozenset({"application/json", "application/xml", "application/yaml"})


class Kind(StrEnum):
    TEXT = "text"
    IMAGE = "image"
    PICTURE = "picture"
    PDF = "pdf"
    NONE = "none"


@dataclass(frozen=True)
class Preview:
    """What a page shows of one file; browsers load an image and a PDF as downloads."""

    file: InventoryFile
    kind: Kind
    text: str = ""
    cut: bool = False
    picture: Picture | None = None
    problem: str = ""


def preview_of(  # noqa: PLR0913 - a file is named by these
    site: Site, events: EventWriter, principal: Principal, ark: str, number: str, path: str, attempt: Attempt
) -> Preview | None:
    """The preview of a file of the version; None while the principal may not have the file.

    Missing if there is no such file.
    """
    try:
        of = retrieval.chosen_file(site, principal, ark, number, path)
    except ArklineError as error:
        if error.code is codes.EMBARGOED:
            return None
        raise
    kind = _kind_of(of.file)
    try:
        match kind:
            case Kind.TEXT:
                data = b"".join(retrieval.file_bytes(site, of, 0, min(of.file.size, TEXT_BYTES)))
                text = data.decode("utf-8", errors="replace")
                shown = Preview(of.file, kind, text, cut=len(data) < of.file.size)
            case Kind.PICTURE:
                shown = Preview(of.file, kind, picture=_picture(site, of, attempt))
            case _:
                return Preview(of.file, kind)
    except NoPicture as reason:
        return Preview(of.file, kind, problem=f"There is no preview: {reason}. Download the file.")
    except DamagedObject as damage:
        retrieval.raise_alarm(site, events, of, retrieval.event_of(of), damage)
        return Preview(of.file, kind, problem=damage.message)
    retrieval.enter(site, events, retrieval.event_of(of), series=True)
    return shown


def _kind_of(file: InventoryFile) -> Kind:
    media_type, name = file.mime_type, file.path.lower()
    if media_type in IMAGES and file.size <= WHOLE_BYTES:
        return Kind.IMAGE
    if (media_type in PICTURES or name.endswith(UNTYPED)) and file.size <= PICTURE_BYTES:
        return Kind.PICTURE
    if media_type == "application/pdf" and file.size <= WHOLE_BYTES:
        return Kind.PDF
    return Kind.TEXT if media_type.startswith("text/") or media_type in TEXTS else Kind.NONE


def _picture(site: Site, of: ChosenFile, attempt: Attempt) -> Picture:
    try:
        _remove_left(Path(gettempdir()))
        with NamedTemporaryFile(prefix=COPY) as copy:
            for piece in retrieval.file_bytes(site, of, 0, of.file.size):
                attempt.check()
                copy.write(piece)
            copy.flush()
            return make_picture(site.picture_decoder, Path(copy.name), of.file.path, attempt)
    except OSError as error:
        raise NoPicture(f"the server cannot copy it now ({error.strerror})") from error


def _remove_left(folder: Path) -> None:
    """Remove the copies of killed processes; those of other users stay."""
    for path in folder.glob(f"{COPY}*"):
        with suppress(OSError):
            if path.lstat().st_mtime < time.time() - LEFT_SECONDS:
                path.unlink()
