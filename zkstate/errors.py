"""Errors of the record; every message says what to do."""

from pipeline.errors import ArklineError, ErrorKind, ServiceUnreachable


class Unreachable(ServiceUnreachable):
    """ZooKeeper did not answer in time."""


class LockLost(Unreachable):
    """A lock is gone that its holder did not release: the session was lost, or another record answers."""


class WentBack(Unreachable):
    """ZooKeeper has less than this process has seen, and so refuses its session for ever."""


class NotPushed(Unreachable):
    """ZooKeeper accepted a watch and does not report a change that it covers."""


class Corrupt(ArklineError):
    """A znode's content cannot be read; the message has its path."""


class RecordOfMerritt(Corrupt):
    """A znode has the state of a batch or job of Merritt's own queue, which arkline does not take over."""


class Unwritable(ArklineError):
    """A value that could not be read again was about to be written; nothing was changed."""


class Missing(ArklineError):
    """There is no such batch or job."""

    error_kind = ErrorKind.REFUSED


class Stale(ArklineError):
    """The record has changed since it was read; nothing was written."""


class Busy(ArklineError):
    """Another attempt holds the lock; nothing was written."""


class Refused(ArklineError):
    """ZooKeeper refused a transaction because of one operation; nothing was written."""


class TooBig(ArklineError):
    """The change is larger than the record accepts; nothing was sent. To try it again cannot help."""

    error_kind = ErrorKind.REFUSED


class ServerLimit(ArklineError):
    """The change is larger than ZooKeeper's servers accept; nothing was written. They need a larger limit."""


class Contended(Refused):
    """A shared value, such as a counter, changed since it was read: read it and try again."""


class Outdated(Refused):
    """A reservation was made from a sum that has changed since: count the free space again."""


class Taken(Refused):
    """The name belongs to another record already."""


class Ambiguous(ArklineError):
    """The connection was lost before the answer came: the transaction may or may not have happened."""

    code = "outcome-unknown"
