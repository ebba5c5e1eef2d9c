"""Lists of objects by a text and by what checks found in them, for who may see the objects."""

from dataclasses import replace
from time import monotonic
from typing import cast

from operations.site import Site
from operations.visibility import sight_of
from pipeline.inventory.search.by_findings import FindingSearch, FoundObject
from pipeline.inventory.search.index import Indexing
from pipeline.inventory.sql import SqlInventory
from pipeline.principal import Principal
from pipeline.records import Record
from zkstate.fleet import notes

QUERY_LIMIT = 500
"""Maximum characters of a text to search for."""

COUNTED = 60.0
"""Seconds between two counts of the objects that are in the index."""

SEARCHED = (
    "title, creator, date, ARK, local id, file names, digests of files, collection, submitter, and names of "
    "deposits, batches and jobs"
)
"""What a text is searched in."""


class ObjectList(Record):
    """A page of objects: by a text, the best first; else in the order in which they were entered."""

    objects: tuple[FoundObject, ...] = ()
    indexing: Indexing | None = None
    """How many objects a text can find as yet, while the inventory is being indexed; null: all."""
    next: str | None = None
    """The cursor of the next page; None on the last page."""


def find_objects(
    site: Site, principal: Principal, search: FindingSearch, limit: int, after: int = 0, query: str = ""
) -> ObjectList:
    """Objects that meet the conditions, and all of whose versions the principal may see.

    `query`: only objects that have all its words, or words with these beginnings.
    """
    inventory = site.archive()
    if inventory is None:
        return ObjectList()
    if search.outdated:
        installed = {one.check: one.version for one in notes.repeated_checks(site.session) if one.version}
        search = replace(search, installed=installed)
    sight = sight_of(principal)
    if not query.strip():
        keys = inventory.objects_with(search, sight, limit + 1, after)
        return ObjectList(
            objects=inventory.found_objects(search, keys[:limit]),
            next=str(keys[limit - 1]) if len(keys) > limit else None,
        )
    hits = inventory.objects_by_text(query[:QUERY_LIMIT], search, sight, limit + 1, after)
    page = inventory.found_objects(search, [hit.key for hit in hits[:limit]])
    return ObjectList(
        objects=inventory.found_by(query, page),
        indexing=_indexing(site, inventory),
        next=str(hits[limit - 1].position) if len(hits) > limit else None,
    )


def _indexing(site: Site, inventory: SqlInventory) -> Indexing | None:
    """How far the index is, counted once in COUNTED seconds for all searches; None as soon as it is whole."""
    if inventory.all_indexed():
        return None
    remembered, now = site.session.remembered, monotonic()
    at, known = cast(tuple[float, Indexing | None], remembered.get("indexing", (-COUNTED, None)))
    if now - at >= COUNTED and (known := inventory.indexing()) is not None:
        remembered["indexing"] = (now, known)
    return known
