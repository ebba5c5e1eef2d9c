"""What programs, scripts and the next release rely on, a line for each fact.

A line of the files may be added and is never changed or taken away within a version; docs/api/json-fields.txt
is the same promise for `--json`.
"""

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import chain
from pkgutil import walk_packages
from typing import Any

from pydantic import TypeAdapter

from entrypoints.cli import exit_codes
from entrypoints.web.app import create_app
from entrypoints.web.routes.about import all_codes
from operations.reasons import Reason
from pipeline import records
from pipeline.codes import CODES, Code, ErrorKind
from pipeline.deployment import Deployment
from pipeline.errors import Action, ArklineError
from pipeline.notify import subscription
from pipeline.profiles.snapshot import ProfileSnapshot
from pipeline.states import BatchState, Bucket, Event, FailureKind, JobState
from zkstate import paths
from zkstate.connection import clock
from zkstate.fleet import device_logins, holds, hosts, notes, outages, rechecks
from zkstate.record import callbacks, journal

PACKAGES = ("pipeline", "zkstate", "tasks", "operations", "entrypoints", "plugins")

STORED: Mapping[str, Any] = {
    "/batches/BID/submission": records.Submission,
    "/batches/BID/profile": ProfileSnapshot,
    "/batches/BID/status": records.BatchStatus,
    "/batches/BID/history": tuple[records.BatchHistoryEntry, ...],
    "/batches/BID/status-report": records.StatusReport,
    "/jobs/JID/configuration": records.JobConfiguration,
    "/jobs/JID/identifiers": records.Identifiers,
    "/jobs/JID/status": records.JobStatus,
    "/jobs/JID/history": tuple[records.HistoryEntry, ...],
    "/callbacks/JID-EPOCH": callbacks.OwedCallback,
    "/sweep": clock.SweepRecord,
    "/locks/queue/ingest": holds.Hold,
    "/actions/queue": journal.Journal,
    "/locks/hosts/HOST": hosts.BackOff,
    "/fixity": notes.FixityStatus,
    "/checks": notes.RepeatedChecks,
    "/rechecks": rechecks.AskedRechecks,
    "/subscriptions/ID": subscription.Subscription,
    "/subscriptions/ID/KEY": subscription.NotableEvent,
    "/deliveries/ID": subscription.Delivery,
    "/audit": notes.LastAudit,
    "/backup": notes.LastBackup,
    "/outages/NAME": outages.Outage,
    "/board": notes.Correction,
    "/device-logins/KEY": device_logins.DeviceLogin,
    "/deployment": Deployment,
}
"""Znode -> the record in its content."""

EXAMPLES: dict[str, Any] = {
    "bid": "bid0000000001",
    "jid": "jid0000000001",
    "pp": 5,
    "state": JobState.DOWNLOADING,
    "key": "thesis-4711",
    "owner": "",
    "kind": "single-flight",
    "host.name": "x.edu",
    "check_places.name": "clamav",
    "place.folder": "/locks/hosts/x.edu",
    "number": 3,
    "batch_entry.name": Bucket.PROCESSING,
    "bucket.name": Bucket.PROCESSING,
    "exclusive.name": "sweep",
    "counter.name": "job",
    "owed_callback.epoch": 7,
    "outage.name": "inventory",
    "worker": "worker1@host",
    "subscription_id": "3f9c21ab8d0e4f75",
    "waiting_event.key": "done.bid0000000001.1",
}
"""A value for each parameter of a function of zkstate.paths, as the examples in docs/znodes.md have it."""


def example(function: Callable[..., str]) -> str:
    """The path that a function of zkstate.paths gives for the example's values."""
    wanted = inspect.signature(function).parameters
    name = function.__name__
    return function(*(EXAMPLES.get(f"{name}.{each}", EXAMPLES.get(each)) for each in wanted))


def path_functions() -> list[Callable[..., str]]:
    return [
        each
        for each in vars(paths).values()
        if isinstance(each, types.FunctionType)
        and each.__module__ == paths.__name__
        and inspect.signature(each).return_annotation is str
    ]


