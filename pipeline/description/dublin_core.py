"""Simple Dublin Core as XML: the fifteen elements in the oai_dc form of OAI-PMH."""

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from pipeline.description import xml
from pipeline.description.xml import clean

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
    """The elements anywhere in the document, in either Dublin Core namespace; other elements are ignored."""
    values: dict[str, list[str]] = {}
    for element in xml.parse(data, source).iter():
        name = xml.local_name(element)
        known = name in ELEMENTS and xml.namespace(element) in (_DC, _TERMS)
        if known and (value := xml.text_of(element)):
            values.setdefault(name, []).append(value)
    return {name: tuple(texts) for name, texts in values.items()}
