"""What a login at a provider starts and ends with; needs no library."""

from dataclasses import dataclass

from pipeline.errors import UsageRefused

PREFIX = "oidc:"
"""Prefix of the name of a provider's principal, and of its session; no token's name has a colon."""

STARTED_SECONDS = 600
"""Seconds allowed to log in at the provider."""


class LoginRefused(UsageRefused):
    """The person is not logged in; the message says why."""


@dataclass(frozen=True)
class Started:
    """A login in progress: where the browser goes, and what it keeps until it returns."""

    url: str
    sealed: str


@dataclass(frozen=True)
class Finished:
    name: str
    """The principal's name."""
    session: str
    """Determines the rights of the login; the browser never gets it."""
    next: str
    """The requested page."""
