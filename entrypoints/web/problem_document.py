"""What the OpenAPI document says of errors: every one is a problem."""

from typing import Any

from entrypoints.web.problems import MEDIA_TYPE

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
