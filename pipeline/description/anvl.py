"""ANVL: lines of `name: value`, and the Electronic Resource Citation (ERC) written in it.

A value is on one line. Control characters and `%` are written as `%XX`, so that every value reads back
unchanged.
"""

import re
from collections.abc import Iterable

from pipeline.outcome import content

UNKNOWN = "(:unas)"
"""ERC's code for a value that was not given."""

ELEMENTS = ("who", "what", "when", "where")

_NOT_GIVEN = frozenset(
    {"", "(:unas)", "(:unav)", "(:unkn)", "(:unal)", "(:unap)", "(:none)", "(:null)", "(:tba)"}
)
_TO_ESCAPE = re.compile(r"[\x00-\x1f\x7f%]")
_ESCAPED = re.compile(r"%(0[0-9A-Fa-f]|1[0-9A-Fa-f]|25|7[Ff])")
_BLANK = " \t"

Pairs = tuple[tuple[str, str], ...]


def is_given(value: str) -> bool:
    """False for an empty value and for ERC's codes of a missing value."""
    return value.strip() not in _NOT_GIVEN


def escape(value: str) -> str:
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match[0]):02X}", value.strip())


def unescape(text: str) -> str:
    """The value of escaped `text`; a `%` that begins no escape is literal."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def write(pairs: Iterable[tuple[str, str]], gap: str = " ") -> bytes:
    """Write one line per pair; an empty value becomes (:unas)."""
    return "".join(f"{name}:{gap}{escape(value) or UNKNOWN}\n" for name, value in pairs).encode()


def write_erc(pairs: Pairs) -> bytes:
    return b"erc:\n" + write(pairs)


def parse(data: bytes, source: str) -> Pairs:
    """All pairs in order; a line that begins with a blank continues the previous value."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = data[: error.start].count(b"\n") + 1
        raise content(f"{source} line {at} is not UTF-8: save it as UTF-8 and submit again") from error
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if not line.strip(_BLANK) or line.startswith("#"):
            continue
        if line[0] in _BLANK and pairs:
            name, value = pairs[-1]
            pairs[-1] = (name, f"{value} {line.strip(_BLANK)}".strip())
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise content(f"{source} line {number} has no colon: expected 'name: value'")
        pairs.append((name.strip(_BLANK), value.strip(_BLANK)))
    return tuple((name, unescape(value)) for name, value in pairs)


def kernel(pairs: Iterable[tuple[str, str]]) -> Pairs:
    """The elements of the ERC that have a value, as the inventory keeps them."""
    known = ((element.lower(), value) for element, value in pairs)
    return tuple((e, value) for e, value in known if e in ELEMENTS and value not in ("", UNKNOWN))


def parse_erc(data: bytes, source: str) -> dict[str, tuple[str, ...]]:
    """Element -> its values; also reads the short form `erc: who | what | when | where`."""
    values: dict[str, list[str]] = {}
    for name, value in parse(data, source):
        if name.lower() == "erc":
            pairs = list(zip(ELEMENTS, value.split("|"), strict=False))
        else:
            pairs = [(name.lower(), value)]
        for element, text in pairs:
            if element in ELEMENTS and is_given(text):
                values.setdefault(element, []).append(text.strip())
    return {element: tuple(texts) for element, texts in values.items()}
