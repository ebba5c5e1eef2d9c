"""What can go wrong with the record, as errors that say what to do."""

from pipeline.errors import ArklineError, ErrorKind, ServiceUnreachable


class Unreachable(ServiceUnreachable):
    """ZooKeeper did not answer in time."""


class Corrupt(ArklineError):
    """A znode's content cannot be read; the message has its path."""


class Missing(ArklineError):
    """There is no such batch or job."""

    error_kind = ErrorKind.REFUSED


class Stale(ArklineError):
    """The record has moved on since it was read; nothing was changed."""


class Busy(ArklineError):
    """Somebody else holds the lock; nothing was changed."""


class Refused(ArklineError):
    """ZooKeeper refused a transaction because of its operation on `path`; nothing was changed."""

    def __init__(self, path: str, error: Exception) -> None:
        super().__init__(f"{path}: {type(error).__name__} {error}".rstrip())
        self.path = path
        self.error = error


class Ambiguous(ArklineError):
    """The connection was lost before the answer came: the transaction may or may not have happened."""
