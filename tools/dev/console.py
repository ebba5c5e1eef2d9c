"""Progress lines on the terminal."""

from collections.abc import Callable
from contextlib import suppress

from rich.console import Console


def teller(console: Console) -> Callable[[str], None]:
    """A function that prints a line; a closed terminal must not disturb an orderly stop."""

    def say(line: str) -> None:
        with suppress(OSError, SystemExit):  # rich raises SystemExit on a broken pipe
            console.print(line, markup=False)

    return say
