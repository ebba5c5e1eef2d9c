"""The error codes, for people and programs to look up: each with its status, kind and meaning.

A code is given where the error is raised; an error class exists where code must tell errors apart. Codes are
stable: none is removed, and none changes its status or kind. `/v1/errors` and docs/api/errors.md show this
table.
"""

from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    """An error's meaning for the caller; the command line maps it to an exit code."""

    REFUSED = "refused"
    """The request cannot be carried out as it was made: change it."""
    UNREACHABLE = "unreachable"
    """A service does not answer: the same request may succeed later."""
    DAMAGED = "damaged"
    """Storage does not have the bytes that were stored."""
    INTERRUPTED = "interrupted"
    """The caller asked to stop."""
    OTHER = "other"


REFUSED, UNREACHABLE, DAMAGED, INTERRUPTED, OTHER = ErrorKind


@dataclass(frozen=True)
class Code:
    name: str
    status: int | None
    """HTTP status of the API's problem; None: the problem has the code of the error's class or its base."""
    kind: ErrorKind
    meaning: str


# fmt: off
ALREADY_WORKING = Code("already-working", 429, REFUSED,
    "The caller has sent a second request of this kind before the first was answered.")
BUSY = Code("busy", 423, OTHER, "Another attempt holds the lock; nothing was written.")
CORRUPT = Code("corrupt", 500, OTHER, "A znode's content cannot be read; the message has its path.")
CROSS_SITE_REQUEST = Code("cross-site-request", 403, REFUSED,
    "A request with the cookie that does not come from the site's own pages; nothing was changed.")
DAMAGED_OBJECT = Code("damaged-object", 500, DAMAGED,
    "Storage has the object, but a part of it is missing or has other bytes than were stored.")
DRAFT_CHANGED = Code("draft-changed", 412, REFUSED,
    "The draft has another version than the request was made on; nothing of the request was saved.")
DRAFT_INCOMPLETE = Code("draft-incomplete", 409, REFUSED,
    "Files of the draft have not arrived, or are not as declared; send those that `errors` names.")
DRAFT_OUTDATED = Code("draft-outdated", 409, REFUSED,
    "An object has got a version since the depositor agreed to the next one; nothing was submitted.")
DRAFT_REFUSED = Code("draft-refused", 422, REFUSED, "The draft cannot be deposited as it is.")
DRAFT_SUBMITTED = Code("draft-submitted", 409, REFUSED,
    "A batch was made of the draft, which cannot be changed any more.")
EMBARGOED = Code("embargoed", 403, REFUSED,
    "The files of the object are under an embargo; until it ends, operators alone get them.")
ERROR = Code("error", 500, OTHER, "An error that has no code of its own; the message says what is wrong.")
FORBIDDEN = Code("forbidden", 403, REFUSED, "The principal has no right to this; nothing was changed.")
ILLEGAL_TRANSITION = Code("illegal-transition", 409, REFUSED,
    "The table has no row for this state and event, or the row's condition is not met.")
INVALID_TOKEN = Code("invalid-token", 401, REFUSED,
    "The text is no valid token; the message does not repeat it.")
KEY_REUSED = Code("key-reused", 422, REFUSED, "The idempotency key belongs to another submission.")
MISSING = Code("missing", 404, REFUSED, "There is no such batch or job.")
MOVED = Code("moved", 412, OTHER,
    "The job or batch has changed since the version that the caller saw; nothing was changed.")
NO_DRAFT = Code("no-draft", 404, REFUSED, "The upload has no draft, or one that cannot be read.")
NO_SUCH_PLAN = Code("no-such-plan", 404, REFUSED,
    "The token is of no dry run of this caller, or too old; nothing was changed.")
NO_SUCH_SUBSCRIPTION = Code("no-such-subscription", 404, REFUSED,
    "There is no such subscription of the caller, or the code of a link is not valid.")
