"""The file of a new profile: every field with its description, optional fields commented out."""

import textwrap
from collections.abc import Iterator, Mapping

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from pipeline.profiles.profile import Profile, ProfileLimits

WIDTH = 100

_EXAMPLES: Mapping[str, object] = {
    "owner": "ark:/99999/fk4owner",
    "collections": ["ark:/99999/fk4collection"],
    "given_arks": ["ark:/99999/fk4x9"],
    "notification": ["archivist@example.org"],
    "minter": "local",
    "notification_format": "json",
    "callback_url": "https://example.org/callback",
    "priority": 5,
    "zip_name_encoding": "cp850",
    "sources": ["*.example.org", "192.0.2.0/24:8443"],
    "storage_node": 9999,
    "retention_days": 30,
    "fixity_days": 365,
    "quota_bytes": 10_000_000_000_000,
    "object_bytes": 1_000_000_000_000,
    "object_files": 100_000,
    "batch_jobs": 10_000,
    "live_jobs": 50_000,
    "recipients": 5,
    "jobs_at_work": 20,
    "host_connections": 4,
}
"""Example values of fields without a default, or whose default does not show the format."""


def template(name: str) -> str:
    """The text of NAME.yaml, a valid profile; optional fields are commented out, and all are described."""
    head = f"# The rules of one collection: {name}.yaml in the folder of profiles (ARKLINE_PROFILES)."
    return "\n".join([head, *_fields(Profile, {**_EXAMPLES, "name": name}, ""), ""])


def table() -> str:
    """The fields as a table for docs/operators/profiles.md."""
    rows = [("field", "default", "value"), ("---", "---", "---")]
    for prefix, model in (("", Profile), ("limits.", ProfileLimits)):
        for name, field in model.model_fields.items():
            if name != "limits":
                rows.append((f"`{prefix}{name}`", _default(field), str(field.description)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return f"`{_yaml(value)}`" if value not in (None, "", ()) else ""


def _fields(model: type[BaseModel], examples: Mapping[str, object], indent: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield ""
        yield from textwrap.wrap(str(field.description), WIDTH, initial_indent="# ", subsequent_indent="# ")
        if name == "limits":
            yield "#limits:"
            yield from _fields(ProfileLimits, examples, "  ")
        else:
            value = examples.get(name, field.get_default(call_default_factory=True))
            yield f"{_mark(field)}{indent}{name}: {_yaml(value)}"


def _mark(field: FieldInfo) -> str:
    return "" if field.is_required() else "#"


def _yaml(value: object) -> str:
    assert value is not PydanticUndefined, "a field without a default needs an example"
    text = yaml.safe_dump(to_jsonable_python(value), default_flow_style=True, width=1_000)
    return text.removesuffix("...\n").strip()
