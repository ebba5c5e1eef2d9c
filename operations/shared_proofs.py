"""Proofs of custody as other web processes see them: in Redis, under keys that expire.

Losing Redis loses nothing but what the others see. With keys of the site the proofs are signed, so that
whoever can only write to Redis cannot say that an object is intact.
"""

import hmac
import json
import time
import zlib
from base64 import b64decode, b64encode
from hashlib import sha256

import redis
from pydantic import ValidationError

from operations.custody_proof import CustodyProof
from pipeline.settings import Settings
from tasks.logs import log
from tasks.redis_client import client

LIFETIME = 3600
"""Seconds that an ended proof is kept."""

LIVE = 60
"""Seconds that a proof is kept that has not ended; while bytes are read it is reported every second."""

TIMEOUT = 1.0
"""Seconds to wait for Redis: a page must not wait for it."""

RETRY_AFTER_FAULT = 30.0
"""Seconds without Redis after it did not answer."""

SHARED_LIMIT = 4_000_000
"""Bytes of a shared proof."""

PLAIN_LIMIT = 64_000_000
"""Bytes of its JSON."""


class SharedProofs:
    """Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._prefix = f"{settings.broker_prefix}proof"
        self._keys = settings.message_keys
        self._client = client(settings, TIMEOUT)
        self._paused_until = 0.0

    def publish(self, proof: CustodyProof) -> None:
        """Replace what the other processes see of the proof."""
        data = self._sealed(proof)
        if len(data) > SHARED_LIMIT:
            where = "which only the web process that read the bytes can show: ask again"
            message = f"the result has {len(proof.custody.files) if proof.custody else 0:,} files, {where}"
            data = self._sealed(proof.model_copy(update={"custody": None, "message": message}))
        seconds = LIVE if proof.ended is None else LIFETIME
        if time.monotonic() < self._paused_until:
            return
        try:
            self._client.set(self._key(proof.id), data, ex=seconds)
            self._client.set(self._latest_key(proof.ark, proof.version), proof.id, ex=seconds)
        except redis.RedisError as error:
            self._pause(error)

    def find(self, proof_id: str) -> CustodyProof | None:
        """None if there is no such proof, any more or at all, or if Redis does not answer."""
        data = self._get(self._key(proof_id))
        proof = None if data is None else self._opened(data)
        return proof if proof is not None and proof.id == proof_id else None

    def latest(self, ark: str, version: int) -> CustodyProof | None:
        """The proof of the version that was published last."""
        name = self._get(self._latest_key(ark, version))
        proof = None if name is None else self.find(name.decode("ascii", "replace"))
        return proof if proof is not None and (proof.ark, proof.version) == (ark, version) else None

    def _get(self, key: str) -> bytes | None:
        if time.monotonic() < self._paused_until:
            return None
        try:
            data = self._client.get(key)
        except redis.RedisError as error:
            self._pause(error)
            return None
        return data if isinstance(data, bytes) else None

    def _pause(self, error: redis.RedisError) -> None:
        self._paused_until = time.monotonic() + RETRY_AFTER_FAULT
        log().warning("proofs of custody are not shared among web processes", error=str(error))

    def _sealed(self, proof: CustodyProof) -> bytes:
        body = b64encode(zlib.compress(proof.model_dump_json().encode())).decode()
        return json.dumps({"body": body, "signature": next(iter(self._signatures(body)), "")}).encode()

    def _opened(self, data: bytes) -> CustodyProof | None:
        """None for what no web process of this site wrote."""
        try:
            shared = json.loads(data)
            body, given = shared["body"], shared["signature"]
            own = [signature.encode() for signature in self._signatures(body)]
            if own and not any([hmac.compare_digest(given.encode(), signature) for signature in own]):
                return None
            plain = zlib.decompressobj().decompress(b64decode(body), PLAIN_LIMIT)
            return CustodyProof.model_validate_json(plain)
        except (KeyError, TypeError, AttributeError, ValueError, ValidationError, zlib.error):
            return None

    def _signatures(self, body: str) -> list[str]:
        """By each key of the site; the first is the one that signs."""
        signed = f"custody-proof {body}".encode()
        return [hmac.new(key.encode(), signed, sha256).hexdigest() for key in self._keys]

    def _key(self, proof_id: str) -> str:
        return f"{self._prefix}:{proof_id}"

    def _latest_key(self, ark: str, version: int) -> str:
        return f"{self._prefix}-of:{sha256(ark.encode()).hexdigest()[:32]}:{version}"