NO_SUCH_TOKEN = Code("no-such-token", 404, REFUSED, "There is no token of this name.")
NO_THREAD_FREE = Code("no-thread-free", 503, UNREACHABLE,
    "As many requests of this kind are answered as the process has threads for; a later one may succeed.")
NOT_AN_ARK = Code("not-an-ark", 422, REFUSED, "The text is not an ARK.")
NOT_AUTHENTICATED = Code("not-authenticated", 401, REFUSED, "The request has no token.")
OFFSET_DIFFERS = Code("offset-differs", 409, REFUSED,
    "The upload does not continue where the request says; HEAD has its Upload-Offset.")
OUTCOME_UNKNOWN = Code("outcome-unknown", 503, OTHER,
    "The connection was lost before the answer came: the transaction may or may not have happened.")
PROFILE_ERROR = Code("profile-error", 422, REFUSED,
    "A profile, or the folder of profiles, that an operator must correct; `faults` lists the faults.")
RANGE_NOT_SATISFIABLE = Code("range-not-satisfiable", 416, REFUSED,
    "The file ends before the requested range begins; `Content-Range` has its size.")
RECORD_FULL = Code("record-full", 503, UNREACHABLE,
    "ZooKeeper has as many jobs as its memory is meant for; the same submission may succeed later.")
RECORD_OUTDATED = Code("record-outdated", 503, UNREACHABLE,
    "ZooKeeper has older data than it had; an operator has to restore the record.")
RETRIEVALS_FULL = Code("retrievals-full", 503, UNREACHABLE,
    "The server sends as many files as it may at a time; the same request may succeed later.")
SERVER_LIMIT = Code("server-limit", 507, OTHER,
    "The change is larger than ZooKeeper's servers accept; nothing was written. They need a larger limit.")
SERVICE_UNREACHABLE = Code("service-unreachable", 503, UNREACHABLE,
    "A required server does not answer; the message has its address.")
STALE = Code("stale", 409, OTHER, "The record has changed since it was read; nothing was written.")
STEP_FAILED = Code("step-failed", 500, OTHER,
    "The step failed; a transient failure is retried before the job fails.")
TOO_BIG = Code("too-big", 413, REFUSED,
    "The change is larger than the record accepts; nothing was sent. To try it again cannot help.")
TOO_MANY_AT_ONCE = Code("too-many-at-once", 503, UNREACHABLE,
    "The server has as many requests in progress as it may have; a later one may succeed.")
TOO_MANY_LOGINS = Code("too-many-logins", 503, UNREACHABLE,
    "As many programs wait for an answer to their login as may; a retry may succeed later.")
TOO_MANY_PROOFS = Code("too-many-proofs", 503, UNREACHABLE,
    "The limit of waiting proofs, of the site or of the caller, is reached; a retry may succeed later.")
TOO_MANY_RECHECKS = Code("too-many-rechecks", 503, UNREACHABLE,
    "As many objects wait to be checked again as may; a retry may succeed later.")
TOO_MANY_REQUESTS = Code("too-many-requests", 429, REFUSED,
    "The token has sent more requests than the limit; `Retry-After` says when to continue.")
TOO_MANY_RETRIEVALS = Code("too-many-retrievals", 429, REFUSED,
    "The caller downloads as many files at a time as one may; `Retry-After` says when to try again.")
TOO_MANY_STREAMS = Code("too-many-streams", 503, UNREACHABLE,
    "The server has as many streams as it serves; the same request may succeed later.")
TOO_MANY_WRONG_TOKENS = Code("too-many-wrong-tokens", 429, REFUSED,
    "The address has sent more wrong tokens than the limit; `Retry-After` says when to try again.")
TOOK_TOO_LONG = Code("took-too-long", 503, UNREACHABLE, "The work was not done in time, and was ended.")
UPLOAD_BUSY = Code("upload-busy", 423, UNREACHABLE, "Another request is writing the same file.")
UPLOAD_CONFLICT = Code("upload-conflict", 409, REFUSED,
    "The upload has a file of this name with other content.")
