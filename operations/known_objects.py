"""Whether a deposit adds a version to an object that is here already, before it is made."""

from collections.abc import Iterable

from operations.archive import Archive
from pipeline.names import NotAnArk, canonical_ark
from pipeline.profiles.profile import Profile


def known_objects(
    profile: Profile, local_id: Iterable[str], primary_id: str | None, archive: Archive
) -> dict[str, str]:
    """Identifier -> ARK of the object that it names: a deposit with it becomes the object's next version."""
    values = list(dict.fromkeys(local_id))
    inventory = archive() if values or primary_id else None
    if inventory is None:
        return {}
    known = inventory.arks_of(profile.owner, values) if values else {}
    if primary_id:
        try:
            ark = canonical_ark(primary_id)
        except NotAnArk:
            return known  # the submission is refused for it
        if inventory.placement_of(ark) is not None:
            known = {**known, primary_id: ark}
    return known
