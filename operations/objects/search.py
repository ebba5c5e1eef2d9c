"""Lists of objects by what checks found in them, for who may see the objects."""

from dataclasses import replace

from operations.site import Site
from operations.visibility import visible_batch
from pipeline.inventory.finding_search import Candidate, FindingSearch, FoundObject
from pipeline.principal import Principal, Role
from pipeline.records import Record
from zkstate.errors import Missing
from zkstate.fleet import notes

READ_FOR_DEPOSITOR = 200
"""Objects that are read for one page of a depositor, who sees only those that it submitted."""


class ObjectList(Record):
    """A page of objects, in the order in which they were entered in the inventory."""

    objects: tuple[FoundObject, ...] = ()
    next: str | None = None
    """The cursor of the next page, which may be empty; None on the last page."""


def find_objects(
    site: Site, principal: Principal, search: FindingSearch, limit: int, after: int = 0
) -> ObjectList:
    """Objects that meet the conditions, and all of whose versions the principal may see."""
    inventory = site.archive()
    if inventory is None:
        return ObjectList()
    if search.outdated:
        installed = {one.check: one.version for one in notes.repeated_checks(site.session) if one.version}
        search = replace(search, installed=installed)
    most = max(limit, READ_FOR_DEPOSITOR) if principal.role is Role.DEPOSITOR else limit
    read = inventory.objects_with(search, principal.collections, most + 1, after)
    own = _Submissions(site, principal)
    visible = [candidate for candidate in read[:most] if own.include(candidate)]
    page, last = visible[:limit], None
    if len(visible) > limit:
        last = page[-1]
    elif len(read) > most:
        last = read[most - 1]
    return ObjectList(
        objects=inventory.found_objects(search, [candidate.id for candidate in page]),
        next=None if last is None else str(last.id),
    )


class _Submissions:
    """What a depositor submitted; for all others, everything."""

    def __init__(self, site: Site, principal: Principal) -> None:
        self._site = site
        self._principal = principal
        self._known: dict[str, bool] = {}

    def include(self, candidate: Candidate) -> bool:
        return self._principal.role is not Role.DEPOSITOR or all(map(self._sees, candidate.bids))

    def _sees(self, bid: str) -> bool:
        if bid not in self._known:
            try:
                visible_batch(self._site, self._principal, bid)
            except Missing:
                self._known[bid] = False
            else:
                self._known[bid] = True
        return self._known[bid]
