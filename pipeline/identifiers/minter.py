"""Minting of ARKs (NOIDs), and the ARKs that the depositors of a collection may name.

ARKs are predictable: whoever may name any ARK can occupy the next names of another collection, or add
versions to another collection's objects. So a collection names new objects only below its own prefixes, and
changes only objects that are in the collection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pipeline import causes
from pipeline.attempt import UNATTENDED, ArkRecord
from pipeline.description import anvl
from pipeline.identifiers import noid
from pipeline.names import NotAnArk, quote_name, spellings
from pipeline.outcome import caused_by, content
from pipeline.profiles.profile import Profile
from pipeline.records import Identifiers, Job, JobConfiguration, Submission, SubmissionMode

if TYPE_CHECKING:  # loads SQLAlchemy, which submitting does not need
    from pipeline.inventory.recording import Placement

Claim = Callable[[str], None]

Known = Callable[[Sequence[str]], Collection[str]]
"""Returns those of the ARKs that are taken, whatever the counter says."""

MOST_AT_A_TIME = 500
"""Maximum ARKs looked up at a time if the counter turns out to be behind."""


NAMED = 3
"""Maximum local ids that a message names."""


def no_claim(ark: str) -> None:
    """A Claim for ARKs that need none."""


LastCheck = Callable[[], None]
"""Raises AttemptOver if the attempt is no longer the owner of its job."""


def none_known(arks: Sequence[str]) -> Collection[str]:
    """A Known for a counter that is the only record of minted ARKs."""
    del arks
    return ()


@dataclass(frozen=True)
class Assignment:
    """An ARK that arkline assigned: the job to be stored under it, and whether it is the first such job."""

    job: Job
    is_first: Callable[[], bool]


class Minter:
    """Mints NOIDs from counters in the record, one per shoulder. A plugin's minter extends it."""

    def uses_service(self, profile: Profile) -> bool:
        """Whether the profile's jobs need a service, and wait during an outage of `Service.IDENTIFIERS`."""
        del profile
        return False

    def mint(
        self,
        job: Job,
        profile: Profile,
        job_record: ArkRecord,
        claim: Claim = no_claim,
        known: Known = none_known,
        identifiers: Identifiers | None = None,
    ) -> str:
        """Mint an ARK and write it to the job's identifiers; repeated calls return the same ARK.

        `identifiers`: see `ArkRecord.mint`. Names that are `known` are skipped. `claim(ark)` runs after the
        ARK is saved and before it is registered.
        """
        counter = f"{profile.naan}_{profile.shoulder}"
        spell = partial(noid.spell, profile.naan, profile.shoulder)
        ark = job_record.mint(job, counter, partial(_name_after, spell, known), identifiers)
        claim(ark)
        return ark

    def announce(
        self,
        ark: str,
        profile: Profile,
        erc: anvl.Pairs,
        assigned: Assignment | None = None,
        last_check: LastCheck = UNATTENDED.check,
    ) -> None:
        """Publish the ARK with the metadata of its object; idempotent.

        This minter publishes nothing: only the inventory resolves its ARKs, and recording writes them there.
        `assigned`: required if arkline assigned the ARK, which is registered unless it already is; an ARK
        that the depositor gave is never registered. `last_check` runs right before anything is published.
        """


def _name_after(spell: Callable[[int], str], known: Known, last: int) -> tuple[int, str]:
    """The first number after `last` whose name is free, and the name."""
    first, window = last + 1, 1
    while True:
        names = {number: spell(number) for number in range(first, first + window)}
        taken = known(tuple(names.values()))
        for number, name in names.items():
            if name not in taken:
                return number, name
        first, window = first + window, min(window * 2, MOST_AT_A_TIME)


@caused_by(causes.IDENTIFIER_REFUSED())
def named_ark(given: str | None, named: Mapping[str, str], is_known: Callable[[str], bool]) -> str | None:
    """The ARK that the depositor gave, else that of the local ids; None: the object is new.

    `named`: local id -> ARK, for the local ids that have one. StepFailed(content) if they contradict.
    """
    if given is None:
        if len(set(named.values())) > 1:
            pairs = ", ".join(f"'{name}' belongs to {ark}" for name, ark in sorted(named.items()))
            raise content(
                f"the local ids belong to several objects ({pairs}): submit every object separately"
            )
        return next(iter(named.values()), None)
    try:
        ark, *older = spellings(given)
    except NotAnArk as error:
        raise content(f"the primary identifier {error}").because(causes.IDENTIFIER_INVALID()) from error
    ark = next(filter(is_known, older), ark)
    for name, other in sorted(named.items()):
        if other != ark:
            raise content(
                f"the local id '{name}' belongs to {other}, but the submitted primary identifier "
                f"is {ark}: submit again with one of the two"
            )
    return ark


