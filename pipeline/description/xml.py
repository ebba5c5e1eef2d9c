"""Safe parsing of depositors' XML, which can neither read our files nor use much time or memory.

The caller limits the size. DataCite metadata (kernels 2 to 4) is converted to simple Dublin Core, the
fifteen elements in the oai_dc form of OAI-PMH; this module also reads and writes that form.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from pipeline.description import anvl
from pipeline.outcome import content

MAX_DEPTH = 100
"""Maximum nesting of elements; metadata records have five or six levels."""

_DECLARATION = re.compile(r"<!\s*(DOCTYPE|ENTITY)", re.IGNORECASE)


def parse(data: bytes, source: str) -> Element:
    """The root element; StepFailed(content), naming `source`, if the document is invalid."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise content(f"{source} is not UTF-8: save it as UTF-8 and submit again") from error
    if _DECLARATION.search(text):
        # Entities can name our files or expand without limit; metadata records do not need them.
        raise content(
            f"{source} has a DOCTYPE or ENTITY declaration, which is not allowed: remove it and submit again"
        )
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - no declarations, hence no entities, get here
    except ElementTree.ParseError as error:
        raise content(
            f"{source} is not well-formed XML: {error}; correct the file and submit again"
        ) from error
    level = [root]
    for _ in range(MAX_DEPTH):
        level = [child for element in level for child in element]
        if not level:
            return root
    raise content(f"{source} is nested more than {MAX_DEPTH} elements deep: submit a flatter file")


def local_name(element: Element) -> str:
    """The tag without its namespace."""
    return str(element.tag).rpartition("}")[2]


def namespace(element: Element) -> str:
    return str(element.tag).rpartition("}")[0].lstrip("{")


def text_of(element: Element) -> str:
    """All text of the element on one line."""
    return " ".join("".join(element.itertext()).split())


_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML 1.0 document may contain, even escaped."""


def clean(text: str) -> str:
    """The text with U+FFFD in place of characters that XML cannot contain."""
    return _FORBIDDEN.sub("\ufffd", text)


_NAMESPACE = re.compile(r"https?://datacite\.org/schema/kernel-[2-4](\.\d+)?(/.*)?")

_AS_DUBLIN_CORE = {
    "creators/creator/creatorName": "creator",
    "titles/title": "title",
    "publicationYear": "date",
    "publisher": "publisher",
    "subjects/subject": "subject",
    "contributors/contributor/contributorName": "contributor",
    "descriptions/description": "description",
    "language": "language",
    "resourceType": "type",
    "identifier": "identifier",
    "alternateIdentifiers/alternateIdentifier": "identifier",
    "formats/format": "format",
    "rightsList/rights": "rights",
    "rights": "rights",
}
_DOI = "doi"


def parse_datacite(data: bytes, source: str) -> dict[str, tuple[str, ...]]:
    """Dublin Core element -> values; StepFailed(content) unless the document describes one resource."""
    root = parse(data, source)
    resources = [e for e in root.iter() if local_name(e) == "resource" and _is_datacite(e)]
    if len(resources) != 1:
        raise content(
            f"{source} has {len(resources)} resource elements in DataCite's namespace "
            "http://datacite.org/schema/kernel-4, but must have one: correct the file and submit again"
        )
    values: dict[str, list[str]] = {}
    for path, name in _AS_DUBLIN_CORE.items():
        for element in _at(resources[0], path.split("/")):
            value = _value(element)
            if anvl.is_given(value):
                values.setdefault(name, []).append(value)
    return {name: tuple(dict.fromkeys(texts)) for name, texts in values.items()}


def _is_datacite(element: Element) -> bool:
    return _NAMESPACE.fullmatch(namespace(element)) is not None


def _at(element: Element, path: list[str]) -> Iterator[Element]:
    if not path:
        yield element
        return
    for child in element:
        if local_name(child) == path[0] and _is_datacite(child):
            yield from _at(child, path[1:])


def _value(element: Element) -> str:
    value = text_of(element)
    if local_name(element) == "resourceType":
        return value or element.get("resourceTypeGeneral", "").strip()
    if element.get("identifierType", "").lower() == _DOI and value.startswith("10."):
        return f"{_DOI}:{value}"
    return value


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


def write_dublin_core(fields: Mapping[str, Sequence[str]]) -> bytes:
    root = ElementTree.Element(f"{{{_OAI_DC}}}dc")
    for name in ELEMENTS:
        for value in fields.get(name, ()):
            ElementTree.SubElement(root, f"{{{_DC}}}{name}").text = clean(value)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text + b"\n"


def parse_dublin_core(data: bytes, source: str) -> dict[str, tuple[str, ...]]:
    """The elements anywhere in the document, in either Dublin Core namespace; other elements are ignored."""
    values: dict[str, list[str]] = {}
    for element in parse(data, source).iter():
        name = local_name(element)
        known = name in ELEMENTS and namespace(element) in (_DC, _TERMS)
        if known and (value := text_of(element)):
            values.setdefault(name, []).append(value)
    return {name: tuple(texts) for name, texts in values.items()}
