"""Errors of the record; every message says what to do."""

from pipeline import codes
from pipeline.errors import ArklineError, ServiceUnreachable


class Unreachable(ServiceUnreachable):
    """ZooKeeper did not answer in time."""


class LockLost(Unreachable):
    """A lock is gone that its holder did not release: the session was lost, or another record answers."""


class WentBack(Unreachable):
    """ZooKeeper has less than this process has seen, and so refuses its session for ever."""


class NotPushed(Unreachable):
    """ZooKeeper accepted a watch and does not report a change that it covers."""


class Corrupt(ArklineError):
    code = codes.CORRUPT


class RecordOfMerritt(Corrupt):
    """A znode has the state of a batch or job of Merritt's own queue, which arkline does not take over."""


class Unwritable(ArklineError):
    """A value that could not be read again was about to be written; nothing was changed."""


class Missing(ArklineError):
    code = codes.MISSING


class Stale(ArklineError):
    code = codes.STALE


class Busy(ArklineError):
    code = codes.BUSY


class Refused(ArklineError):
    """ZooKeeper refused a transaction because of one operation; nothing was written."""


class TooBig(ArklineError):
    code = codes.TOO_BIG


class ServerLimit(ArklineError):
    code = codes.SERVER_LIMIT


class Contended(Refused):
    """A shared value, such as a counter, changed since it was read: read it and try again."""


class Outdated(Refused):
    """A reservation was made from a sum that has changed since: count the free space again."""


class Taken(Refused):
    """The name belongs to another record already."""


class Ambiguous(ArklineError):
    code = codes.OUTCOME_UNKNOWN
