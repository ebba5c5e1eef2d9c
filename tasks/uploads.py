"""Uploads leave the site when no batch needs them any more."""

from pipeline.outcome import ServiceDown
from pipeline.records import Batch
from pipeline.settings import Settings
from pipeline.states import BatchState
from pipeline.upload_url import NotAnUpload, is_upload, parse_upload_url
from pipeline.uploads import removal
from tasks.logs import log
from zkstate import batches, listings
from zkstate.errors import Corrupt, Missing
from zkstate.session import Session

DAY = 86400.0


class UnreadableBatch(Exception):
    """It is not known which upload a batch needs."""


def remove_unneeded(session: Session, settings: Settings) -> None:
    """Remove the uploads that are older than ARKLINE_UPLOAD_DAYS, except those of unfinished batches.

    A failed batch is unfinished: its jobs may be resumed. While a batch cannot be read, nothing is removed.
    """
    try:
        removed = removal.clean_up(
            settings.uploads_folder, settings.upload_days * DAY, lambda: _needed(session)
        )
    except UnreadableBatch as unreadable:
        log().warning("uploads not removed", message=str(unreadable))
        return
    except ServiceDown as fault:
        log().warning("uploads not removed", message=fault.message)
        return
    for upload in removed:
        log().info("upload removed", upload=upload)


def _needed(session: Session) -> frozenset[str]:
    """The ids of the uploads of which batches were made that have not ended well."""
    needed = set()
    for bid in listings.all_batches(session):
        try:
            batch = batches.load(session, bid)
        except Missing:
            continue
        except Corrupt as damaged:
            raise UnreadableBatch(str(damaged)) from damaged
        if upload := _needed_by(batch):
            needed.add(upload)
    return frozenset(needed)


def _needed_by(batch: Batch) -> str | None:
    url = batch.submission.payload_url
    if not is_upload(url) or batch.status.status in (BatchState.COMPLETED, BatchState.DELETED):
        return None
    try:
        return parse_upload_url(url).upload
    except NotAnUpload:
        return None
