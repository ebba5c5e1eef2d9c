"""The provider: its document, its keys, and the ID token that it returns for a code.

Rule: an ID token is accepted only with a signature by a key of the provider, for this client, for this login
(its nonce), and before it expires.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
from joserfc import jwt
from joserfc.errors import (
    ExceededSizeError,
    ExpiredTokenError,
    InvalidClaimError,
    InvalidKeyIdError,
    JoseError,
    MissingClaimError,
)
from joserfc.jwk import KeySet
from pydantic import HttpUrl, ValidationError
from urllib3.exceptions import HTTPError

from pipeline.errors import ServiceUnreachable, UsageRefused
from pipeline.http import service
from pipeline.records import Record

TIMEOUT = 5.0
"""Seconds to wait for the headers, and for the body, of the provider's answer: a person is waiting."""

ANSWER = 1 << 20
"""Maximum bytes of an answer; documents, keys and tokens of large providers have tens of kilobytes."""

TURN_SECONDS = 1.0
"""Seconds to wait while another login reads the provider's document, so that logins leave some threads
free."""

KEYS_PAUSE = 60.0
"""Minimum seconds between two reads of the keys, whatever key a token names."""

LEEWAY = 60
"""Seconds by which the clocks of the provider and this machine may differ."""

ALGORITHMS = ("RS256", "PS256", "ES256")
"""Signature algorithms with a private key that only the provider has."""


class LoginRefused(UsageRefused):
    """The person is not logged in; the message says why."""


class ProviderDocument(Record):
    """The fields in use of `/.well-known/openid-configuration`."""

    issuer: str
    authorization_endpoint: HttpUrl
    token_endpoint: HttpUrl
    jwks_uri: HttpUrl


class Provider:
    """Thread-safe; first queried when somebody logs in."""

    def __init__(self, issuer: str, client_id: str, secret: str) -> None:
        self._issuer = issuer
        self._client_id = client_id
        self._secret = secret
        self._guard = threading.Lock()
        self._document: ProviderDocument | None = None
        self._keys: KeySet | None = None
        self._keys_read = 0.0

    def authorization_endpoint(self) -> str:
        return str(self._read_document().authorization_endpoint)

    def claims(self, code: str, verifier: str, redirect: str, nonce: str) -> dict[str, Any]:
        """The claims of the person who logged in; LoginRefused unless every check holds."""
        token = self._exchange(code, verifier, redirect)
        try:
            decoded = self._decode(token)
            rules = jwt.JWTClaimsRegistry(
                leeway=LEEWAY,
                iss={"essential": True, "value": self._issuer},
                aud={"essential": True, "value": self._client_id},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            rules.validate(decoded.claims)
        except ExpiredTokenError as error:
            raise LoginRefused("the provider's ID token has expired: check the clocks of both") from error
        except (InvalidClaimError, MissingClaimError) as error:
            raise LoginRefused(
                f"the provider's ID token is not valid for this login: its {error.claim} is missing or wrong"
            ) from error
        except ExceededSizeError as error:
            raise LoginRefused(
                "the provider's ID token is too long: have the provider name fewer of your groups in it"
            ) from error
        except (JoseError, ValueError) as error:
            raise LoginRefused(
                "the provider's ID token is not valid: it is not signed by one of its keys"
            ) from error
        audience = decoded.claims["aud"]
        party = decoded.claims.get("azp")
        if (party or (isinstance(audience, list) and len(audience) > 1)) and party != self._client_id:
            raise LoginRefused("the provider's ID token is not valid for this login: its azp is wrong")
        return dict(decoded.claims)

    def _exchange(self, code: str, verifier: str, redirect: str) -> str:
        endpoint = str(self._read_document().token_endpoint)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
        }
        answer = self._request("POST", endpoint, data=form, auth=(self._client_id, self._secret))
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise LoginRefused(
                f"the provider gave no ID token: {str(answer.get('error', 'its answer has none'))[:100]}"
            )
        return token

    def _decode(self, token: str) -> jwt.Token:
        try:
            return jwt.decode(token, self._read_keys(), algorithms=ALGORITHMS)
        except InvalidKeyIdError:  # the provider may have a new key
            return jwt.decode(token, self._read_keys(again=True), algorithms=ALGORITHMS)

    def _read_document(self) -> ProviderDocument:
        with self._turn():
            if self._document is None:
                url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
                try:
                    document = ProviderDocument.model_validate(self._request("GET", url))
                except ValidationError as error:
                    raise ServiceUnreachable(f"{url} is no document of an OpenID provider") from error
                if document.issuer != self._issuer:
                    raise ServiceUnreachable(
                        f"{url} is of another issuer, {document.issuer[:200]}: set ARKLINE_OIDC_ISSUER to it"
                    )
                self._document = document
            return self._document

    def _read_keys(self, again: bool = False) -> KeySet:
        url = str(self._read_document().jwks_uri)
        with self._turn():
            pause_over = time.monotonic() - self._keys_read > KEYS_PAUSE
            if self._keys is None or (again and pause_over):
                self._keys = _keys_of(self._request("GET", url), url)
                self._keys_read = time.monotonic()
            return self._keys

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._guard.acquire(timeout=TURN_SECONDS):
            raise ServiceUnreachable("the OpenID provider does not answer: try again in some seconds")
        try:
            yield
        finally:
            self._guard.release()

    def _request(self, method: str, url: str, **options: Any) -> dict[str, Any]:
        """The JSON object in the answer, which may be an OAuth error; ServiceUnreachable if there is none."""
        deadline = time.monotonic() + 2 * TIMEOUT
        try:
            with service.request(method, url, timeout=TIMEOUT, stream=True, **options) as answer:
                values = json.loads(_body(answer, deadline))
        except (requests.RequestException, HTTPError, TimeoutError) as error:
            raise ServiceUnreachable(
                f"the OpenID provider does not answer at {url}: {type(error).__name__}"
            ) from error
        except (ValueError, RecursionError) as error:
            raise ServiceUnreachable(f"the OpenID provider answers no JSON at {url}") from error
        if answer.status_code >= 500 or not isinstance(values, dict):
            raise ServiceUnreachable(f"the OpenID provider answers {answer.status_code} at {url}")
        return values


def _body(answer: requests.Response, deadline: float) -> bytes:
    """The body; ValueError if it is longer than ANSWER, TimeoutError if it is incomplete at the deadline."""
    body = b""
    while piece := answer.raw.read1(ANSWER, decode_content=True):
        body += piece
        if len(body) > ANSWER:
            raise ValueError(f"more than {ANSWER} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError
    return body


def _keys_of(document: dict[str, Any], url: str) -> KeySet:
    """The usable keys; others must be ignored (RFC 7517, 5). ServiceUnreachable if there is none."""
    listed = document.get("keys")
    usable = []
    for one in listed if isinstance(listed, list) else ():
        try:
            usable += KeySet.import_key_set({"keys": [one]}).keys
        except (JoseError, ValueError, KeyError, TypeError):  # the library raises any of them for a bad key
            continue
    if not usable:
        raise ServiceUnreachable(f"the OpenID provider has no key at {url} that can be used")
    return KeySet(usable)
