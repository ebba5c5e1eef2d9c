"""Tokens and logins of the web interfaces: create, list, end and authenticate them.

A browser login is a random text that the browser keeps and the inventory maps to a person. Every web process
asks the inventory each time, so ending a login takes effect at once, everywhere.
"""

import base64
import hashlib
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from pydantic import Field

from pipeline import codes
from pipeline.errors import ArklineError, UsageRefused
from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tokens import (
    LoginEntry,
    TokenEntry,
    all_tokens,
    delete_login,
    insert_login,
    insert_token,
    login_with_hash,
    note_use,
    revoke_token,
    token_with_hash,
)
from pipeline.outcome import StepFailed
from pipeline.principal import Interface, Principal, Role
from pipeline.records import Record, age, now
from tasks.logs import log

PREFIX = "ark_"
RANDOM_BYTES = 20
CHECK_CHARACTERS = 6
_BODY = RANDOM_BYTES * 8 // 5
_FORM = re.compile(rf"{PREFIX}([a-z2-7]{{{_BODY}}})([a-z2-7]{{{CHECK_CHARACTERS}}})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}")

REMEMBERED_SECONDS = 5.0
"""Seconds after which a token is read again: another process may have revoked it."""

REMEMBERED_TOKENS = 1_000
USE_PAUSE = 60.0
"""Minimum seconds between two updates of a token's last use."""


class InvalidToken(ArklineError):
    code = codes.INVALID_TOKEN


class NewToken(TokenEntry):
    """A token that was created."""

    token: str = Field(repr=False)
    """The token itself: it is shown once, and only its hash is kept."""


class Tokens(Record):
    tokens: tuple[TokenEntry, ...]


def create_token(
    inventory: SqlInventory,
    creator: Principal,
    name: str,
    role: Role,
    collections: Iterable[str] | None = None,
) -> NewToken:
    """Create a token; `collections` None: all. UsageRefused if the name is or was in use."""
    creator.require(Role.ADMIN, "create a token")
    if not _NAME.fullmatch(name):
        raise UsageRefused(
            f"'{name}' is not a name for a token: use letters, digits and _ . @ -, at most 100 characters"
        )
    token = token_of(secrets.token_bytes(RANDOM_BYTES))
    entry = TokenEntry(
        name=name,
        hash=hash_of(token),
        role=role,
        collections=None if collections is None else frozenset(collections),
        created=now(),
        created_by=creator.name,
    )
    if not insert_token(inventory, entry):
        raise UsageRefused(
            f"there is or was a token named {name}: choose another name, because batches belong to names"
        )
    return NewToken(**vars(entry), token=token)


def token_of(random: bytes) -> str:
    body = base64.b32encode(random[:RANDOM_BYTES]).decode().lower()
    return f"{PREFIX}{body}{_check_characters(body)}"


def list_tokens(inventory: SqlInventory, caller: Principal) -> tuple[TokenEntry, ...]:
    caller.require(Role.ADMIN, "list the tokens")
    return all_tokens(inventory)


def revoke(inventory: SqlInventory, caller: Principal, name: str) -> TokenEntry:
    """Revoke the token; every process rejects it within REMEMBERED_SECONDS. Idempotent."""
    caller.require(Role.ADMIN, "revoke a token")
    entry = revoke_token(inventory, name, caller.name, now())
    if entry is None:
        raise ArklineError(
            f"there is no token named {name}: `list` shows the names", code=codes.NO_SUCH_TOKEN
        )
    return entry


def end_login_of(inventory: SqlInventory, digest: str, caller: Principal) -> TokenEntry:
    """Revoke the caller's own token with this hash, if a login made it."""
    entry = token_with_hash(inventory, digest)
    if entry is None or entry.credential is None:
        raise UsageRefused("this token was created by an administrator, who can revoke it: it is of no login")
    return revoke_token(inventory, entry.name, caller.name, now()) or entry


def hash_of(token: str) -> str:
    """The hash by which the inventory stores a token or a login."""
    return hashlib.sha256(token.encode()).hexdigest()


def _check_characters(body: str) -> str:
    """Check characters that expose a mistyped token without a database; not a secret."""
    digest = hashlib.sha256(b"arkline token " + body.encode()).digest()
    return base64.b32encode(digest).decode().lower()[:CHECK_CHARACTERS]


def check_form(token: str) -> None:
    """InvalidToken if the text cannot be a token, because characters are missing or wrong."""
    form = _FORM.fullmatch(token)
    if form is None:
        raise InvalidToken(
            f"this is not a token: a token begins with {PREFIX} and has "
            f"{len(PREFIX) + _BODY + CHECK_CHARACTERS} characters"
        )
    if _check_characters(form[1]) != form[2]:
        raise InvalidToken("the token is mistyped: copy the whole token again")


@dataclass(frozen=True)
class _Remembered:
    entry: TokenEntry
    read_at: float


