"""The examples of the OpenAPI document: every parameter in a path, every body, every answer has one.

What the models do not give is made from the schema, so that an example cannot differ from it.

The links of the OpenAPI document: which answer has what another operation needs.

What the OpenAPI document says of errors: every one is a problem.
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
"""Name of a parameter or a field -> its value, where the model gives none."""

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
"""Name of a schema of a request's body -> an example that says more than one made from the schema."""


def with_examples(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the examples; idempotent."""
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
    """The bodies in JSON: of the request, and of every answer but the errors."""
    answers = [answer for status, answer in operation["responses"].items() if status != "default"]
    for body in (operation.get("requestBody", {}), *answers):
        if "application/json" in body.get("content", {}):
            yield body["content"]["application/json"]


def sample(
    document: dict[str, Any], schema: dict[str, Any], name: str = "", within: frozenset[str] = frozenset()
) -> Any:
    """A value that is valid for the schema.

    `name`: that of the parameter or the field; `within`: the schemas that the value is a part of.
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
    """From an answer to an operation; `parameters` are runtime expressions of OpenAPI."""

    source: str
    status: str
    name: str
    target: str
    parameters: dict[str, str]
    body: dict[str, str] | None = None


_BID = {"bid": "$response.body#/bid"}
_JID = {"jid": "$response.body#/jid"}
_ARK = {"ark": "$response.body#/ark"}
_UPLOAD = {"upload": "$response.body#/id"}
_SAME_OBJECT = {"ark": "$request.path.ark"}
_SAME_BATCH = {"bid": "$request.path.bid"}
_SAME_JOB = {"jid": "$request.path.jid"}
_SUBMITTED = ("201", "200")

LINKS = (
    *(
        Link("post /v1/batches", status, name, f"get /v1/batches/{{bid}}{rest}", _BID)
        for status in _SUBMITTED
        for name, rest in (("batch", ""), ("jobs", "/jobs"), ("why", "/why"), ("report", "/report"))
    ),
    Link("get /v1/batches", "200", "batch", "get /v1/batches/{bid}", {"bid": "$response.body#/rows/0/bid"}),
    Link("get /v1/batches/{bid}", "200", "jobs", "get /v1/batches/{bid}/jobs", _SAME_BATCH),
    Link("get /v1/batches/{bid}", "200", "history", "get /v1/batches/{bid}/history", _SAME_BATCH),
    Link("get /v1/batches/{bid}", "200", "cancel", "post /v1/batches/{bid}/cancel", _SAME_BATCH),
    *(
        Link(source, "200", "job", "get /v1/jobs/{jid}", {"jid": "$response.body#/rows/0/jid"})
        for source in ("get /v1/batches/{bid}/jobs", "get /v1/jobs")
    ),
    Link("get /v1/jobs/{jid}", "200", "batch", "get /v1/batches/{bid}", _BID),
    *(
        Link("get /v1/jobs/{jid}", "200", name, f"get /v1/jobs/{{jid}}/{name}", _SAME_JOB)
        for name in ("why", "timeline", "files", "premis")
    ),
    *(
        Link("get /v1/jobs/{jid}", "200", name, f"post /v1/jobs/{{jid}}/{name}", _SAME_JOB)
        for name in ("hold", "release", "resume", "fail", "delete")
    ),
    *(
        Link(
            f"get /v1/jobs/{{jid}}{rest}",
            "200",
            "object",
            "get /v1/objects/{ark}",
            _ARK,
        )
        for rest in ("", "/files")
    ),
    Link("get /v1/objects/{ark}", "200", "proof", "post /v1/objects/{ark}/proofs", _SAME_OBJECT),
    Link(
        "post /v1/objects/{ark}/proofs",
        "202",
        "proof",
        "get /v1/objects/{ark}/proofs/{proof}",
        {**_ARK, "proof": "$response.body#/id"},
    ),
    *(
        Link(
            "post /v1/uploads",
            "201",
            name,
            f"{method} /v1/uploads/{{upload}}",
            _UPLOAD,
        )
        for name, method in (("upload", "get"), ("offset", "head"), ("remove", "delete"))
    ),
    Link(
        "post /v1/bulk/{verb}/dry-run",
        "200",
        "carry_out",
        "post /v1/bulk/{verb}",
        {"verb": "$request.path.verb"},
        {"token": "$response.body#/token", "reason": "as in the dry run"},
    ),
    Link("get /v1/callbacks", "200", "job", "get /v1/jobs/{jid}", {"jid": "$response.body#/callbacks/0/jid"}),
    Link("post /v1/callbacks/{jid}/deliver", "200", "job", "get /v1/jobs/{jid}", _JID),
)


def with_links(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the links; KeyError if one names an operation or an answer that there is not."""
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
    """The document with problems in their media type, instead of FastAPI's own errors; idempotent."""
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
