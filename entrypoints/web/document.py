"""What the OpenAPI document has besides the routes: examples, operation links, errors as problems.

Every path parameter, body and answer has an example. Examples that the models lack are generated from the
schema, so they cannot deviate from it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from entrypoints.web.problems import MEDIA_TYPE

TIME = "2026-11-21T12:00:00Z"
NAMED: dict[str, Any] = {
    "jid": "jid0000000001",
    "bid": "bid0000000001",
    "ark": "ark:/99999/fk4abc",
    "code": "illegal-transition",
    "collection": "demo",
    "id": "jid0000000001",
    "name": "harbour.zip",
    "objectid": "fk4abc",
    "profile": "demo",
    "proof": "0123456789abcdef",
    "scheme": "ark:",
    "sha512": "9f86d081884c7d65" * 8,
    "shoulder": "99999",
    "upload": "0123456789abcdef0123456789abcdef",
    "version": 1,
    "worker": "worker1@host",
}
"""Name of a parameter or field -> its example, if the model has none."""

BODIES: dict[str, Any] = {
    "Deposit": {
        "profile": "demo",
        "payload_url": "https://example.org/harbour.zip",
        "what": "The harbour",
        "local_id": ["harbour-7"],
    },
    "PlanRequest": {"select": {"search": {"state": "failed", "kind": "system"}}},
    "PlanToken": {"token": "as-the-dry-run-gave-it", "reason": "the disk is back"},
}
"""Name of a request body's schema -> an example more telling than a generated one."""


def with_examples(document: dict[str, Any]) -> dict[str, Any]:
    """Add the examples to the document; idempotent."""
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" and "example" not in parameter:
                    parameter["example"] = sample(document, parameter["schema"], parameter["name"])
            for content in _contents(operation):
                schema = content.get("schema")
                if schema and "example" not in content:
                    name = schema.get("$ref", "").rpartition("/")[2].removesuffix("-Input")
                    content["example"] = BODIES.get(name) or sample(document, schema)
    return document


