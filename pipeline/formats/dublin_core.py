"""Simple Dublin Core as XML: the fifteen elements, in the form that OAI-PMH calls oai_dc."""

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from pipeline.formats.xml_text import clean
from pipeline.outcome import content

ELEMENTS = (
    "title",
    "creator",
    "subject",
    "description",
    "publisher",
    "contributor",
    "date",
    "type",
    "format",
    "identifier",
    "source",
    "language",
    "relation",
    "coverage",
    "rights",
)

_DC = "http://purl.org/dc/elements/1.1/"
_TERMS = "http://purl.org/dc/terms/"
_OAI_DC = "http://www.openarchives.org/OAI/2.0/oai_dc/"

_DECLARATION = re.compile(r"<!\s*(DOCTYPE|ENTITY)", re.IGNORECASE)

ElementTree.register_namespace("dc", _DC)
ElementTree.register_namespace("oai_dc", _OAI_DC)


def write(fields: Mapping[str, Sequence[str]]) -> bytes:
    root = ElementTree.Element(f"{{{_OAI_DC}}}dc")
    for name in ELEMENTS:
        for value in fields.get(name, ()):
            ElementTree.SubElement(root, f"{{{_DC}}}{name}").text = clean(value)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text + b"\n"


def parse(data: bytes, source: str) -> dict[str, tuple[str, ...]]:
    """The elements anywhere in the document, in either of Dublin Core's namespaces; others are ignored."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise content(f"{source} is not UTF-8: save it as UTF-8 and submit again") from error
    if _DECLARATION.search(text):
        # Entities can name files of ours or grow without bound; no Dublin Core record needs them.
        raise content(f"{source} has a DOCTYPE or ENTITY declaration, which is not read: take it out")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - no declarations, hence no entities, get here
    except ElementTree.ParseError as error:
        raise content(f"{source} is not well-formed XML: {error}") from error
    found: dict[str, list[str]] = {}
    for element in root.iter():
        namespace, _, name = str(element.tag).rpartition("}")
        value = " ".join("".join(element.itertext()).split())
        if namespace.lstrip("{") in (_DC, _TERMS) and name in ELEMENTS and value:
            found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}