def ownership_problem(
    ark: str, profile: Profile, placement: Placement | None, *, given: bool = True
) -> str | None:
    """Why a job of the collection may not have this ARK; None if it may.

    `placement`: that of the object with this ARK, if it exists. `given`: whether the depositor gave the ARK.
    """
    if placement is not None:
        return _border_problem(ark, profile, placement)
    return _naming_problem(ark, profile) if given else None


@caused_by(causes.UPDATE_INVALID())
def check_reset(deposit: Submission | JobConfiguration, profile: Profile, local_id: Sequence[str]) -> None:
    """StepFailed(content) if a deposit whose identifiers name no object is to reset one."""
    if deposit.submission_mode is not SubmissionMode.RESET:
        return
    remedy = "give its ARK or one of its local ids, or submit it with mode add"
    if not local_id:
        raise content(f"the object to reset is not identified: {remedy}")
    given = " or ".join(map(quote_name, local_id[:NAMED]))
    more = f" (or {len(local_id) - NAMED:,} more)" if len(local_id) > NAMED else ""
    raise content(
        f"no object of collection {profile.name} has the local id {given}{more}: to reset an object, {remedy}"
    )


def may_add_version(deposit: Submission | JobConfiguration, profile: Profile) -> bool:
    """Whether the deposit may become a new version of an existing object."""
    return deposit.may_add_version or profile.new_versions


def consent_problem(
    ark: str,
    profile: Profile,
    placement: Placement | None,
    current: int,
    agreed: int | None,
    local_id: Sequence[str] = (),
) -> str | None:
    """Why a deposit that may not add versions may not become the version of the object after `current`.

    `placement`: None if the inventory does not have the object yet. `agreed`: the version that was current
    when the depositor agreed that this deposit becomes the next one; None if the depositor did not.
    `local_id`: those that name the object, if no ARK was given; one may stand in a file of the deposit.
    """
    if agreed == current:
        return None
    if agreed is not None:
        return (
            f"you agreed that this deposit becomes version {agreed + 1} of {ark}, whose current version is "
            f"{current} now: look at it, and deposit again if you mean a version after that"
        )
    here = f"{ark} was stored by another deposit with the same identifier"
    if placement is not None:
        title = f", {quote_name(placement.title)}," if placement.title else ""
        here = f"{ark}{title} is in collection {profile.name} already"
    instead = f" in place of the local id {quote_name(local_id[0])}" if local_id else ""
    return (
        f"{here}, and this deposit would become its next version: if you mean that, allow a new version "
        "(--new-version, the box on the page, new_version in the API); if not, give this object an "
        f"identifier of its own{instead}"
    )


def _naming_problem(ark: str, profile: Profile) -> str | None:
    """Why depositors of the collection may not give this ARK to a new object; None if they may."""
    if ark.startswith(profile.ark_prefixes):
        return None
    own = " or ".join(profile.ark_prefixes)
    return (
        f"{ark} names no object yet, and new objects of collection {profile.name} may only have names that "
        f"begin with {own}: submit without a primary identifier to get a new ARK, or ask "
        "our staff to add the prefix of your ARKs to the collection's profile (given_arks)"
    )


def _border_problem(ark: str, profile: Profile, placement: Placement) -> str | None:
    """Why the collection may not change this object; None if it may.

    The messages do not reveal where the object is: that is not for depositors of another collection.
    """
    if placement.owner != profile.owner:
        return (
            f"{ark} belongs to another owner than collection {profile.name}: submit the object to a "
            "collection of its owner"
        )
    if placement.collections.isdisjoint(profile.collections):
        return (
            f"{ark} is not in collection {profile.name}, but in another collection of its owner: submit the "
            "object to that collection"
        )
    return None