def znodes() -> list[str]:
    """Paths, the record of each, and the fields of the records."""
    written = {*map(example, path_functions()), *paths.SKELETON, *paths.TOP}
    kept, parts = [], dict[str, Any]()
    for place, kind in STORED.items():
        schema = TypeAdapter(kind).json_schema(mode="serialization")
        parts |= schema.pop("$defs", {})
        if "title" in schema:
            parts[schema["title"]] = schema
        kept.append(f"{place} -> {schema.get('title') or kind_of(schema)}")
    return [*sorted(written), *kept, *fields(parts)]


def routes() -> list[str]:
    """Each operation of the API, what it takes and answers, and the fields of its models."""
    document = create_app(None).openapi()
    lines = list(
        chain.from_iterable(
            _operation(f"{method.upper()} {path}", operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        )
    )
    return [*lines, *fields(document["components"]["schemas"])]


def _operation(label: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield label
    for given in operation.get("parameters", ()):
        need = ", required" if given.get("required") else ""
        yield f"{label} {given['in']} {given['name']}: {kind_of(given['schema'])}{need}"
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"{label} takes {media}: {kind_of(content.get('schema', {}))}"
    for status, answer in operation["responses"].items():
        for media, content in (answer.get("content") or {"nothing": {}}).items():
            yield f"{label} answers {status} {media}: {kind_of(content.get('schema', {}))}"


def fields(schemas: Mapping[str, Any]) -> Iterator[str]:
    """Of JSON schemas by name: fields with their types, and the values of enumerations."""
    for name, schema in sorted(schemas.items()):
        yield from (
            f"{name}.{field}: {kind_of(facts)}" for field, facts in schema.get("properties", {}).items()
        )
        if required := schema.get("required"):
            yield f"{name} needs {', '.join(sorted(required))}"
        yield from (f"{name} may be {value}" for value in schema.get("enum", ()))


def kind_of(schema: Mapping[str, Any]) -> str:
    """The type in words: `list of BatchRow`, `string or null`."""
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(map(kind_of, options)))
    match schema:
        case {"$ref": str(place)}:
            kind = place.rpartition("/")[2]
        case {"type": "array"}:
            kind = f"list of {kind_of(schema.get('items', {}))}"
        case {"type": "object", "additionalProperties": dict(values)}:
            kind = f"map to {kind_of(values)}"
        case {"const": value}:
            kind = repr(value)
        case {"enum": values}:
            kind = " or ".join(map(str, values))
        case _:
            kind = " ".join(filter(None, (schema.get("format"), schema.get("type", "any"))))
    return kind


def codes() -> list[str]:
    """Codes of problems with their status; of errors with their exit code; exit codes; codes of reasons."""
    for package in PACKAGES:
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.endswith(("__main__", "env")) and ".versions." not in module.name:
                import_module(module.name)
    exits = {name: value for name, value in vars(exit_codes).items() if isinstance(value, int)}
    return [
        *(f"problem {entry.code}: status {entry.status}" for _, entry in sorted(all_codes().items())),
        *sorted({f"error {name}: {code.kind}" for name, code in errors(ArklineError)}),
        *(f"kind {kind}: exit {exit_codes.OF_KIND[kind]}" for kind in ErrorKind),
        *(f"exit {value}: {name}" for name, value in exits.items()),
        *(
            f"{kind.__name__}: {value}"
            for kind in (JobState, BatchState, Event, FailureKind, Reason, Action)
            for value in kind
        ),
        *(
            f"exit of {type(state).__name__} {state}: {exit_codes.of_state(state)}"
            for state in (*JobState, *BatchState)
        ),
    ]


def errors(cls: type[ArklineError]) -> Iterator[tuple[str, Code]]:
    """The codes by their names, and the types of the program by theirs, each with its code."""
    yield from CODES.items()
    for kind in chain.from_iterable(map(types_of, cls.__subclasses__())):
        yield "-".join(re.findall("[A-Z][a-z0-9]*", kind.__name__)).lower(), kind.code


def types_of(cls: type[ArklineError]) -> Iterator[type[ArklineError]]:
    """The error and its types that the program has; tests and tools have further ones."""
    if cls.__module__.partition(".")[0] in PACKAGES:
        yield cls
    for child in cls.__subclasses__():
        yield from types_of(child)
