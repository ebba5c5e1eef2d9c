"""The examples of the OpenAPI document: every parameter in a path, every body, every answer has one.

What the models do not give is made from the schema, so that an example cannot differ from it.
"""

from collections.abc import Iterator
from typing import Any

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
