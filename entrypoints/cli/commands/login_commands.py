"""Log in at a site, log out, and show who one is."""

from __future__ import annotations

import os
import socket
import sys
import time
import webbrowser
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

import typer

import pipeline.inventory.tokens
from entrypoints.cli import api, logins, reach, watching
from entrypoints.cli.options import Json, command
from entrypoints.render import screen
from entrypoints.web.routes import about
from operations import device_login
from pipeline import humanize
from pipeline.allowed_networks import is_loopback
from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.http import urls

SLOWER = 5
"""Seconds longer between two questions, when the site asks for it (RFC 8628, 3.5)."""


@command("arkline login https://deposit.example.org")
def login(
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="The site, as https://deposit.example.org; default: the current."),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Allow plain http, from which others can read the token."),
    ] = False,
    json: Json = False,
) -> None:
    """Log in at a site by a page, and use that site from now on.

    Prints an address and a code: open the address in any browser, log in there, and allow this login. The
    token is kept in ~/.config/arkline (XDG_CONFIG_HOME), for 30 days at most. A site whose login still holds
    only becomes the current one. ARKLINE_URL and ARKLINE_TOKEN go first, and the shell of a stack, which has
    other ARKLINE_* variables, uses no login.
    """
    saved = logins.read()
    url = (url or saved.current).rstrip("/")
    if not url:
        raise UsageRefused("name the site, as https://deposit.example.org: there is no current login")
    if (problem := urls.web_problem(url)) or urls.has_password(url):
        raise UsageRefused(problem or f"{urls.redact_url(url)}: write it without a user or a password")
    address = urlsplit(url)
    if address.scheme == "http" and not is_loopback(address.hostname or "") and not insecure:
        raise UsageRefused(
            f"{url} is plain http, from which others can read the token: use https, or --insecure"
        )
    site = api.Client(url, "", source="the command")
    known = saved.servers.get(url)
    token = known.token if known and _holds(replace(site, token=known.token)) else _new_token(site)
    caller = _caller(replace(site, token=token))
    new = logins.SavedLogin(token=token, name=caller.name, expires=caller.expires)
    logins.change(lambda all_: logins.SavedLogins(current=url, servers={**all_.servers, url: new}))
    _show(replace(site, token=token, source=f"the login in {logins.file()}"), caller, as_json=json)
    if os.environ.keys() & {reach.URL, reach.TOKEN}:
        screen.note(f"{reach.URL} and {reach.TOKEN} are set in this shell, and go first")


def _new_token(site: api.Client) -> str:
    code = site.post("/v1/login/device", device_login.DeviceCode, {"host": socket.gethostname()[:100]})
    within = humanize.duration(code.expires_in)
    screen.note(f"Open {code.verification_uri} and enter the code {code.user_code} within {within}.", "")
    if sys.stdin.isatty() and sys.stdout.isatty() and not urls.web_problem(code.verification_uri_complete):
        webbrowser.open(code.verification_uri_complete)
    interval, end, note = code.interval, time.monotonic() + code.expires_in, watching.noting()
    while time.monotonic() < end:
        time.sleep(interval)
        try:
            answer = site.post("/v1/login/token", device_login.DeviceToken, {"device_code": code.device_code})
        except ServiceUnreachable as error:
            note(str(error))
            continue
        note("")
        if answer.access_token:
            return answer.access_token
        if answer.error is device_login.DeviceError.DENIED:
            raise UsageRefused("the login was refused at the page")
        if answer.error is device_login.DeviceError.EXPIRED:
            break
        interval += SLOWER if answer.error is device_login.DeviceError.SLOW_DOWN else 0
    raise UsageRefused("nobody allowed the login in time: start it again")


@command("arkline logout")
def logout(
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="The site; default: the current login's.")
    ] = None,
    json: Json = False,
) -> None:
    """Log out: revoke the token at the site, and remove it here.

    It is removed here in any case. Exit 3 if the site does not answer: the token stays valid there until it
    expires or an administrator revokes it.
    """
    saved = logins.read()
    url = (url or saved.current).rstrip("/")
    if (login := saved.servers.get(url)) is None:
        raise UsageRefused(
            f"there is no login at {url}" if url else "there is no current login: name the site"
        )
    try:
        site = api.Client(url, login.token, source=f"the login in {logins.file()}")
        site.post("/v1/login/end", pipeline.inventory.tokens.TokenEntry, {})
    except UsageRefused as error:
        screen.note(str(error))
    finally:
        logins.change(
            lambda known: logins.SavedLogins(
                current="" if known.current == url else known.current,
                servers={name: one for name, one in known.servers.items() if name != url},
            )
        )
    screen.emit({"url": url}) if json else screen.say(f"Logged out from {url}.")


@command("arkline whoami", ids="name")
def whoami(json: Json = False) -> None:
    """Show the site that commands ask, by which token, and what it allows."""
    with api.site(record=False) as site:
        _show(site, _caller(site), as_json=json)


def _holds(site: api.Client) -> bool:
    try:
        return bool(_caller(site))
    except UsageRefused:
        return False


def _caller(site: api.Client) -> about.WhoAmI:
    return site.get("/v1", about.About).caller


def _show(site: api.Client, caller: about.WhoAmI, *, as_json: bool) -> None:
    if as_json:
        screen.emit({"url": site.url, "source": site.source, **caller.model_dump(mode="json")})
        return
    screen.facts(
        (
            ("site", site.url),
            ("token from", site.source),
            ("name", caller.name),
            ("role", caller.role),
            ("collections", "all" if caller.collections is None else ", ".join(sorted(caller.collections))),
            ("until", f"{caller.expires:%Y-%m-%d %H:%M} UTC" if caller.expires else None),
        )
    )
