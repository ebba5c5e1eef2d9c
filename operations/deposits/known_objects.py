"""Which objects are here already that a deposit names, before it is made."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from operations.site import Site
from pipeline.identifiers import minter
from pipeline.names import NotAnArk, canonical_ark
from pipeline.profiles.profile import Profile
from pipeline.records import Submission


class Named(Protocol):
    """What has a primary identifier and local ids."""

    @property
    def primary_id(self) -> str | None: ...

    @property
    def local_id(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class KnownObjects:
    named: dict[str, str] = field(default_factory=dict)
    """Local id -> ARK, of the local ids of this owner that have one."""
    titles: dict[str, str] = field(default_factory=dict)
    """ARK -> title, of the objects that are in a collection of the profile."""

    def of(self, deposit: Named) -> dict[str, str]:
        """Identifier -> ARK, of the identifiers of the deposit that are known."""
        given = {name: self.named[name] for name in deposit.local_id if name in self.named}
        if deposit.primary_id and (ark := _ark(deposit.primary_id)) in self.titles:
            given[deposit.primary_id] = ark
        return given

    def refusals(
        self, submission: Submission, profile: Profile, deposits: Iterable[Named]
    ) -> Iterator[tuple[int, str]]:
        """The place, from 1, of each deposit that may not add the version that it would, and why."""
        if minter.may_add_version(submission, profile):
            return
        for number, deposit in enumerate(deposits, 1):
            for ark in dict.fromkeys(self.of(deposit).values()):
                if ark in self.titles:
                    yield number, minter.version_problem(ark, self.titles[ark], profile)


def known_objects(site: Site, profile: Profile, deposits: Iterable[Named]) -> KnownObjects:
    """What the inventory knows of the identifiers of these deposits."""
    given = tuple(deposits)
    local_ids = list(dict.fromkeys(name for deposit in given for name in deposit.local_id))
    arks = [_ark(deposit.primary_id) for deposit in given if deposit.primary_id]
    inventory = site.archive() if local_ids or arks else None
    if inventory is None:
        return KnownObjects()
    named = inventory.arks_of(profile.owner, local_ids)
    titles = inventory.titles_of(profile.owner, profile.collections, [*named.values(), *arks])
    return KnownObjects(named, titles)


def _ark(given: str) -> str:
    try:
        return canonical_ark(given)
    except NotAnArk:
        return given  # the submission is refused for it
