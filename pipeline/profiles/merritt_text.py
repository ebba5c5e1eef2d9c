"""Profiles in Merritt's text format (`Key: value` lines), converted to the fields of `Profile`."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pipeline.errors import UsageRefused

_FIELD = {
    "ProfileID": "name",
    "ProfileDescription": "description",
    "Identifier-namespace": "naan",
    "Type": "object_type",
    "Role": "object_role",
    "Aggregate": "aggregate_role",
    "Owner": "owner",
    "NotificationSuppression": "notification_suppression",
    "NotificationFormat": "notification_format",
    "CallbackURL": "callback_url",
    "StorageNode": "storage_node",
    "Priority": "priority",
    "Context": "context",
    "EZID_co-owner": "ezid_co_owner",
    "SuppressDublinCoreLocalID": "suppress_dublin_core_local_id",
}
_LISTS = {"Collection": "collections", "Notification": "notification"}
_READ = {*_FIELD, "Identifier-scheme", "ObjectMinterURL", "NotificationType"}
_MINTER = re.compile(r".*/shoulder/ark:/?(\d+)/([a-z0-9]*)/?")
_NUMBERED = re.compile(r"(\w+)\.(\d+)")


class MalformedText(UsageRefused):
    """A text profile that cannot be parsed; the message has the line number."""


class _Line(NamedTuple):
    number: int
    key: str
    value: str


def read(text: str) -> tuple[dict[str, object], tuple[str, ...]]:
    """The fields of the text, not validated yet, and a warning for every key that is ignored."""
    lines = tuple(_lines(text))
    given = {line.key: line for line in lines if line.value}
    fields: dict[str, object] = {_FIELD[key]: line.value for key, line in given.items() if key in _FIELD}
    fields |= _lists(lines)
    scheme = given.get("Identifier-scheme")
    if scheme and scheme.value.upper() != "ARK":
        raise MalformedText(
            f"line {scheme.number}: {scheme.value} is not supported; the only identifier scheme is ARK"
        )
    if minter := given.get("ObjectMinterURL"):
        fields |= _shoulder(minter)
    for name in ("notification_suppression", "notification_format"):
        if name in fields:
            fields[name] = str(fields[name]).lower()
    # Merritt confirms a queued batch by mail unless mail is suppressed or sent for every object (verbose).
    verbose = "NotificationType" in given and given["NotificationType"].value.lower() == "verbose"
    suppressed = fields.get("notification_suppression", "none") != "none"
    fields["confirmation_mail"] = not (verbose or suppressed)
    return fields, _ignored(lines)


def _lists(lines: Iterable[_Line]) -> dict[str, object]:
    values: dict[str, list[tuple[int, str]]] = {}
    for line in lines:
        numbered = _NUMBERED.fullmatch(line.key)
        if numbered and numbered[1] in _LISTS:
            values.setdefault(_LISTS[numbered[1]], []).append((int(numbered[2]), line.value))
    return {name: [value for _, value in sorted(numbered)] for name, numbered in values.items()}


def _ignored(lines: Iterable[_Line]) -> tuple[str, ...]:
    """The warnings: one for all keys of a numbered list."""
    warnings: dict[str, str] = {}
    for line in lines:
        stem = _NUMBERED.sub(r"\1", line.key)
        if line.key not in _READ and stem not in _LISTS:
            warnings.setdefault(stem, f"line {line.number}: {stem} is not supported and is ignored")
    return tuple(warnings.values())


def _lines(text: str) -> Iterator[_Line]:
    line_of: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, colon, value = (part.strip() for part in stripped.partition(":"))
        if not colon:
            raise MalformedText(
                f"line {number}: expected 'Key: value', a comment after '#', or an empty line"
            )
        if key in line_of:
            raise MalformedText(f"line {number}: {key} was already given on line {line_of[key]}")
        line_of[key] = number
        yield _Line(number, key, value)


def _shoulder(line: _Line) -> dict[str, object]:
    """NAAN and shoulder from the URL of Merritt's minter; the minter itself is chosen by a setting."""
    match = _MINTER.fullmatch(line.value)
    if match is None:
        raise MalformedText(
            f"line {line.number}: {line.key} must end with /shoulder/ark:/NAAN/SHOULDER, as in "
            ".../shoulder/ark:/99999/fk4"
        )
    return {"naan": match[1], "shoulder": match[2]}
