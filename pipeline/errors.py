"""Errors with a message for people: every one names the thing and, where there is one, the remedy."""


class ArklineError(Exception):
    """The root of the errors that a person may see; the message is shown as it is, without a traceback."""

    exit_code = 1


class UsageRefused(ArklineError):
    """What was asked cannot be done as it was asked: exit code 2."""

    exit_code = 2


class ServiceUnreachable(ArklineError):
    """A server that is needed does not answer: exit code 3; the message has its address."""

    exit_code = 3
