"""What the long programs of `./dev` share: lines for people on standard error, and the exit code."""

import sys
from collections.abc import Callable
from typing import NoReturn

from entrypoints.cli import exit_codes
from pipeline.errors import ArklineError


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def end_with(main: Callable[[list[str]], int]) -> NoReturn:
    """Run `main` with this process's arguments; its result, or the code of its error, ends the process."""
    try:
        code = main(sys.argv[1:])
    except ArklineError as error:
        say(f"error: {error}")
        code = exit_codes.of_error(error)
    sys.exit(code)
