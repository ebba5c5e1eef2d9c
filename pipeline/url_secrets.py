"""The secrets in URLs, and texts without them."""

import re
from urllib.parse import unquote

SECRET = re.compile(
    r"(?i)sig|token|secret|pass|pwd|psw|kennwort|contrase|credential|key|auth|bearer|jwt|saml|assertion|nonce"
    r"|code|sas|hmac|hdnea|hdnts|bewit|ticket|sess|cookie|policy|otp|private"
    r"|(?<![a-z])(?:st|sid|psid|pin|pw|tok|mac|md5|hash|cred|creds|access|verify|clave|senha)(?![a-z])"
)
"""In the name of a value in a query, as far as its value may open a source."""

_PAIR = re.compile(r"(?<=[?&;#])([^=&;#?\s|]+?)(=|%(?:25)*3[dD])([^&;#?\s|]+(?:[;?][^=&;#?\s|]*+(?!=))*)")
"""A name and its value in the query of a URL, in a text of which `|` and spaces divide the fields. The sign
between the two may be written as an escape, which some servers take for the sign itself. What follows a `;`
or `?` and names no value belongs to the value before."""

_USER = re.compile(r"(?<=://)(?:[^/?#@\s|]*@)+")


def hide_secrets(text: str) -> str:
    """The text with `...` for the users, the passwords and the secret values of its URLs; the rest stays.

    For copies that are kept: the bytes that are fetched need the text itself. The time is linear.
    """

    def hidden(pair: re.Match[str]) -> str:
        nested = _unescaped(pair[3])  # another address, or a query as one value
        secret = (
            SECRET.search(_unescaped(pair[1]))
            or ("=" in nested and SECRET.search(nested))
            or (nested != pair[3] and _USER.search(nested))
        )
        return f"{pair[1]}{pair[2]}..." if secret else pair[0]

    return _USER.sub("...@", _PAIR.sub(hidden, text))


def _unescaped(text: str) -> str:
    return unquote(unquote(text))
