"""Which names there are for a caller that gives one: a list without rows may have a mistyped filter."""

import re
from contextlib import suppress

from operations.board.board import Board
from operations.board.values import JobPage, JobSearch, Scope
from operations.site import Site
from operations.visibility import visible_batch
from pipeline.errors import Action, Remedy
from pipeline.names import PLACES
from pipeline.principal import Principal
from pipeline.profiles.profile import ProfileError
from zkstate.connection.session import Session
from zkstate.errors import Corrupt, Missing
from zkstate.fleet import holds
from zkstate.queue import listings

_BID = re.compile(r"bid[0-9]{10,20}")


def require_collection(site: Site, name: str) -> None:
    """UnknownProfile if there is no profile of this name, and no deposit to or hold of such a collection."""
    if not _is_collection(site, name):
        site.profiles.file(name)  # its refusal names the nearest profile


def require_names(site: Site, principal: Principal, board: Board, search: JobSearch, page: JobPage) -> None:
    """Missing if nothing was found because the batch or the collection does not exist.

    A cause whose last job was resumed is not distinguished from one that never was.
    """
    if page.total or not site.session.connected:
        return
    if search.bid is not None:
        _require_batch(site, principal, search.bid)
    if search.collection is not None:
        permitted = principal.collections is None or search.collection in principal.collections
        if not (permitted and _is_collection(site, search.collection, board)):
            absent = Missing(f"there is no collection {search.collection:.255}")
            raise absent.with_remedies(Remedy(Action.SHOW_PROFILES))


def _require_batch(site: Site, principal: Principal, bid: str) -> None:
    if not _BID.fullmatch(bid):
        raise Missing(f"there is no batch {bid:.64}")
    with suppress(Corrupt):  # a damaged batch exists
        visible_batch(site, principal, bid)


def _is_collection(site: Site, name: str, board: Board | None = None) -> bool:
    """Also a collection whose profile is invalid or gone; `board`: it has been filled."""
    if name in PLACES:
        return False
    if _has_file(site, name) or _was_held(site.session, name):
        return True
    own = Scope(collections=frozenset({name}))
    if _is_recorded(site.session, name) if board is None else board.collections(own):
        return True
    inventory = site.archive()
    return inventory is not None and bool(inventory.days_of_collection(name))


def _has_file(site: Site, name: str) -> bool:
    with suppress(ProfileError):  # the record knows collections while the folder cannot be read
        return name in site.profiles.names()
    return False


def _was_held(session: Session, name: str) -> bool:
    return holds.collection_hold(session, name) is not None or bool(holds.actions(session, name))


def _is_recorded(session: Session, name: str) -> bool:
    """Whether a batch, or a job of a damaged batch, is of the collection."""
    for row in listings.batch_rows(session, listings.all_batches(session)):
        if isinstance(row, listings.Unreadable):
            of_batch = listings.readable(listings.job_rows(session, listings.of_batch(session, row.id)))
            if any(job.profile == name for job in of_batch):
                return True
        elif row.profile == name:
            return True
    return False
