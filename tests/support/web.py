"""The web application in a test: the real server on a free port, and callers with tokens."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import requests

from entrypoints.web.app import create_app
from entrypoints.web.context import WebContext, following
from operations.tokens import create_token
from pipeline.inventory.sql import open_inventory
from pipeline.principal import Role
from pipeline.settings import Settings
from plugins.conformance.serving import served
from tests.support.operators import ANN

FILL_SECONDS = 60.0
"""Seconds in which a board is filled from the record, on a busy machine."""

BEING_ASKED = "are being asked: repeat this soon"

OWN_FORM = {"Sec-Fetch-Site": "same-origin"}
"""What a browser sends with a form of the site's own."""


@dataclass(frozen=True)
class Caller:
    """Requests with one token; an empty token is not sent."""

    url: str
    token: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def request(self, method: str, path: str, **options: Any) -> requests.Response:
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        headers = {**bearer, **self.headers, **options.pop("headers", {})}
        timeout = options.pop("timeout", 30)
        return requests.request(method, f"{self.url}{path}", headers=headers, timeout=timeout, **options)

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> requests.Response:
        return self.request("POST", path, json=json, **options)


MAIN_PAGES = (
    "/",
    "/batches",
    "/jobs",
    "/failures",
    "/stops",
    "/space",
    "/fleet",
    "/objects",
    "/collections",
    "/deposits",
    "/notifications",
    "/help/deposit",
)


@dataclass(frozen=True)
class Web:
    """A running web process."""

    url: str
    context: WebContext

    @property
    def anybody(self) -> Caller:
        return Caller(self.url)

    def caller(self, role: Role, collections: Sequence[str] | None = None, name: str = "") -> Caller:
        """A caller with a new token."""
        token = new_token(self.context.settings, name or f"{role}-token", role, collections)
        return Caller(self.url, token)


def new_token(settings: Settings, name: str, role: Role, collections: Sequence[str] | None = None) -> str:
    inventory = open_inventory(settings.inventory)
    return create_token(inventory, ANN, name, role, collections).token


@contextmanager
def serving(settings: Settings, flower: str = "", proxies: str = "", hosts: str = "") -> Iterator[Web]:
    """The application, served on a free port of this machine until the block ends."""
    with following(settings) as (site, board):
        context = WebContext(site, board)
        with served(create_app(context, flower, hosts), proxies) as url:
            yield Web(url, context)


@contextmanager
def serving_board(settings: Settings) -> Iterator[Web]:
    """Like `serving`, with a board that has read the whole record."""
    with serving(settings) as running:
        assert running.context.board.wait_filled(FILL_SECONDS)
        yield running


class Browser:
    """A person with a login, without JavaScript."""

    def __init__(self, web: Web, token: str) -> None:
        assert web.context.board.wait_filled(FILL_SECONDS)  # the first page may be a list from memory
        self._url = web.url
        self._http = requests.Session()
        answer = self.send("/login", token=token, next="/")
        assert answer.status_code == 200, answer.text

    def open(self, path: str, status: int = 200) -> str:
        """The page's text. A page that asks for a repetition, because servers are slow, is opened again."""
        limit = time.monotonic() + FILL_SECONDS
        while True:
            answer = self._http.get(f"{self._url}{path}", timeout=30)
            if answer.status_code == status or BEING_ASKED not in answer.text or time.monotonic() > limit:
                break
            time.sleep(0.5)
        assert answer.status_code == status, f"{answer.status_code}: {answer.text[:2000]}"
        return unescape(re.sub(r"\s+", " ", answer.text))

    def send(self, path: str, headers: Mapping[str, str] = OWN_FORM, **fields: str) -> requests.Response:
        return self._http.post(f"{self._url}{path}", data=fields, headers=headers, timeout=30)

    def send_file(self, path: str, name: str, body: bytes, **fields: str) -> requests.Response:
        files = {"file": (name, body)}
        return self._http.post(f"{self._url}{path}", data=fields, files=files, headers=OWN_FORM, timeout=30)

    def act(self, act: str, target: str = "", **fields: str) -> str:
        """The page that follows the act."""
        answer = self.send("/act", OWN_FORM, act=act, target=target, **fields)
        assert answer.status_code == 200, answer.text
        return unescape(answer.text)


def browser(web: Web, role: Role, name: str, collections: list[str] | None = None) -> Browser:
    return Browser(web, web.caller(role, collections, name=name).token)


def parts_of_uploads(web: Web) -> set[Path]:
    """The unfinished files of all uploads, those of earlier tests included."""
    return set(web.context.settings.uploads_folder.glob("*/*/parts/*/*"))
