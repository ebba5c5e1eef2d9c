"""Checks of ARKs."""

from pipeline.identifiers.noid import NotAnArk, check_character, parse_ark


def is_valid(ark: str) -> bool:
    """Whether the last character is the check character; ARKs minted elsewhere may not have one."""
    try:
        parsed = parse_ark(ark)
    except NotAnArk:
        return False
    name, last = parsed.name[:-1], parsed.name[-1]
    return last == check_character(f"{parsed.naan}/{name}")
