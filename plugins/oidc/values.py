"""What a login at a provider begins with and ends with; needs no library."""

from dataclasses import dataclass

from pipeline.errors import UsageRefused

PREFIX = "oidc:"
"""Begins the name of a principal of the provider, and its session; no token's name has a colon."""

STARTED_SECONDS = 600
"""Time to log in at the provider."""


class LoginRefused(UsageRefused):
    """The person is not logged in; the message says why."""


@dataclass(frozen=True)
class Started:
    """A login that has begun: where the browser goes, and what it keeps until it is back."""

    url: str
    sealed: str


@dataclass(frozen=True)
class Finished:
    name: str
    """Of the principal."""
    session: str
    """From which the rights of the login follow; the browser does not get it."""
    next: str
    """The page that was asked for."""
