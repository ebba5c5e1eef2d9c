import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from entrypoints.web.pages import acts
from entrypoints.web.routes.about import all_codes
from entrypoints.web.routes.verbs import JOB_EVENTS
from tests.support import api_document

DOCUMENT = api_document.document()
OPERATIONS = [
    (f"{method.upper()} {path}", operation)
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
]
PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs" / "api"


def test_the_page_about_errors_has_a_heading_and_the_meaning_of_every_code() -> None:
    page = (DOCS / "errors.md").read_text()

    described = re.findall(r"^## ([a-z-]+)\n\n(\d+)\. (.+)$", page, re.MULTILINE)

    assert described == [
        (entry.code, str(entry.status), entry.meaning) for _, entry in sorted(all_codes().items())
    ]


def test_a_field_is_described_by_the_docstring_after_it_in_its_class_or_in_a_base() -> None:
    fields = {
        name: schema.get("properties", {}) for name, schema in DOCUMENT["components"]["schemas"].items()
    }
    of_requests = [fields[name]["request_id"]["description"] for name in ("Hold", "JournalEntry")]

    assert fields["Forecast"]["rate"]["description"] == "Bytes a day."  # of a dataclass, inside an answer
    assert all(text.startswith("The request of the API or of a page") for text in of_requests)


def contents(operation: dict[str, Any]) -> list[dict[str, Any]]:
    """The bodies in JSON, of the request and of the answers that are no error."""
    answers = [answer for status, answer in operation["responses"].items() if status != "default"]
    bodies = [body.get("content", {}) for body in (operation.get("requestBody", {}), *answers)]
    return [body["application/json"] for body in bodies if body.get("application/json")]


@pytest.mark.parametrize("operation", [row for _, row in OPERATIONS], ids=[label for label, _ in OPERATIONS])
def test_an_operation_has_examples_that_follow_its_schemas(operation: dict[str, Any]) -> None:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            check(parameter["schema"], parameter["example"])
    for content in contents(operation):
        check(content["schema"], content["example"])


def check(schema: dict[str, Any], example: object) -> None:
    whole = {**schema, "components": DOCUMENT["components"]}
    assert [error.message for error in Draft202012Validator(whole).iter_errors(example)] == []


def test_the_links_lead_from_a_submission_to_the_proof_of_its_object() -> None:
    names = {operation["operationId"]: label for label, operation in OPERATIONS}
    reached: set[str] = set()
    following = {"POST /v1/batches"}
    while not following <= reached:
        reached |= following
        following = {
            names[link["operationId"]]
            for label, operation in OPERATIONS
            if label in reached
            for answer in operation["responses"].values()
            for link in answer.get("links", {}).values()
        }

    assert {
        "GET /v1/batches/{bid}/jobs",
        "GET /v1/jobs/{jid}",
        "GET /v1/objects/{ark}",
        "GET /v1/objects/{ark}/proofs/{proof}",
    } <= reached


def test_every_request_that_a_text_names_has_its_route() -> None:
    routes = {label: re.compile(re.sub(r"\{\w+(:path)?\}", "[^/]+", label)) for label, _ in OPERATIONS}
    texts = {
        str(path.relative_to(PROJECT)): path.read_text()
        for path in (
            *PROJECT.glob("*.md"),
            *(PROJECT / "docs").rglob("*.md"),
            *(PROJECT / "operations").rglob("*.py"),
            *(PROJECT / "entrypoints").rglob("*.py"),
            *(PROJECT / "plugins").rglob("*.py"),
        )
        if "decisions" not in path.relative_to(PROJECT).parts
    }
    texts["buttons"] = "\n".join(f"POST /v1/{act.path_of('jid0000000001')}" for act in acts.ACTS.values())

    named = [
        (place, request)
        for place, text in texts.items()
        for request in re.findall(r"\b(?:GET|POST|PUT|PATCH|DELETE) /v1/[^\s`\",:?)]+", text)
    ]
    assert len(named) > 20
    assert [
        (place, request)
        for place, request in named
        if not any(
            route.fullmatch(re.sub(r"\{[^}]*\}", "x", request).rstrip(".")) for route in routes.values()
        )
    ] == []


OF_JOBS = ("approve", "reject", "hold", "fail")
"""Acts that no batch has."""


def button_routes() -> Iterator[tuple[str, str]]:
    """The code of each act, and its route for a job, a batch, or what else it is done to."""
    on_things = [act for act in acts.ACTS.values() if "{1}" in act.path]
    assert {act.code for act in on_things} >= {*JOB_EVENTS, "repair"}
    for act in acts.ACTS.values():
        for target in ("jid0000000001", "bid0000000001") if act in on_things else ("demo",):
            if target.startswith("jid") or act.code not in OF_JOBS:
                yield act.code, f"/v1/{act.path_of(target)}"


def test_every_button_is_spelled_as_a_request_that_the_api_has() -> None:
    missing = [
        (code, path)
        for code, path in button_routes()
        if not any(
            re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", known), path) and "post" in operations
            for known, operations in DOCUMENT["paths"].items()
            if "/bulk/" not in known
        )
    ]

    assert missing == []
