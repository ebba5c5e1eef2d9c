"""Values that a browser keeps for us: signed, for one purpose, and for a limited time.

The key is derived from the client's secret, so all web processes accept the values, and a new secret ends
them.
"""

import hashlib
import hmac
import time

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from operations.tokens import InvalidToken

_ALGORITHM = "HS256"


class Seal:
    def __init__(self, secret: str) -> None:
        digest = hmac.new(secret.encode(), b"arkline values in cookies", hashlib.sha256).digest()
        self._key = OctKey.import_key(digest)

    def seal(self, purpose: str, seconds: float, values: dict[str, str]) -> str:
        claims = {**values, "aud": purpose, "exp": int(time.time() + seconds)}
        return jwt.encode({"alg": _ALGORITHM}, claims, self._key)

    def open(self, purpose: str, sealed: str) -> dict[str, str]:
        """The values; InvalidToken if they were not sealed here for this purpose, or have expired."""
        try:
            token = jwt.decode(sealed, self._key, algorithms=[_ALGORITHM])
            rules = jwt.JWTClaimsRegistry(
                aud={"essential": True, "value": purpose}, exp={"essential": True}, leeway=0
            )
            rules.validate(token.claims)
        except (JoseError, ValueError) as error:
            raise InvalidToken("the login is over, or is not of this site: log in again") from error
        return {name: value for name, value in token.claims.items() if isinstance(value, str)}
