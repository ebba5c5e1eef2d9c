"""The login at an OpenID provider as the conformance suite gets it, and logins that break a promise."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import requests

from pipeline.principal import Interface, Principal, Role
from plugins.conformance.subjects import LoginPlace
from plugins.oidc import pages
from plugins.oidc.login import PREFIX, Finished
from plugins.oidc.pages import ProviderLogin
from plugins.oidc.provider import LoginRefused
from tests.servers.oidc import providing

GROUPS = "press: {role: depositor, collections: [demo, news]}\n"
OTHERS = "archivists: {role: operator}\n"

SECONDS = 30


def _subject(kind: type[ProviderLogin]) -> Callable[[Path], AbstractContextManager[LoginPlace]]:
    @contextmanager
    def place(folder: Path) -> Iterator[LoginPlace]:
        with providing() as provider:
            settings = provider.settings(folder, GROUPS + OTHERS)

            def log_in(browser: requests.Session, url: str, groups: str = "press") -> requests.Response:
                provider.person = {"sub": "ann", "groups": groups}
                return browser.get(url, timeout=SECONDS)

            def stranger(browser: requests.Session, url: str) -> requests.Response:
                return log_in(browser, url, "visitors")

            @contextmanager
            def withdrawn() -> Iterator[None]:
                provider.settings(folder, OTHERS)
                yield
                provider.settings(folder, GROUPS + OTHERS)

            @contextmanager
            def away() -> Iterator[None]:
                provider.bodies = {"/.well-known/openid-configuration": [b"no"], "/token": [b"no"]}
                yield
                provider.bodies = {}

            person = Principal(
                name=f"{PREFIX}ann",
                role=Role.DEPOSITOR,
                collections=frozenset(("demo", "news")),
                interface=Interface.WEB,
            )
            yield LoginPlace(lambda: kind(settings), log_in, person, stranger, withdrawn, away)

    return place


class _Trusting(ProviderLogin):
    """Takes a name for a session."""

    def finish(self, *given: str) -> Finished:
        finished = super().finish(*given)
        self._person = super().principal(finished.session)
        return dataclasses.replace(finished, session=finished.name)

    def principal(self, session: str) -> Principal:
        return self._person.model_copy(update={"name": session})


class _Remembering(ProviderLogin):
    """Remembers the rights of the first look-up."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._known: dict[str, Principal] = {}

    def principal(self, session: str) -> Principal:
        if session not in self._known:
            self._known[session] = super().principal(session)
        return self._known[session]


class _Generous(ProviderLogin):
    """Logs the last person in again who was logged in."""

    _last: Finished | None = None

    def finish(self, *given: str) -> Finished:
        try:
            self._last = super().finish(*given)
        except LoginRefused:
            if self._last is None:
                raise
        return self._last


class _Nameless(ProviderLogin):
    """Names people as tokens are named."""

    def principal(self, session: str) -> Principal:
        known = super().principal(session)
        return known.model_copy(update={"name": known.name.removeprefix(PREFIX)})


class _Forwarding(ProviderLogin):
    """Leads wherever the address says."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        vars(pages)["is_local"] = lambda _target: True


provider = _subject(ProviderLogin)
trusting = _subject(_Trusting)
remembering = _subject(_Remembering)
generous = _subject(_Generous)
nameless = _subject(_Nameless)
forwarding = _subject(_Forwarding)
