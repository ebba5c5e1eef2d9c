"""XML that a depositor gave, parsed so that it can neither reach our files nor take much time or memory.

Its size is the caller's to bound.
"""

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from pipeline.outcome import content

DEPTH = 100
"""Elements one within the other: records of metadata have five or six."""

_DECLARATION = re.compile(r"<!\s*(DOCTYPE|ENTITY)", re.IGNORECASE)


def parse(data: bytes, source: str) -> Element:
    """The root; StepFailed(content), naming `source`, if there is none to be had."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise content(f"{source} is not UTF-8: save it as UTF-8 and submit again") from error
    if _DECLARATION.search(text):
        # Entities can name files of ours or grow without bound; no record of metadata needs them.
        raise content(f"{source} has a DOCTYPE or ENTITY declaration, which is not read: take it out")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - no declarations, hence no entities, get here
    except ElementTree.ParseError as error:
        raise content(f"{source} is not well-formed XML: {error}; correct it and submit again") from error
    level = [root]
    for _ in range(DEPTH):
        level = [child for element in level for child in element]
        if not level:
            return root
    raise content(f"{source} has more than {DEPTH} elements one within the other: submit one with fewer")


def local_name(element: Element) -> str:
    """Without its namespace."""
    return str(element.tag).rpartition("}")[2]


def namespace(element: Element) -> str:
    return str(element.tag).rpartition("}")[0].lstrip("{")


def text_of(element: Element) -> str:
    """All text in the element on one line."""
    return " ".join("".join(element.itertext()).split())
