"""Saying lines to whoever started us."""

from collections.abc import Callable
from contextlib import suppress

from rich.console import Console


def teller(console: Console) -> Callable[[str], None]:
    """Say lines for as long as somebody can hear them: a closed terminal must not disturb an orderly stop."""

    def say(line: str) -> None:
        with suppress(OSError, SystemExit):  # rich answers a broken pipe with SystemExit
            console.print(line, markup=False)

    return say
