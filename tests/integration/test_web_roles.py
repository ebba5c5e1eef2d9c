"""The table of (role, route) -> answer, asked of a running server for every route, and so for new ones."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest
from fastapi.routing import APIRoute

from pipeline.attempt import UNATTENDED
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import api_document, planting
from tests.support.web import Caller, Web, serving_board
from tests.unit.test_web_routes import ROUTES, rule
from zkstate.connection.session import Session
from zkstate.record import batches

NOBODY = "nobody"
OF_THE_FLEET = {
    "/metrics",
    "/v1/actions",
    "/v1/audit",
    "/v1/check",
    "/v1/fixity",
    "/v1/fleet/plan",
    "/v1/hosts",
    "/v1/queue",
    "/v1/space",
    "/v1/workers",
}
"""What a depositor may not see, nor who has some collections only."""

OF_ALL_COLLECTIONS = {"/v1/jobs/{jid}/repair", "/v1/batches/{bid}/repair"}
"""What only an operator of all collections may do."""

WAIT_FOR_WORKERS = {"/v1/workers/{worker}/drain", "/v1/workers/{worker}/undrain"}
"""They wait 15 seconds for a worker that does not answer: only their refusals are asked for."""

ASK_THE_FLEET = {"/v1/queue", "/v1/workers", "/v1/audit", "/v1/check"}
"""They wait for the fleet: asked by one of those who may."""

UNKNOWN = {"jid": "jid9999999999", "bid": "bid9999999999", "ark": "ark:/99999/fk4unknown"}
OPERATIONS = [(method, route) for route in ROUTES for method in sorted(route.methods or ())]
DOCUMENT = api_document.document()


@pytest.fixture(scope="module")
def web(module_settings: Settings, record: Session) -> Iterator[Web]:
    with serving_board(module_settings) as running:
        # before the first upload their folder is taken for one that is not mounted
        assert running.caller(Role.DEPOSITOR, name="first").request("POST", "/v1/uploads").status_code == 201
        yield running


def operation_of(method: str, route: APIRoute) -> dict[str, Any]:
    """The operation in the document, which has a HEAD like its GET once."""
    operations = DOCUMENT["paths"][route.path_format]
    found: dict[str, Any] = operations.get(method.lower()) or operations["get"]
    return found


def example(method: str, route: APIRoute) -> dict[str, Any]:
    """A request as the document has it."""
    operation = operation_of(method, route)
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        return {"json": content["application/json"]["example"]}
    if "multipart/form-data" in content:
        return {"files": {"file": ("a.txt", b"a"), "profile": (None, "demo")}}
    return {"data": b"a", "headers": {"Upload-Offset": "0"}} if content else {}


def path_of(method: str, route: APIRoute, ids: dict[str, str]) -> str:
    operation = operation_of(method, route)
    values = {given["name"]: given.get("example") for given in operation.get("parameters", ())}
    if route.path.startswith("/v1/collections"):
        values["name"] = "demo"
    return str(route.path_format.format(**{**values, **ids}))


def answer(caller: Caller, method: str, route: APIRoute, ids: dict[str, str]) -> int:
    given = caller.request(method, path_of(method, route, ids), stream=True, **example(method, route))
    with given:
        if given.status_code in (401, 403) and method != "HEAD" and not route.path.startswith("/poster"):
            assert json.loads(given.content)["status"] == given.status_code
        return given.status_code


def expected(route: APIRoute, role: Role | None) -> str:
    needed = rule(route)
    if needed is None:
        return "answered"
    if role is None:
        return "401"
    refused = not role.includes(needed) or (role is Role.DEPOSITOR and route.path in OF_THE_FLEET)
    return "403" if refused else "answered"


def is_asked(route: APIRoute, role: Role | None) -> bool:
    if expected(route, role) != "answered":
        return True
    if route.path in WAIT_FOR_WORKERS:
        return False
    return route.path not in ASK_THE_FLEET or role is rule(route)


def test_every_role_gets_the_answer_of_the_rule_from_every_operation(web: Web) -> None:
    def wrong_answers(role: Role | None) -> dict[str, str]:
        """One request after the other: a caller may ask for one thing at a time that takes long."""
        caller = web.caller(role) if role else web.anybody
        statuses = {
            (method, route.path): (answer(caller, method, route, UNKNOWN), expected(route, role))
            for method, route in OPERATIONS
            if is_asked(route, role)
        }
        return {
            f"{role or NOBODY}: {method} {path}": f"{status}, not {wanted}"
            for (method, path), (status, wanted) in statuses.items()
            if wanted != _meaning(status)
        }

    with ThreadPoolExecutor() as threads:
        wrong = list(threads.map(wrong_answers, (None, *Role)))

    assert wrong == [{}] * len(wrong)


def test_what_belongs_to_others_is_not_there_for_any_operation(web: Web, record: Session) -> None:
    batch = planting.acquired_batch(record, owner="token:others")
    batch = planting.create_jobs(record, batch, planting.plan(1), planting.WORKING, "test", UNATTENDED)
    batches.finish_split(record, batch)
    ids = {"bid": batch.bid, "jid": batches.all_jobs(record, batch.bid)[0]}
    before = planting.tree(record, "/jobs"), planting.tree(record, "/batches")
    depositor = web.caller(Role.DEPOSITOR, name="stranger")
    operator = web.caller(Role.OPERATOR, ["other"], name="other")
    of_ids = [
        (method, route) for method, route in OPERATIONS if {"jid", "bid"} & route.param_convertors.keys()
    ]

    wrong = {}
    for caller, (method, route) in product((depositor, operator), of_ids):
        may = Role.OPERATOR if caller is operator else Role.DEPOSITOR
        refused = not may.includes(rule(route) or may) or route.path in OF_ALL_COLLECTIONS
        status = answer(caller, method, route, ids)
        if status != (403 if refused else 404):
            wrong[f"{may}: {method} {route.path}"] = status

    assert wrong == {}
    assert (planting.tree(record, "/jobs"), planting.tree(record, "/batches")) == before


def _meaning(status: int) -> str:
    return str(status) if status in (401, 403) or status >= 500 else "answered"
