"""Logins of programs by a page, in the shape of RFC 8628 (decision 145).

A program gets a device code, which it keeps, and a user code, which a person who is logged in enters at the
page. The token is derived from the device code, so nobody needs to keep it until the program asks, and the
program may ask again if an answer is lost.
"""

import hmac
import re
import secrets
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from operations.site import Site
from operations.tokens import hash_of, token_of
from pipeline import codes
from pipeline.errors import ArklineError
from pipeline.inventory.tokens import TokenEntry, insert_token, token_with_hash
from pipeline.principal import Principal
from pipeline.records import Record, now
from tasks.logs import log
from zkstate.errors import Missing
from zkstate.fleet import device_logins
from zkstate.fleet.device_logins import DeviceLogin

INTERVAL = 5
"""Seconds between two questions of a program."""

TOKEN_DAYS = 30
"""Days after which a person has to log in again, unless the rights that allowed the login end before."""

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
"""As RFC 8628, 6.1, has them: no vowels, so no words."""

CODE_LENGTH = 8
"""20 ** 8 codes: whoever may try 10 a minute meets one of 500 logins within 10 minutes by a chance of one in
500,000, and could then only lend it rights."""


class DeviceCode(Record):
    device_code: str = Field(repr=False)
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


class DeviceError(StrEnum):
    PENDING = "authorization_pending"
    SLOW_DOWN = "slow_down"
    DENIED = "access_denied"
    EXPIRED = "expired_token"


class DeviceToken(Record):
    error: DeviceError | None = None
    """null: here is the token."""
    access_token: str | None = Field(None, repr=False)
    token_type: str | None = None
    expires: datetime | None = None


def begin(site: Site, host: str, address: str, page: str) -> DeviceCode:
    """`host`: the machine, as the program calls it; `page`: the address at which a person answers."""
    device, letters = secrets.token_urlsafe(32), "".join(secrets.choice(_LETTERS) for _ in range(CODE_LENGTH))
    login = DeviceLogin(
        user_code=hash_of(letters),
        token=hash_of(_token(device)),
        host=host,
        address=address,
        expires=now() + timedelta(seconds=device_logins.SECONDS),
    )
    device_logins.begin(site.session, hash_of(device), login)
    user_code = f"{letters[:4]}-{letters[4:]}"
    return DeviceCode(
        device_code=device,
        user_code=user_code,
        verification_uri=page,
        verification_uri_complete=f"{page}?code={user_code}",
        expires_in=device_logins.SECONDS,
        interval=INTERVAL,
    )


def _token(device_code: str) -> str:
    return token_of(hmac.digest(device_code.encode(), b"arkline token", "sha256"))


def ask(site: Site, device_code: str) -> DeviceToken:
    """The token once a person has allowed the login; as often as the program asks."""
    login = device_logins.find(site.session, hash_of(device_code))
    if login is not None and login.allowed:
        token = _token(device_code)
        if (entry := token_with_hash(site.inventory(), hash_of(token))) is not None:
            return DeviceToken(access_token=token, token_type="Bearer", expires=entry.expires)  # noqa: S106
    if login is None or login.expires < now():
        return DeviceToken(error=DeviceError.EXPIRED)
    return DeviceToken(error=DeviceError.DENIED if login.allowed is False else DeviceError.PENDING)


def find(site: Site, user_code: str) -> tuple[str, DeviceLogin]:
    """The id and the login that waits for an answer; Missing if no login has the code."""
    letters = re.sub("[^A-Z]", "", user_code.upper())
    waiting = device_logins.with_code(site.session, hash_of(letters))
    if waiting is None or waiting[1].expires < now():
        raise Missing("no login waits for this code: compare it with the one that your program shows")
    return waiting


def answer(site: Site, caller: Principal, credential: str, user_code: str, *, allowed: bool) -> DeviceLogin:
    """Allow or refuse the login; `credential`: the basis of the caller's rights, with which the token ends.

    Safe to repeat: the answer is entered before the token is made.
    """
    name, asked = find(site, user_code)
    login = device_logins.answer(site.session, name, caller.name, allowed=allowed)
    if (login.allowed, login.by) != (allowed, caller.name):
        raise ArklineError(f"{login.by} has already answered this login", code=codes.USAGE_REFUSED)
    if allowed:
        _insert(site, caller, credential, asked)
    log().info("login of a program answered", host=login.host, client=login.address, allowed=allowed)
    return login


def _insert(site: Site, caller: Principal, credential: str, login: DeviceLogin) -> None:
    host = re.sub("[^A-Za-z0-9_.-]+", "-", login.host)
    latest = now() + timedelta(days=TOKEN_DAYS)
    entry = TokenEntry(
        name=f"{caller.name[:50]} on {host[:36]} {login.token[:8]}",
        hash=login.token,
        role=caller.role,
        collections=caller.collections,
        created=now(),
        created_by=caller.name,
        expires=min(latest, caller.expires or latest),
        person=caller.name,
        credential=credential,
    )
    if not insert_token(site.inventory(), entry):
        raise ArklineError("the token of this login could not be named: start the login again")
