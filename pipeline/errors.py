"""Errors with a message for people: a message names the thing and, where there is one, the remedy."""

from enum import StrEnum
from typing import Self

from pipeline.remedies import Remedy


class ErrorKind(StrEnum):
    """An error's meaning for the caller; the command line maps it to an exit code, an API to a status."""

    REFUSED = "refused"
    """The request cannot be carried out as it was made: change it."""
    UNREACHABLE = "unreachable"
    """A service does not answer: the same request may succeed later."""
    INTERRUPTED = "interrupted"
    """The caller asked to stop."""
    OTHER = "other"


class ArklineError(Exception):
    """The root of the errors that a person may see; the message is shown as it is, without a traceback."""

    error_kind = ErrorKind.OTHER
    remedies: tuple[Remedy, ...] = ()
    """The remedy; not spelled in the message, because the command line and a page present it differently."""

    def with_remedies(self, *remedies: Remedy) -> Self:
        """This error, to be raised with `remedies`."""
        self.remedies = remedies
        return self


class UsageRefused(ArklineError):
    """The request cannot be carried out as it was made."""

    error_kind = ErrorKind.REFUSED


class ServiceUnreachable(ArklineError):
    """A required server does not answer; the message has its address."""

    error_kind = ErrorKind.UNREACHABLE
