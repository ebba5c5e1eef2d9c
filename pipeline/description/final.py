"""The one description of an object that people get: as stored, or as submitted while nothing is stored.

Report, mail, callback, archive and status read it here; only recording decides it, from the stored ERC.
"""

from pipeline.description import anvl
from pipeline.object_description import ObjectDescription
from pipeline.records import Identifiers, JobConfiguration

ELEMENT_LIMIT = 1_000
"""Characters of one element: the description is in a znode. Storage and the inventory have all of it."""


def as_stored(erc: anvl.Pairs) -> ObjectDescription:
    """From an ERC without unknown elements; repeated elements are joined."""
    elements = {element: "; ".join(value for name, value in erc if name == element) for element, _ in erc}
    return ObjectDescription(**{element: _cut(text) for element, text in elements.items()})


def final_description(configuration: JobConfiguration, identifiers: Identifiers) -> ObjectDescription:
    if identifiers.description is not None:
        return identifiers.description
    return ObjectDescription(
        who=configuration.erc_who,
        what=configuration.erc_what,
        when=configuration.erc_when,
        where=configuration.erc_where,
    )


def _cut(text: str) -> str:
    return text if len(text) <= ELEMENT_LIMIT else f"{text[: ELEMENT_LIMIT - 3]}..."
