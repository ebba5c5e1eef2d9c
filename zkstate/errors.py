"""Errors of the record; every message says what to do."""

from pipeline import codes
from pipeline.errors import ArklineError, ServiceUnreachable


class Unreachable(ServiceUnreachable):
    """ZooKeeper did not answer in time."""


class UserRefused(Unreachable):
    """ZooKeeper answers, but not this user: no later attempt of the session succeeds."""


class Corrupt(ArklineError):
    code = codes.CORRUPT


class RecordOfMerritt(Corrupt):
    """A znode has the state of a batch or job of Merritt's own queue, which arkline does not take over."""


class Unwritable(ArklineError):
    """No attempt at this change can succeed before a person acts; nothing was written."""

    code = codes.UNWRITABLE


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


class Contended(Refused):
    """A shared value, such as a counter, changed since it was read: read it and try again."""


class Outdated(Refused):
    """A reservation was made from a sum that has changed since: count the free space again."""


class Taken(Refused):
    """The name belongs to another record already."""


class Ambiguous(ArklineError):
    code = codes.OUTCOME_UNKNOWN
