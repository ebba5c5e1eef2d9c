"""Parses depositors' XML so that it can neither read our files nor use much time or memory; text for our XML.

The caller limits the size.
"""

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from pipeline.outcome import content

MAX_DEPTH = 100
"""Nesting of elements; metadata records have five or six levels."""

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