class Authenticator:
    """Maps a token to its principal. Thread-safe; a revoked token is rejected within REMEMBERED_SECONDS."""

    def __init__(
        self, inventory: Callable[[], SqlInventory], rights: Callable[[str], Principal] | None = None
    ) -> None:
        """`rights`: as for `Logins`; without it, the token of a login is valid only as long as a token is
        its basis."""
        self._inventory = inventory
        self._rights = rights or (lambda digest: self.principal(digest, Interface.API))
        self._guard = threading.Lock()
        self._entries: OrderedDict[str, _Remembered] = OrderedDict()

    def authenticate(self, token: str, interface: Interface) -> Principal:
        """The token's principal; InvalidToken unless the token is valid and not revoked."""
        check_form(token)
        return self.principal(hash_of(token), interface)

    def principal(self, digest: str, interface: Interface) -> Principal:
        """The principal of the token with this hash; InvalidToken unless it is valid and not revoked."""
        entry = self._entry(digest)
        if entry is None:
            raise InvalidToken("the token is not known here: ask the operator for a token")
        if entry.revoked is not None:
            raise InvalidToken(f"the token {entry.name} was revoked on {entry.revoked:%Y-%m-%d}")
        if entry.expires is not None and entry.expires < now():
            raise InvalidToken(f"the token {entry.name} expired on {entry.expires:%Y-%m-%d}: log in again")
        own = Principal(
            name=entry.person or entry.name,
            role=entry.role,
            collections=entry.collections,
            interface=interface,
            expires=entry.expires,
        )
        return own if entry.credential is None else own.within(self._rights(entry.credential))

    def knows(self, token: str) -> bool:
        """True if this process has accepted the token before; `authenticate` says whether it still does."""
        with self._guard:
            remembered = self._entries.get(hash_of(token))
        return remembered is not None and remembered.entry.revoked is None

    def _entry(self, digest: str) -> TokenEntry | None:
        with self._guard:
            remembered = self._entries.get(digest)
        if remembered is not None and time.monotonic() - remembered.read_at < REMEMBERED_SECONDS:
            return remembered.entry
        read_at = time.monotonic()
        entry = token_with_hash(self._inventory(), digest)
        if entry is None:
            return None
        if entry.revoked is None and (entry.used is None or age(entry.used) > USE_PAUSE):
            self._note_use(entry.name)
        with self._guard:
            self._entries[digest] = _Remembered(entry, read_at)
            self._entries.move_to_end(digest)
            if len(self._entries) > REMEMBERED_TOKENS:
                self._entries.popitem(last=False)
        return entry

    def _note_use(self, name: str) -> None:
        try:
            note_use(self._inventory(), name, now())
        except StepFailed as failure:  # failing to note the last use must not lock anybody out
            log().warning("the use of a token was not noted", token_name=name, error=failure.message)


LOGIN_SECONDS = 12 * 3600
LOGIN_PREFIX = "login_"
_LOGIN_FORM = re.compile(rf"{LOGIN_PREFIX}[A-Za-z0-9_-]{{43}}")


class Logins:
    """Maps a browser login to its principal. Thread-safe."""

    def __init__(self, inventory: Callable[[], SqlInventory], rights: Callable[[str], Principal]) -> None:
        """`rights`: returns the credential's principal; InvalidToken if the credential is no longer valid."""
        self._inventory = inventory
        self._rights = rights
        self._guard = threading.Lock()
        self._accepted: OrderedDict[str, None] = OrderedDict()

    def begin(self, name: str, credential: str) -> str:
        """Start a login; returns the text for the browser. The caller has checked the credential."""
        login = LOGIN_PREFIX + secrets.token_urlsafe(32)
        ends = now() + timedelta(seconds=LOGIN_SECONDS)
        entry = LoginEntry(hash=hash_of(login), name=name, credential=credential, ends=ends)
        insert_login(self._inventory(), entry)
        return login

    def principal(self, login: str) -> Principal:
        """The logged-in principal, with current rights; InvalidToken if the login has ended."""
        entry = self.entry(login)
        principal = self._rights(entry.credential)
        if ":" in entry.credential:
            principal = principal.model_copy(update={"expires": entry.ends})
        with self._guard:
            self._accepted[entry.hash] = None
            self._accepted.move_to_end(entry.hash)
            if len(self._accepted) > REMEMBERED_TOKENS:
                self._accepted.popitem(last=False)
        return principal

    def entry(self, login: str) -> LoginEntry:
        entry = login_with_hash(self._inventory(), hash_of(login)) if _LOGIN_FORM.fullmatch(login) else None
        if entry is None or entry.ends < now():
            raise InvalidToken("the login is over, or is not of this site: log in again")
        return entry

    def knows(self, login: str) -> bool:
        """True if this process has accepted the login before; `principal` says whether it is still valid."""
        with self._guard:
            return hash_of(login) in self._accepted

    def end(self, login: str) -> None:
        """End the login for every copy of the text. Idempotent."""
        if _LOGIN_FORM.fullmatch(login):
            delete_login(self._inventory(), hash_of(login))
        with self._guard:
            self._accepted.pop(hash_of(login), None)
