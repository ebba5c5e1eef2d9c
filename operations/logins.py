"""Logins of people at the pages: a browser keeps a random text, and the inventory whose it is.

Every web process asks the inventory anew, so a login that was ended is over at once, and everywhere.
"""

import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta

from operations.tokens import REMEMBERED_TOKENS, InvalidToken, hash_of
from pipeline.inventory.sql import SqlInventory
from pipeline.inventory.tokens import LoginEntry, delete_login, insert_login, login_with_hash
from pipeline.principal import Principal
from pipeline.records import now

LOGIN_SECONDS = 12 * 3600
PREFIX = "login_"
_FORM = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")


class Logins:
    """Thread-safe."""

    def __init__(self, inventory: Callable[[], SqlInventory], rights: Callable[[str], Principal]) -> None:
        """`rights`: whose a credential is; InvalidToken if it counts no more."""
        self._inventory = inventory
        self._rights = rights
        self._guard = threading.Lock()
        self._accepted: OrderedDict[str, None] = OrderedDict()

    def begin(self, name: str, credential: str) -> str:
        """What the browser keeps; the caller has checked the credential."""
        login = PREFIX + secrets.token_urlsafe(32)
        ends = now() + timedelta(seconds=LOGIN_SECONDS)
        entry = LoginEntry(hash=hash_of(login), name=name, credential=credential, ends=ends)
        insert_login(self._inventory(), entry)
        return login

    def principal(self, login: str) -> Principal:
        """Who logged in, with the rights of now; InvalidToken if the login is over."""
        entry = login_with_hash(self._inventory(), hash_of(login)) if _FORM.fullmatch(login) else None
        if entry is None or entry.ends < now():
            raise InvalidToken("the login is over, or is not of this site: log in again")
        principal = self._rights(entry.credential)
        with self._guard:
            self._accepted[entry.hash] = None
            self._accepted.move_to_end(entry.hash)
            if len(self._accepted) > REMEMBERED_TOKENS:
                self._accepted.popitem(last=False)
        return principal

    def knows(self, login: str) -> bool:
        """True if this process has accepted the login before; whether it still does, `principal` says."""
        with self._guard:
            return hash_of(login) in self._accepted

    def end(self, login: str) -> None:
        """Whoever else has a copy of the text is logged out too. Idempotent."""
        if _FORM.fullmatch(login):
            delete_login(self._inventory(), hash_of(login))
        with self._guard:
            self._accepted.pop(hash_of(login), None)
