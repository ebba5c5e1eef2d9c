"""The secrets in URLs, and texts without them."""

import re
from urllib.parse import unquote

SECRET = re.compile(
    r"(?i)sig|token|secret|pass|credential|key|auth|jwt|code|sas|hmac|ticket|session|policy|otp"
    r"|(?<![a-z])(?:st|sid|pin|pw)(?![a-z])"
)
"""In the name of a value in a query, as far as its value may open a source."""

_PAIR = re.compile(r"(?<=[?&;#])([^=&;#?\s|]+?)(=|%(?:25)*3[dD])([^&;#?\s|]+)")
"""A name and its value in the query of a URL, in a text of which `|` and spaces divide the fields. The sign
between the two may be written as an escape, which some servers take for the sign itself."""

_USER = re.compile(r"(?i)(?<=http://|ttps://)[^/?#@\s|]+@")


def hide_secrets(text: str) -> str:
    """The text with `...` for the users, the passwords and the secret values of its URLs; the rest stays.

    For copies that are kept: the bytes that are fetched need the text itself. The time is linear.
    """

    def hidden(pair: re.Match[str]) -> str:
        nested = unquote(unquote(pair[3]))  # another address, or a query as one value
        secret = SECRET.search(unquote(pair[1])) or ("=" in nested and SECRET.search(nested))
        return f"{pair[1]}{pair[2]}..." if secret else pair[0]

    return _USER.sub("...@", _PAIR.sub(hidden, text))
