"""The elements of a PREMIS 3.0 document, one at a time: a tree of all files needs ten times their text."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import version
from typing import NamedTuple
from xml.sax.saxutils import escape

from pipeline.description.xml import clean
from pipeline.fixity import Digest

NAMESPACE = "http://www.loc.gov/premis/v3"
_VOCABULARY = "http://id.loc.gov/vocabulary/preservation/eventType"
_CODES = {
    "accession": "acc",
    "dissemination": "dis",
    "fixity check": "fix",
    "ingestion": "ing",
    "message digest calculation": "mes",
    "metadata modification": "mem",
    "transfer": "tra",
    "unpacking": "unp",
    "validation": "val",
}
"""Codes in the Library of Congress's vocabulary of event types, which lacks `identifier assignment` and
`storage`."""

_NAMESPACES = f' xmlns:premis="{NAMESPACE}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
BEGIN = f"""<?xml version='1.0' encoding='UTF-8'?>\n<premis:premis{_NAMESPACES} version="3.0">\n""".encode()
END = b"</premis:premis>\n"

PROGRAM = "arkline"
"""The agent of every event that names no other."""


@dataclass(frozen=True)
class PremisEvent:
    """An event of an object."""

    kind: str
    at: datetime
    detail: str
    outcome: str = "success"
    note: str = ""
    agent: str = PROGRAM
    identifier: str = ""
    """Unique in arkline."""


@dataclass(frozen=True)
class PremisFile:
    """A file of an object; `identifier` follows the ARK."""

    identifier: str
    name: str
    size: int
    mime_type: str
    digest: Digest
    declared: Digest | None = None
    """The depositor's digest."""


class _Element(NamedTuple):
    name: str
    content: "str | tuple[_Element, ...]"
    attributes: str = ""


def _text(element: _Element, level: int = 1) -> str:
    """The element on its own lines."""
    margin, name, content = "  " * level, f"premis:{element.name}", element.content
    if not content:
        return f"{margin}<{name}{element.attributes} />\n"
    if isinstance(content, str):
        return f"{margin}<{name}{element.attributes}>{escape(clean(content))}</{name}>\n"
    inner = "".join(_text(child, level + 1) for child in content)
    return f"{margin}<{name}{element.attributes}>\n{inner}{margin}</{name}>\n"


def _identified(role: str, kind: str, value: str, *more: _Element) -> _Element:
    """An element `role` with its type and value, as objectIdentifierType and objectIdentifierValue."""
    return _Element(role, (_Element(f"{role}Type", kind), _Element(f"{role}Value", value), *more))


def entity(ark: str, local_ids: Iterable[str], original_name: str) -> bytes:
    """The object as a whole."""
    content = (
        _identified("objectIdentifier", "ARK", ark),
        *(_identified("objectIdentifier", "local", local_id) for local_id in local_ids),
        _Element("originalName", original_name or "(:unas)"),
    )
    return _text(_Element("object", content, ' xsi:type="premis:intellectualEntity"')).encode()


def file(ark: str, of: PremisFile) -> bytes:
    """Composed as one text, not from elements: an object may have 100,000 files."""
    object_id = _escaped(ark)
    declared = _fixity(of.declared, "depositor") if of.declared else ""
    return f"""\
  <premis:object xsi:type="premis:file">
    <premis:objectIdentifier>
      <premis:objectIdentifierType>ARK</premis:objectIdentifierType>
      <premis:objectIdentifierValue>{object_id}/{_escaped(of.identifier)}</premis:objectIdentifierValue>
    </premis:objectIdentifier>
    <premis:objectCharacteristics>
{_fixity(of.digest, PROGRAM)}{declared}\
      <premis:size>{of.size}</premis:size>
      <premis:format>
        <premis:formatDesignation>
          {_line("formatName", of.mime_type)}
        </premis:formatDesignation>
      </premis:format>
    </premis:objectCharacteristics>
    {_line("originalName", of.name)}
    <premis:relationship>
      <premis:relationshipType>structural</premis:relationshipType>
      <premis:relationshipSubType>is part of</premis:relationshipSubType>
      <premis:relatedObjectIdentifier>
        <premis:relatedObjectIdentifierType>ARK</premis:relatedObjectIdentifierType>
        <premis:relatedObjectIdentifierValue>{object_id}</premis:relatedObjectIdentifierValue>
      </premis:relatedObjectIdentifier>
    </premis:relationship>
  </premis:object>
""".encode()