def _contents(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The JSON bodies: the request's, and every answer's except errors."""
    answers = [answer for status, answer in operation["responses"].items() if status != "default"]
    for body in (operation.get("requestBody", {}), *answers):
        if "application/json" in body.get("content", {}):
            yield body["content"]["application/json"]


def sample(
    document: dict[str, Any], schema: dict[str, Any], name: str = "", within: frozenset[str] = frozenset()
) -> Any:
    """A value that is valid for the schema.

    `name`: of the parameter or field; `within`: the schemas that contain the value.
    """
    given = next((schema[key] for key in ("example", "const", "default") if key in schema), None)
    given = given or next(iter((*schema.get("examples", ()), *schema.get("enum", ()))), None)
    if given is not None and not (name in NAMED and "default" in schema):
        return given
    if "$ref" in schema:
        reference = schema["$ref"].rpartition("/")[2]
        return sample(document, document["components"]["schemas"][reference], name, within | {reference})
    choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if choices:
        possible = [choice for choice in choices if not _repeats(choice, within)]
        return sample(document, possible[0], name, within)
    fields = schema.get("properties", {})
    items = schema.get("prefixItems") or ([schema["items"]] if "items" in schema else [])
    match schema.get("type"):
        case "object":
            return {field: sample(document, of, field, within) for field, of in fields.items()}
        case "array":
            return [sample(document, of, name, within) for of in items if not _repeats(of, within)]
        case _:
            return _simple(schema, name)


def _repeats(schema: dict[str, Any], within: frozenset[str]) -> bool:
    return schema.get("$ref", "").rpartition("/")[2] in within


def _simple(schema: dict[str, Any], name: str) -> Any:
    known = NAMED.get(name)
    match schema.get("type"):
        case "string" if schema.get("format") == "date-time":
            return TIME
        case "string":
            return known if isinstance(known, str) else name or "text"
        case "integer":
            return known if isinstance(known, int) else max(0, int(schema.get("minimum", 0)))
        case "number":
            return 1.5
        case "boolean":
            return True
        case _:
            return None


class Link(NamedTuple):
    """A link from an answer to an operation; `parameters` are OpenAPI runtime expressions."""

    source: str
    status: str
    name: str
    target: str
    parameters: dict[str, str]
    body: dict[str, str] | None = None


def _same(name: str) -> dict[str, str]:
    return {name: f"$request.path.{name}"}


def _field(name: str, field: str = "") -> dict[str, str]:
    return {name: f"$response.body#/{field or name}"}


_BATCH, _JOB, _OBJECT = "get /v1/batches/{bid}", "get /v1/jobs/{jid}", "get /v1/objects/{ark}"
_PROOFS, _BULK = "post /v1/objects/{ark}/proofs", "post /v1/bulk/{verb}"

LINKS = (
    *(
        Link("post /v1/batches", status, name or "batch", f"{_BATCH}{name and '/'}{name}", _field("bid"))
        for status in ("201", "200")
        for name in ("", "jobs", "why", "report")
    ),
    Link("get /v1/batches", "200", "batch", _BATCH, _field("bid", "rows/0/bid")),
    *(Link(_BATCH, "200", name, f"{_BATCH}/{name}", _same("bid")) for name in ("jobs", "history")),
    Link(_BATCH, "200", "cancel", "post /v1/batches/{bid}/cancel", _same("bid")),
    Link("get /v1/jobs", "200", "job", _JOB, _field("jid", "rows/0/jid")),
    Link(f"{_BATCH}/jobs", "200", "job", _JOB, _field("jid", "rows/0/jid")),
    Link(_JOB, "200", "batch", _BATCH, _field("bid")),
    *(
        Link(_JOB, "200", name, f"{_JOB}/{name}", _same("jid"))
        for name in ("why", "timeline", "files", "premis")
    ),
    *(
        Link(_JOB, "200", name, f"post /v1/jobs/{{jid}}/{name}", _same("jid"))
        for name in ("hold", "release", "resume", "fail", "delete")
    ),
    *(Link(f"{_JOB}{rest}", "200", "object", _OBJECT, _field("ark")) for rest in ("", "/files")),
    Link(_OBJECT, "200", "proof", _PROOFS, _same("ark")),
    Link(_PROOFS, "202", "proof", f"{_OBJECT}/proofs/{{proof}}", _field("ark") | _field("proof", "id")),
    *(
        Link("post /v1/uploads", "201", name, f"{method} /v1/uploads/{{upload}}", _field("upload", "id"))
        for name, method in (("upload", "get"), ("offset", "head"), ("remove", "delete"))
    ),
    Link(
        f"{_BULK}/dry-run",
        "200",
        "carry_out",
        _BULK,
        _same("verb"),
        _field("token") | {"reason": "as in the dry run"},
    ),
    Link("get /v1/callbacks", "200", "job", _JOB, _field("jid", "callbacks/0/jid")),
    Link("post /v1/callbacks/{jid}/deliver", "200", "job", _JOB, _field("jid")),
)


def with_links(document: dict[str, Any]) -> dict[str, Any]:
    """Add the links to the document; KeyError if a link names an unknown operation or answer."""
    for link in LINKS:
        answer = _operation(document, link.source)["responses"][link.status]
        described: dict[str, Any] = {
            "operationId": _operation(document, link.target)["operationId"],
            "parameters": link.parameters,
        }
        if link.body is not None:
            described["requestBody"] = link.body
        answer.setdefault("links", {})[link.name] = described
    return document


def _operation(document: dict[str, Any], spelled: str) -> dict[str, Any]:
    method, _, path = spelled.partition(" ")
    operation: dict[str, Any] = document["paths"][path][method]
    return operation


_UNUSED = ("HTTPValidationError", "ValidationError")
_UNUSED_REFERENCE = f"#/components/schemas/{_UNUSED[0]}"


def with_problems(document: dict[str, Any]) -> dict[str, Any]:
    """Replace FastAPI's errors in the document by problems in their media type; idempotent."""
    for path in document["paths"].values():
        for operation in path.values():
            responses = operation["responses"]
            if _UNUSED_REFERENCE in str(responses.get("422")):
                del responses["422"]
            default = responses.get("default")
            if default and len(default["content"]) == 1:  # in the media type of the operation's own answers
                default["content"] = {MEDIA_TYPE: next(iter(default["content"].values()))}
    for name in _UNUSED:
        document["components"]["schemas"].pop(name, None)
    return document
