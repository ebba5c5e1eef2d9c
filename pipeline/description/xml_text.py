"""Text that XML 1.0 can hold."""

import re

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML 1.0 document may contain, even escaped."""


def clean(text: str) -> str:
    """The text with U+FFFD in place of characters that XML cannot contain."""
    return _FORBIDDEN.sub("\ufffd", text)
