"""Requests made from the document of the API: no answer is a server error, or is not in the document."""

import json
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import CHECKS, load_all_checks

from entrypoints.web.app import create_app
from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import cli
from tests.support.web import Caller, new_token

load_all_checks()
ANSWERS = CHECKS.get_by_names(
    ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)
EXAMPLES = 4
"""Requests of each operation."""

SLOW = ("/v1/workers", "/v1/audit")
"""They ask the whole fleet, and wait for it."""


def _valid(result: Any) -> Any:
    return result.ok()


SCHEMA = schemathesis.openapi.from_dict(create_app(None).openapi())
OPERATIONS = [
    operation
    for operation in map(_valid, SCHEMA.get_all_operations())
    if not operation.path.endswith("/events") and not operation.path.startswith(SLOW)
]
"""A stream of events does not end."""


@pytest.fixture(scope="module")
def admin(module_settings: Settings) -> Iterator[Caller]:
    """In a process of its own: kazoo's threads draw random numbers, which hypothesis refuses."""
    token = new_token(module_settings, "schema", Role.ADMIN)
    with cli.start(module_settings, "web", "--port", "0", "--json", ARKLINE_LOG_LEVEL="ERROR") as process:
        assert process.stdout is not None
        answer = "".join(process.stdout.readline() for _ in range(3))
        yield Caller(json.loads(answer)["url"], token)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_an_answer_is_in_the_document_and_no_server_error(operation: Any, admin: Caller) -> None:
    @hypothesis.settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
    )
    @hypothesis.given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        if case.query and case.query.get("dry_run"):
            case.query = {**case.query, "dry_run": False}  # a dry run asks foreign hosts
        answer = case.call(base_url=admin.url, headers={"Authorization": f"Bearer {admin.token}"})
        assert answer.status_code < 500, answer.text
        case.validate_response(answer, checks=ANSWERS)

    ask()