def _fixity(digest: Digest, originator: str) -> str:
    return f"""\
      <premis:fixity>
        <premis:messageDigestAlgorithm>{_algorithm(digest.algorithm)}</premis:messageDigestAlgorithm>
        <premis:messageDigest>{digest.value}</premis:messageDigest>
        <premis:messageDigestOriginator>{originator}</premis:messageDigestOriginator>
      </premis:fixity>
"""


@cache
def _algorithm(name: str) -> str:
    return name.upper().replace("SHA", "SHA-")


def _line(name: str, text: str, attributes: str = "") -> str:
    start = f"<premis:{name}{attributes}"
    return f"{start}>{_escaped(text)}</premis:{name}>" if text else f"{start} />"


def _escaped(text: str) -> str:
    return escape(clean(text))


def event(ark: str, of: PremisEvent) -> bytes:
    """Composed as one text too: every object has about six."""
    code = _CODES.get(of.kind)
    authority = f' authority="eventType" authorityURI="{_VOCABULARY}" valueURI="{_VOCABULARY}/{code}"'
    detail = f"""\
      <premis:eventOutcomeDetail>
        {_line("eventOutcomeDetailNote", of.note)}
      </premis:eventOutcomeDetail>
"""
    return f"""\
  <premis:event>
    <premis:eventIdentifier>
      <premis:eventIdentifierType>{PROGRAM}</premis:eventIdentifierType>
      {_line("eventIdentifierValue", of.identifier)}
    </premis:eventIdentifier>
    {_line("eventType", of.kind, authority if code else "")}
    <premis:eventDateTime>{of.at.astimezone(UTC).isoformat(timespec="milliseconds")}</premis:eventDateTime>
    <premis:eventDetailInformation>
      {_line("eventDetail", of.detail)}
    </premis:eventDetailInformation>
    <premis:eventOutcomeInformation>
      {_line("eventOutcome", of.outcome)}
{detail if of.note else ""}\
    </premis:eventOutcomeInformation>
    <premis:linkingAgentIdentifier>
      <premis:linkingAgentIdentifierType>{PROGRAM}</premis:linkingAgentIdentifierType>
      {_line("linkingAgentIdentifierValue", of.agent)}
      <premis:linkingAgentRole>executing program</premis:linkingAgentRole>
    </premis:linkingAgentIdentifier>
    <premis:linkingObjectIdentifier>
      <premis:linkingObjectIdentifierType>ARK</premis:linkingObjectIdentifierType>
      {_line("linkingObjectIdentifierValue", ark)}
    </premis:linkingObjectIdentifier>
  </premis:event>
""".encode()


def program(name: str = PROGRAM) -> bytes:
    """The agent of events: arkline, or its process or user by name."""
    release = (_Element("agentVersion", _release()),) if name == PROGRAM else ()
    return _agent(PROGRAM, name, "software", *release)


def person(name: str) -> bytes:
    """The submitter."""
    return _agent("submitter", name, "person")


@lru_cache(maxsize=64)  # the same for all objects of a submitter
def _agent(kind: str, name: str, agent_type: str, *more: _Element) -> bytes:
    content = (
        _identified("agentIdentifier", kind, name),
        _Element("agentName", name),
        _Element("agentType", agent_type),
        *more,
    )
    return _text(_Element("agent", content)).encode()


@cache
def _release() -> str:
    return version("arkline")
