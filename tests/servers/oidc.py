"""An OpenID Connect provider on loopback, with RSA keys of its own; it logs in the person of the test."""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from pydantic import SecretStr

from plugins.oidc.settings import OidcSettings
from tests.servers.base import Handler, serving

CLIENT, SECRET = "arkline", "a secret of the client"


def new_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"}, auto_kid=False)


@dataclass
class Provider:
    port: int = 0
    key: RSAKey = field(default_factory=lambda: new_key("first"))
    """Signs ID tokens."""
    published: list[RSAKey] = field(default_factory=list)
    """The keys that clients are given; without any, the signing key."""
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "ann", "groups": ["archivists"]})
    claims: dict[str, Any] = field(default_factory=dict)
    """Claims of the next ID tokens, instead of right ones; None leaves a claim out."""
    requests: list[dict[str, str]] = field(default_factory=list)
    """The parameters of requests to log in."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    bodies: dict[str, Iterable[bytes]] = field(default_factory=dict)
    """Path -> the pieces of the body that is sent instead of a right one."""

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def document(self) -> dict[str, str]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }

    def settings(self, folder: Path, groups: str) -> OidcSettings:
        """What an operator sets for a login here; `groups`: the text of the file of the groups."""
        file = folder / "groups.yaml"
        file.write_text(groups)
        return OidcSettings(
            oidc_issuer=self.issuer,
            oidc_client_id=CLIENT,
            oidc_client_secret=SecretStr(SECRET),
            oidc_groups=file,
        )

    def authorize(self, query: str) -> str:
        """Log the person in; the address to which the browser is sent back."""
        asked = dict(parse_qsl(query))
        self.requests.append(asked)
        code = secrets.token_hex(8)
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, str]]:
        """The ID token for a code, which counts once, for its own client and with its own verifier."""
        login = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        asked = self.codes.pop(form.get("code", ""), None)
        if authorization != f"Basic {login}" or asked is None:
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if challenge != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": asked["client_id"],
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **self.person,
            **self.claims,
        }
        given = {name: value for name, value in claims.items() if value is not None}
        header = {"alg": "RS256", "kid": self.key.kid}
        return 200, {"id_token": jwt.encode(header, given, self.key), "token_type": "Bearer"}


@contextmanager
def providing() -> Iterator[Provider]:
    provider = Provider()

    class Answer(Handler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/authorize":
                self.respond(303, headers=(("Location", provider.authorize(url.query)),))
            elif url.path == "/keys":
                keys: list[Any] = list(provider.published or [provider.key])
                self.send_object(200, KeySet(keys).as_dict(private=False))
            else:
                assert url.path == "/.well-known/openid-configuration", url.path
                self.send_object(200, provider.document)

        def do_POST(self) -> None:
            form = {name: values[0] for name, values in parse_qs(self.request_body().decode()).items()}
            self.send_object(*provider.exchange(form, self.headers.get("Authorization", "")))

        def send_object(self, status: int, value: Any) -> None:
            if self.path not in provider.bodies:
                self.respond(status, json.dumps(value).encode(), (("Content-Type", "application/json"),))
                return
            self.send_response(status)
            self.end_headers()
            for piece in provider.bodies[self.path]:
                self.wfile.write(piece)

    with serving(Answer) as provider.port:
        yield provider
