"""The secrets in URLs, and texts without them."""

import re
from urllib.parse import unquote

SECRET = re.compile(r"(?i)sig|token|secret|pass|credential|key|auth|jwt|code|sas|hmac|ticket|session")
"""In the name of a value in a query, as far as its value may open a source."""

_PAIR = re.compile(r"(?<=[?&;])([^=&;#?\s|]+)=([^&;#?\s|]+)")
"""A name and its value in the query of a URL, in a text of which `|` and spaces divide the fields."""

_USER = re.compile(r"(?i)(?<=http://|ttps://)[^/?#@\s|]+@")


def hide_secrets(text: str) -> str:
    """The text with `...` for the users, the passwords and the secret values of its URLs; the rest stays.

    For copies that are kept: the bytes that are fetched need the text itself. The time is linear.
    """

    def hidden(pair: re.Match[str]) -> str:
        return f"{pair[1]}=..." if SECRET.search(unquote(pair[1])) else pair[0]

    return _USER.sub("...@", _PAIR.sub(hidden, text))
