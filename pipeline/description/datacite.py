"""DataCite metadata in XML (kernels 2 to 4), converted to simple Dublin Core."""

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from pipeline.description import anvl, xml
from pipeline.description.xml import local_name, namespace, text_of
from pipeline.outcome import content

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


def parse(data: bytes, source: str) -> dict[str, tuple[str, ...]]:
    """Dublin Core element -> values; StepFailed(content) unless the document describes one resource."""
    root = xml.parse(data, source)
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
