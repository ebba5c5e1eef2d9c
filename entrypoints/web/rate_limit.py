"""The rate limit of a token, in the memory of this process."""

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from pipeline.errors import ArklineError, ErrorKind

REQUESTS_PER_MINUTE = 1200


class TooManyRequests(ArklineError):
    """The token has sent more requests than the limit; `Retry-After` says when to continue."""

    error_kind = ErrorKind.REFUSED


class RateLimit:
    def __init__(self, per_minute: int = REQUESTS_PER_MINUTE) -> None:
        self._item = RateLimitItemPerMinute(per_minute)
        self._limiter = FixedWindowRateLimiter(MemoryStorage())

    def count(self, token_name: str) -> None:
        """TooManyRequests if this request exceeds the limit."""
        if not self._limiter.hit(self._item, token_name):
            raise TooManyRequests(
                f"the token {token_name} has sent more than {self._item.amount} requests in a minute: wait"
            )
