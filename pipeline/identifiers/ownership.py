"""The ARKs that the depositors of a collection may name, and the objects that they may change, and mean to.

ARKs are computable: whoever may name any ARK can occupy the next names of another collection, or add versions
to another collection's objects. So a collection names new objects below its own prefixes only, and changes
an object only if the object is in the collection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.names import quote_name
from pipeline.profiles.profile import Profile
from pipeline.records import JobConfiguration, Submission

if TYPE_CHECKING:  # loads SQLAlchemy, which a command that submits does not need
    from pipeline.inventory.ownership import Placement


def problem(ark: str, profile: Profile, placement: Placement | None, *, given: bool = True) -> str | None:
    """Why a job of the collection may not have this ARK; None if it may.

    `placement`: of the object with this ARK, if there is one. `given`: the depositor gave the ARK.
    """
    if placement is not None:
        return _border_problem(ark, profile, placement)
    return _naming_problem(ark, profile) if given else None


def may_add_version(deposit: Submission | JobConfiguration, profile: Profile) -> bool:
    """Whether the deposit may become a new version of an object that is here already."""
    return deposit.may_add_version or profile.new_versions


def version_problem(ark: str, title: str | None, profile: Profile) -> str:
    """Why a deposit that may not add a version may not have the ARK of this object.

    `title`: None if the inventory does not have the object yet, so that its collection is not known.
    """
    here = f"{ark} was stored by another deposit with the same identifier"
    if title is not None:
        here = f"{ark}{f', {quote_name(title)},' if title else ''} is in collection {profile.name} already"
    return (
        f"{here}, and this deposit would become its next version: if you mean that, deposit again and allow "
        "a new version (--new-version, the box on the page, new_version in the API); if not, give this "
        "object an identifier of its own"
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

    The texts do not tell where the object is: that is not for depositors of another collection.
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
