"""Shared by the long-running programs of `./dev`: messages on standard error, and the exit code."""

import sys
from collections.abc import Callable
from typing import NoReturn

from entrypoints.cli import exit_codes
from pipeline.errors import ArklineError


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def end_with(main: Callable[[list[str]], int]) -> NoReturn:
    """Run `main` with this process's arguments; exits with its result, or with the code of its error."""
    try:
        code = main(sys.argv[1:])
    except ArklineError as error:
        say(f"error: {error}")
        code = exit_codes.of_error(error)
    sys.exit(code)
