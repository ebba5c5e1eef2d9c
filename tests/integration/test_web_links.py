"""Requests that follow the links of the API's document: every answer is in the document, none is a 5xx."""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import schemathesis
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core import NOT_SET
from schemathesis.generation.stateful.state_machine import StepOutput
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.stateful.links import OpenApiLink

from pipeline.principal import Role
from pipeline.settings import Settings
from pipeline.states import Event, FailureKind
from tests.support import api_document, planting
from tests.support.repository import Repository, empty_inventory
from tests.support.web import Caller, serving_board
from zkstate.connection.session import Session
from zkstate.record import jobs

load_all_checks()
ANSWERS: Any = CHECKS.get_by_names(
    ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)


def _valid(result: Any) -> Any:
    """The value of schemathesis's result; its error is raised."""
    return result.ok()


ROUNDS = 3
"""The second and the third meet what the verbs of the first have changed."""

LATEST = 3
"""Answers of one operation from which a round goes on."""


@cache
def operations() -> dict[str, APIOperation[Any, Any, Any, Any]]:
    described = schemathesis.openapi.from_dict(api_document.in_order_of_the_routes())
    return {operation.label: operation for operation in map(_valid, described.get_all_operations())}


@cache
def links() -> list[OpenApiLink]:
    """The cancellation of a batch comes last: afterwards none of its jobs can be held."""
    every = (
        OpenApiLink(name, status, described, operation)
        for operation in operations().values()
        for status, answer in operation.responses.items()
        for name, described in answer.iter_links()
    )
    return sorted(every, key=lambda link: link.name == "cancel")


JSON, BYTES = "application/json", "application/octet-stream"
ROOTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("GET /v1/batches", {}),
    ("GET /v1/jobs", {}),
    ("GET /v1/callbacks", {}),
    ("POST /v1/batches", {"headers": {"Idempotency-Key": "harbour"}}),
    (
        "POST /v1/uploads",
        {"query": {"name": "a.txt"}, "body": b"a", "media_type": "application/octet-stream"},
    ),
    ("POST /v1/bulk/{verb}/dry-run", {"path_parameters": {"verb": "hold"}}),
)
"""Requests that need no other answer, with what the document has no example of.

The lists come before the deposit, whose batch has no job: they follow the record a moment later.
"""

NOT_HERE = {
    "GET /v1/jobs/{jid} -> [200] object -> GET /v1/objects/{ark}",  # no worker has assigned an ARK
    "POST /v1/callbacks/{jid}/deliver -> [200] job -> GET /v1/jobs/{jid}",  # nobody receives callbacks
}


@pytest.fixture(scope="module")
def admin(
    record: Session, module_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Caller]:
    """Of a site with a stored object, a failed job and the callback that is owed for it."""
    bid, (stored, failed, *_) = planting.split_batch(record, 4)
    repository = Repository(module_settings.home, empty_inventory(tmp_path_factory.mktemp("inventory")))
    repository.recorded(repository.job(int(stored[3:]), {"a.txt": "a"}, batch_id=bid))
    repository.close()
    planting.apply_event(record, jobs.load(record, failed), Event.FAIL, FailureKind.SYSTEM)
    with serving_board(module_settings) as web:
        yield web.caller(Role.ADMIN)


class Walk:
    """The requests, and the answers that later requests start from."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._answers: dict[tuple[str, str], list[StepOutput]] = defaultdict(list)
        self.followed: set[str] = set()
        """The links that led to an answer without an error."""

    def ask(self, label: str, **given: Any) -> int:
        """Send one request, with the example of the document where it needs a body; the status."""
        operation = operations()[label]
        if "body" not in given:
            given |= _example(label)
        case = operation.Case(**given)
        answer = case.call(
            base_url=self._caller.url, headers={"Authorization": f"Bearer {self._caller.token}"}
        )
        assert answer.status_code < 500, f"{label}: {answer.status_code} {answer.text}"
        case.validate_response(answer, checks=ANSWERS)
        self._answers[label, str(answer.status_code)].append(StepOutput(answer, case))
        return answer.status_code

    def follow(self, link: OpenApiLink) -> None:
        for source in self._answers[link.source.label, link.status_code][-LATEST:]:
            transition = link.extract(source)
            values = {
                container: {name: _valid(one.value) for name, one in extracted.items()}
                for container, extracted in transition.parameters.items()
            }
            if any(value in (None, "", NOT_SET) for given in values.values() for value in given.values()):
                continue
            body: dict[str, Any] = {}
            if transition.request_body is not None:
                body = {"body": _valid(transition.request_body.value), "media_type": JSON}
            if self.ask(link.target.label, **values, **body) < 400:
                self.followed.add(link.full_name)


def _example(label: str) -> dict[str, Any]:
    method, path = label.split(" ", 1)
    contents = (
        api_document.in_order_of_the_routes()["paths"][path][method.lower()]
        .get("requestBody", {})
        .get("content", {})
    )
    return next(({"body": content["example"], "media_type": kind} for kind, content in contents.items()), {})


def test_every_link_of_the_document_leads_to_an_answer_of_the_document(admin: Caller) -> None:
    walk = Walk(admin)

    for _ in range(ROUNDS):
        for label, given in ROOTS:
            walk.ask(label, **given)
        for link in links():
            walk.follow(link)

    assert walk.followed == {link.full_name for link in links()} - NOT_HERE