UPLOAD_MISSING = Code("upload-missing", 404, REFUSED,
    "There is no such upload, or it belongs to somebody else.")
UPLOAD_QUOTA = Code("upload-quota", 507, REFUSED,
    "The owner has as many uploads, or bytes in them, as one may have.")
UPLOAD_REFUSED = Code("upload-refused", 422, REFUSED,
    "The bytes are not those that were declared; nothing of them is stored.")
UPLOAD_TOO_LARGE = Code("upload-too-large", 413, REFUSED, "The file has more bytes than are accepted.")
UPLOADS_FULL = Code("uploads-full", 507, UNREACHABLE,
    "The folder of uploads has no room; the same upload may succeed later.")
USAGE_REFUSED = Code("usage-refused", 422, REFUSED, "The request cannot be carried out as it was made.")

# Requests that never reach an operation
BAD_REQUEST = Code("bad-request", 400, REFUSED, "The request cannot be read.")
BODY_TOO_LARGE = Code("body-too-large", 413, REFUSED, "The body is larger than the server accepts.")
INTERNAL_ERROR = Code("internal-error", 500, OTHER,
    "An unexpected error of the server, which is in its log under the request id.")
INVALID_REQUEST = Code("invalid-request", 422, REFUSED,
    "A parameter or a field of the body is not valid; `errors` says which.")
METHOD_NOT_ALLOWED = Code("method-not-allowed", 405, REFUSED, "The path has no such method.")
NO_SUCH_PATH = Code("no-such-path", 404, REFUSED, "The server has no such path.")
UNSUPPORTED_MEDIA_TYPE = Code("unsupported-media-type", 415, REFUSED,
    "The body is not in a format that the path accepts.")

# Errors of the command line, and errors that the API reports under a more general code
EXPORT_INTERRUPTED = Code("export-interrupted", None, INTERRUPTED,
    "The caller stopped the export: there is no bag.")
LOCK_LOST = Code("lock-lost", None, UNREACHABLE,
    "A lock is gone that its holder did not release: the session was lost, or another record answers.")
NOT_PUSHED = Code("not-pushed", None, UNREACHABLE,
    "ZooKeeper accepted a watch and does not report a change that it covers.")
PROCESS_DIED = Code("process-died", None, OTHER,
    "A process ended unexpectedly; the message ends with the last lines of its log.")
REMOTE_DAMAGE = Code("remote-damage", None, DAMAGED,
    "The site's storage does not have the bytes that were stored.")
REMOTE_FAULT = Code("remote-fault", None, OTHER,
    "The site failed to answer the request, or the job or batch has moved.")
REMOTE_INTERRUPTION = Code("remote-interruption", None, INTERRUPTED,
    "The caller stopped the work; the message says what was done.")
SERVICE_DOWN = Code("service-down", None, UNREACHABLE,
    "A shared service does not work: the job waits until the service works, and no try is counted.")
STACK_FAILED = Code("stack-failed", None, OTHER,
    "The stack in the background did not become ready; the message names its log.")
STACK_RUNNING = Code("stack-running", None, REFUSED, "A stack already runs in this folder.")
STOPPED = Code("stopped", None, INTERRUPTED, "The caller asked to stop; the message says what was done.")
STOP_REQUESTED = Code("stop-requested", None, INTERRUPTED,
    "A signal stopped the stack while it was starting or running.")
TRANSFER_DAMAGED = Code("transfer-damaged", None, OTHER,
    "The site received other bytes than were sent; nothing was submitted.")
UNWRITABLE = Code("unwritable", None, OTHER,
    "A value that could not be read again was about to be written; nothing was changed.")
WENT_BACK = Code("went-back", None, UNREACHABLE,
    "ZooKeeper has less than this process has seen, and so refuses its session for ever.")
# fmt: on

CODES = {code.name: code for code in tuple(globals().values()) if isinstance(code, Code)}
