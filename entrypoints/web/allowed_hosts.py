"""Middleware: only the names that an operator gives this server are believed in `Host`."""

from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from entrypoints.web.problems import answer, http_problem

_PROBES = "/health/"
"""A supervisor asks by an address, and its answer has no link."""


class AllowedHosts:
    """Redirects and the address to which a login returns are made of `Host`, which a client may choose."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        """`hosts`: names in lower case, without a port; none: every name is believed."""
        self.app = app
        self.hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.hosts and not scope["path"].startswith(_PROBES):
            given = Headers(scope=scope).get("host", "").lower()
            name = given if given.endswith("]") else given.rpartition(":")[0] or given
            if name not in self.hosts:
                refusal = "this server has another name: see ARKLINE_WEB_HOSTS"
                await answer(http_problem(Request(scope), 421, refusal))(scope, receive, send)
                return
        await self.app(scope, receive, send)


def read_hosts(text: str) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(name.strip().lower() for name in text.split(",") if name.strip())
