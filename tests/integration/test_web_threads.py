"""Every route of the web process is in a table that says why it keeps no thread from others.

Rule: a route either declares with `slow` that it runs in threads of its own, or stands in BOUNDED with the
reason why its work has a known end, or in MIXED with the part of it that is slow work.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from fastapi.routing import APIRoute

from entrypoints.web.app import routers
from entrypoints.web.limits import SlowWork
from entrypoints.web.pages.install import PAGES
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support.web import OWN_FORM, Caller, Web, serving_board

POOLS = (
    "slow_work",
    "record_work",
    "fleet_work",
    "worker_work",
    "form_work",
    "provider_work",
    "retrieval_work",
)

_BOARD = "a page of at most 500 rows, or sums, of the board in memory; 100,000 jobs are counted in 0.1 s"
_ROWS = "a page of at most 500 rows of the board, and three nodes of each"
_NODES = "some nodes of one job or batch, each of at most 1 MB"
_VERB = "one transaction on one job, one batch or one stop"
_STREAM = "the event loop writes; a limit of streams; parts are rendered in threads apart"
_PIECES = "a thread for each piece of 1 MiB, or for the look-up of one upload; its body is not held"
_PROFILES = "files of the site's profiles, which its operators write"
_TEMPLATE = "text that does not depend on the record"
_TOKEN = "one row of the inventory; wrong tokens are limited"
_LOGIN = "at most 500 nodes of logins; starts, polls and codes are limited"
_JOURNAL = "a journal, which keeps its last entries alone"

BOUNDED = {
    "GET /health/live": "no thread",
    "GET /health/ready": "no thread",
    "GET /v1": _TEMPLATE,
    "GET /v1/errors": _TEMPLATE,
    "GET /v1/errors/{code}": _TEMPLATE,
    "GET /v1/tokens": "a row for each token, which administrators created",
    "POST /v1/tokens": _TOKEN,
    "POST /v1/tokens/{name}/revoke": _TOKEN,
    "GET /v1/board": _BOARD,
    "GET /v1/jobs": _ROWS,
    "GET /v1/batches": _BOARD,
    "GET /v1/failures": _BOARD,
    "GET /v1/collections": _BOARD,
    "GET /v1/collections/{name}": _BOARD,
    "GET /v1/stops": _BOARD,
    "GET /v1/batches/{bid}/jobs": _ROWS,
    "GET /v1/batches/{bid}/history": _NODES,
    "GET /v1/jobs/{jid}": _NODES,
    "GET /v1/jobs/{jid}/timeline": _NODES,
    "GET /v1/jobs/{jid}/progress": _NODES,
    "GET /v1/jobs/{jid}/files": "a page of at most 500 rows of the inventory",
    "GET /v1/events": _STREAM,
    "GET /v1/batches/{bid}/events": _STREAM,
    "GET /v1/jobs/{jid}/events": _STREAM,
    "POST /v1/jobs/{jid}/resume": _VERB,
    "POST /v1/jobs/{jid}/hold": _VERB,
    "POST /v1/jobs/{jid}/release": _VERB,
    "POST /v1/jobs/{jid}/approve": _VERB,
    "POST /v1/jobs/{jid}/{verb}/dry-run": _VERB,
    "POST /v1/batches/{bid}/renew-profile": _VERB,
    "POST /v1/batches/{bid}/renew-profile/dry-run": _VERB,
    "POST /v1/queue/pause": _VERB,
    "POST /v1/queue/unpause": _VERB,
    "GET /v1/callbacks": "a page of at most 500 entries",
    "GET /v1/hosts": "two nodes for each of at most 200 hosts",
    "GET /v1/actions": _JOURNAL,
    "GET /v1/profiles": _PROFILES,
    "GET /v1/collections/{name}/profile": _PROFILES,
    "POST /v1/uploads": _PIECES,
    "PUT /v1/uploads/{upload}/{name:path}": _PIECES,
    "PATCH /v1/uploads/{upload}/{name:path}": _PIECES,
    "HEAD /v1/uploads/{upload}/{name:path}": _PIECES,
    "PATCH /v1/uploads/{upload}": _PIECES,
    "HEAD /v1/uploads/{upload}": _PIECES,
    "GET /": "what was asked for all pages together, and ten batches of the board",
    "GET /batches": _BOARD,
    "GET /jobs": _BOARD,
    "GET /failures": _BOARD,
    "GET /failures/{cause}": _BOARD,
    "GET /deposits": _BOARD,
    "GET /collections": "rows of the board in memory, and files of the site's profiles",
    "GET /fleet": "what was asked for all pages together",
    "GET /help/deposit": _TEMPLATE,
    "GET /docs": _TEMPLATE,
    "GET /live/board": _STREAM,
    "GET /live/jobs/{jid}": _STREAM,
    "GET /live/batches/{bid}": _STREAM,
    "GET /login": _TEMPLATE,
    "POST /login": _TOKEN,
    "GET /login/device": _LOGIN,
    "POST /login/device": _LOGIN,
    "POST /v1/login/device": _LOGIN,
    "POST /v1/login/token": _LOGIN,
    "POST /v1/login/end": _TOKEN,
    "GET /notifications/{subscription}/{purpose}": _TEMPLATE,
    "POST /notifications/{subscription}/{purpose}": "one node; wrong codes are limited",
    "POST /logout": _TOKEN,
}
"""Beside them: `/static` and `/openapi.json`, which are files and a text of the release."""

MIXED = {
    "POST /v1/batches": "a dry run; a submission is one transaction",
    "PUT /v1/drafts/{upload}": "the draft, once it has arrived, and its preview",
    "POST /act": "acts on batches, collections, folders and workers; the others are one transaction",
    "POST /deposits": "the form, once it has arrived",
    "POST /batches/{bid}/again": "the form, once it has arrived, and the failed objects",
    "GET /objects/{ark:path}": "the preview of a file, then the object",
    "GET /live/objects/{ark:path}": "the object, before the stream begins",
}
"""Their functions call `run` of a pool themselves."""

OF_PLUGINS = {
    "POST /poster/{verb}": "the form, once it has arrived",
    "POST /poster/{verb}/{scheme}/{shoulder}/{objectid}": "the form, once it has arrived",
}
"""As in MIXED; a plugin may be absent."""

ROUTES = {
    f"{max(route.methods or ())} {route.path}": route
    for router in (*routers(), *(module.router for module in PAGES))
    for route in router.routes
    if isinstance(route, APIRoute)
}
SLOW = {name: route for name, route in ROUTES.items() if hasattr(route.endpoint, "pool")}

OF_ALL_COLLECTIONS = (
    "GET /metrics",
    "GET /v1/queue",
    "GET /v1/workers",
    "GET /v1/fleet/plan",
    "GET /v1/space",
    "GET /v1/check",
    "POST /v1/check",
    "GET /v1/audit",
    "GET /v1/fixity",
    "POST /v1/space/clean-up",
    "POST /v1/jobs/{jid}/repair",
    "POST /v1/batches/{bid}/repair",
    "POST /v1/workers/{worker}/drain",
    "POST /v1/workers/{worker}/undrain",
    "GET /space",
)
OF_ONE_COLLECTION = (
    "POST /v1/collections/{name}/hold",
    "POST /v1/collections/{name}/hold/dry-run",
    "GET /v1/collections/{name}/actions",
    "POST /v1/collections/{name}/release",
    "POST /v1/collections/{name}/release/dry-run",
    "POST /v1/collections/{name}/test-callback",
)

VALUES = {
    "bid": "bid0000000001",
    "jid": "jid0000000001",
    "ark:path": "ark:/99999/fk4abc",
    "ark:first": "ark:/99999/fk4abc",
    "version": "1",
    "file:path": "producer/a.txt",
    "proof": "0" * 16,
    "recheck_id": "0" * 16,
    "name": "demo",
    "name:path": "a",
    "upload": "0" * 32,
    "worker": "worker1@host",
    "verb": "resume",
    "cause": "0",
    "code": "moved",
    "subscription": "0" * 16,
}
BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/bulk/{verb}/dry-run": {"select": {"ids": ["jid0000000001"]}},
    "POST /v1/batches/files/dry-run": {
        "profile": "demo",
        "source": "a.txt",
        "type": "file",
        "plan": {"objects": 1, "files": 1, "bytes": 1},
    },
    "POST /v1/bulk/{verb}": {"token": "t", "reason": "why"},
    "POST /v1/objects/{ark:path}/proofs": {},
    "POST /v1/objects/{ark:path}/rechecks": {},
    "POST /v1/space/clean-up": {"reason": "why"},
    "POST /v1/notifications": {"events": ["done"], "mail": "ann@harbour.example"},
    "POST /v1/notifications/{subscription}/confirm": {"code": "c"},
    "POST /v1/login/device": {"host": "workstation"},
    "POST /v1/login/token": {"device_code": "c"},
}
FORMS = {
    "POST /login/device": {"code": "c", "answer": "no"},
    "POST /batches/{bid}/again/deposit": {"upload": "u", "kind": "file"},
    "POST /bulk": {"verb": "resume", "token": "t"},
    "POST /objects/{ark:path}": {},
    "POST /notifications": {"act": "test"},
}
QUERIES = {"GET /bulk": "?cause=0", "GET /find": "?q=demo", "GET /v1/fleet/plan": "?within=3600"}


@pytest.fixture(scope="module")
def full(module_settings: Settings) -> Iterator[Web]:
    """A web process all of whose slow work has no place."""
    with serving_board(module_settings) as running:
        for pool in POOLS:
            vars(running.context)[pool] = SlowWork(threads=0)
        yield running


@pytest.fixture(scope="module")
def operator(full: Web) -> Caller:
    return full.caller(Role.ADMIN, name="operator")


@pytest.fixture(scope="module")
def of_others(full: Web) -> Caller:
    return full.caller(Role.OPERATOR, ["other"], name="of-others")


def _sent(operator: Caller, name: str) -> requests.Response:
    method, _, path = name.partition(" ")
    for part, value in VALUES.items():
        path = path.replace(f"{{{part}}}", value)
    options: dict[str, Any] = {"allow_redirects": False, "stream": True}
    if name in FORMS:
        options |= {"data": FORMS[name], "headers": OWN_FORM}
    elif method == "POST":
        options["json"] = BODIES.get(name, {"reason": "why"})
    with operator.request(method, path + QUERIES.get(name, ""), **options) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            _ = answer.content
        return answer


def _has_no_place(answer: requests.Response) -> bool:
    told = b"requests that take long" in answer.content or answer.request.method == "HEAD"
    return answer.status_code == 503 and told


def test_every_route_is_in_the_table() -> None:
    listed = {*BOUNDED, *MIXED, *SLOW}

    assert listed == set(ROUTES) - set(OF_PLUGINS)
    assert len(listed) == len(BOUNDED) + len(MIXED) + len(SLOW)
    assert {getattr(route.endpoint, "pool", "") for route in SLOW.values()} <= set(POOLS)


@pytest.mark.parametrize("name", sorted(SLOW))
def test_a_route_of_slow_work_needs_a_place_in_its_threads(operator: Caller, name: str) -> None:
    answer = _sent(operator, name)

    assert _has_no_place(answer), answer.text


@pytest.mark.parametrize("name", [*OF_ALL_COLLECTIONS, *OF_ONE_COLLECTION])
def test_who_has_no_right_to_slow_work_is_not_told_to_come_again(of_others: Caller, name: str) -> None:
    assert _sent(of_others, name).status_code == 403


@pytest.mark.parametrize("name", sorted(set(BOUNDED) - {"POST /logout"}))
def test_a_route_whose_work_has_a_known_end_needs_no_place(operator: Caller, name: str) -> None:
    assert not _has_no_place(_sent(operator, name))
