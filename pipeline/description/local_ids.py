"""The depositor's own identifiers of an object: a list in one text, `;` between them, `%sc` for a `;`."""

from collections.abc import Iterable


def parse(text: str) -> tuple[str, ...]:
    """`a; b;a` -> (a, b): trimmed, empty ones left out, each once, in the order given."""
    return merge(part.strip().replace("%sc", ";") for part in text.split(";"))


def merge(*groups: Iterable[str]) -> tuple[str, ...]:
    """All ids of all groups, each once, in the order of their first appearance."""
    return tuple(dict.fromkeys(each for group in groups for each in group if each))


def write(ids: Iterable[str]) -> str:
    """The one text of which `parse` makes these ids."""
    return ";".join(each.replace(";", "%sc") for each in ids)
