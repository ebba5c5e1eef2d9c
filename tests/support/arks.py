"""Checks of ARKs."""

from pipeline.identifiers.noid import check_character
from pipeline.names import NotAnArk, canonical_ark


def is_valid(ark: str) -> bool:
    """Whether the last character is the check character; ARKs minted elsewhere may not have one."""
    try:
        name = canonical_ark(ark).removeprefix("ark:/")
    except NotAnArk:
        return False
    return name[-1] == check_character(name[:-1])
