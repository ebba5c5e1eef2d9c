"""The depositor's own identifiers of an object: a list in one text, `;` between them, `%sc` for a `;`."""

from collections.abc import Iterable


def parse(text: str) -> tuple[str, ...]:
    """`a; b;a` -> (a, b): trimmed, without empty or repeated ids, in the given order."""
    return merge(part.strip().replace("%sc", ";") for part in text.split(";"))


def merge(*groups: Iterable[str]) -> tuple[str, ...]:
    """The ids of all groups without repeats, in the order of their first appearance."""
    return tuple(dict.fromkeys(name for group in groups for name in group if name))


def write(ids: Iterable[str]) -> str:
    """The text that `parse` converts to these ids."""
    return ";".join(name.replace(";", "%sc") for name in ids)
