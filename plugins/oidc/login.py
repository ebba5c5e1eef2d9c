"""The login flow: from the button to the provider and back, by authorization code with PKCE.

Between the two steps the browser keeps this login's state, nonce and verifier, sealed. Afterwards the
inventory keeps who logged in and by which group, sealed as well, so that a new secret ends all logins and a
row of the inventory alone lets nobody log in; the group's rights are looked up for every request.
"""

import base64
import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from pydantic import ConfigDict, Field, RootModel, ValidationError

from operations.tokens import LOGIN_SECONDS, InvalidToken
from pipeline.errors import ServiceUnreachable, UsageRefused, first_fault
from pipeline.principal import Interface, Principal, Role
from pipeline.records import Record
from plugins.oidc.provider import LoginRefused, Provider
from plugins.oidc.settings import OidcSettings
from tasks.logs import log

PREFIX = "oidc:"
"""Prefix of the name of a provider's principal, and of its session; no token's name has a colon."""

STARTED_SECONDS = 600
"""Seconds allowed to log in at the provider."""

STARTED, LOGGED_IN = "arkline login", "arkline session"
GROUPS_SECONDS = 5.0
"""Seconds after which the groups file is read again."""

_ALGORITHM = "HS256"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@|+-]{0,199}")


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


class Seal:
    """Values that a browser keeps for us: signed, for one purpose, and for a limited time.

    The key is derived from the client's secret, so all web processes accept the values, and a new secret ends
    them.
    """

    def __init__(self, secret: str) -> None:
        digest = hmac.new(secret.encode(), b"arkline values in cookies", hashlib.sha256).digest()
        self._key = OctKey.import_key(digest)

    def seal(self, purpose: str, seconds: float, values: dict[str, str]) -> str:
        claims = {**values, "aud": purpose, "exp": int(time.time() + seconds)}
        return jwt.encode({"alg": _ALGORITHM}, claims, self._key)

    def open(self, purpose: str, sealed: str) -> dict[str, str]:
        """The values; InvalidToken if they were not sealed here for this purpose, or have expired."""
        try:
            token = jwt.decode(sealed, self._key, algorithms=[_ALGORITHM])
            rules = jwt.JWTClaimsRegistry(
                aud={"essential": True, "value": purpose}, exp={"essential": True}, leeway=0
            )
            rules.validate(token.claims)
        except (JoseError, ValueError) as error:
            raise InvalidToken("the login is over, or is not of this site: log in again") from error
        return {name: value for name, value in token.claims.items() if isinstance(value, str)}


class Rights(Record):
    """The rights of a group's members; `collections` None: all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    collections: frozenset[str] | None = Field(default=None, min_length=1)


class Groups(RootModel[dict[str, Rights]]):
    """The groups in file order: a person has the rights of the first group that they belong to."""

    def first_of(self, names: frozenset[str]) -> str | None:
        """The group whose rights a member of these groups has; None if there is none."""
        return next((group for group in self.root if group in names), None)

    def rights(self, group: str) -> Rights | None:
        return self.root.get(group)


def read_groups(file: Path) -> Groups:
    """Read the file; UsageRefused says what is wrong with it."""
    try:
        groups = Groups.model_validate(yaml.safe_load(file.read_text()))
    except OSError as error:
        raise UsageRefused(f"ARKLINE_OIDC_GROUPS: {file} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UsageRefused(f"ARKLINE_OIDC_GROUPS: {file} is not YAML: {error}") from error
    except ValidationError as error:
        raise UsageRefused(f"ARKLINE_OIDC_GROUPS: {file}, {first_fault(error, 'the file')}") from error
    if not groups.root:
        raise UsageRefused(f"ARKLINE_OIDC_GROUPS: {file} names no group, so that nobody could log in")
    return groups


class OidcLogin:
    """Thread-safe."""

    def __init__(self, settings: OidcSettings) -> None:
        secret = settings.oidc_client_secret.get_secret_value()
        assert settings.oidc_groups is not None
        self._file = settings.oidc_groups
        self._read = (time.monotonic(), read_groups(self._file))
        self._client_id = settings.oidc_client_id
        self._groups_claim = settings.oidc_groups_claim
        self._name_claim = settings.oidc_name_claim
        self._scopes = settings.oidc_scopes
        self._provider = Provider(settings.oidc_issuer, settings.oidc_client_id, secret)
        self._seal = Seal(secret)

    def start(self, redirect: str, next_page: str) -> Started:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect,
            "scope": self._scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        endpoint = self._provider.authorization_endpoint()
        values = {"state": state, "nonce": nonce, "verifier": verifier, "next": next_page}
        return Started(
            url=f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}",
            sealed=self._seal.seal(STARTED, STARTED_SECONDS, values),
        )

    def finish(self, sealed: str, state: str, code: str, redirect: str) -> Finished:
        """Complete a login; LoginRefused, with a message, unless provider and groups identify the person."""
        try:
            started = self._seal.open(STARTED, sealed)
        except InvalidToken as error:
            raise LoginRefused("this login was not started here, or took too long: log in again") from error
        if not hmac.compare_digest(started["state"].encode(), state.encode()):
            raise LoginRefused("this answer of the provider is of another login: log in again")
        claims = self._provider.claims(code, started["verifier"], redirect, started["nonce"])
        values = {"name": self._name(claims), "group": self._group(claims)}
        session = PREFIX + self._seal.seal(LOGGED_IN, LOGIN_SECONDS, values)
        return Finished(name=values["name"], session=session, next=started["next"])

    def principal(self, session: str) -> Principal:
        """The logged-in principal; InvalidToken if the session has ended, or its group has no rights now."""
        values = self._seal.open(LOGGED_IN, session.removeprefix(PREFIX))
        rights = self._groups().rights(values["group"])
        if rights is None:
            raise InvalidToken("the rights of your group have changed: log in again")
        return Principal(
            name=values["name"], role=rights.role, collections=rights.collections, interface=Interface.WEB
        )

    def _groups(self) -> Groups:
        """The groups; ServiceUnreachable, with the cause in the log, while the file cannot be read."""
        read_at, groups = self._read
        if time.monotonic() - read_at < GROUPS_SECONDS:
            return groups
        try:
            groups = read_groups(self._file)
        except UsageRefused as error:
            log().error("the groups of the login cannot be read", error=str(error))
            raise ServiceUnreachable(
                "logins at the provider cannot be used now; the cause is in the log of this site"
            ) from error
        self._read = (time.monotonic(), groups)
        return groups

    def _name(self, claims: dict[str, Any]) -> str:
        name = claims.get(self._name_claim)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise LoginRefused(
                f"the provider gives you no name that can be used here: the claim {self._name_claim} needs "
                "letters, digits and _ . @ | + -, at most 200 characters"
            )
        return f"{PREFIX}{name}"

    def _group(self, claims: dict[str, Any]) -> str:
        given = claims.get(self._groups_claim)
        listed = given if isinstance(given, list) else [given]
        names = frozenset(one for one in listed if isinstance(one, str))
        group = self._groups().first_of(names)
        if group is None:
            raise LoginRefused(
                "you are logged in at the provider, but none of your groups has rights here: ask the "
                "operator of this site"
            )
        return group
