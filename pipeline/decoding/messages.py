"""What a decoding process sends back: a line of JSON for each result, and one for how it ended."""

import json
import struct
from collections.abc import Callable
from typing import Any

from pipeline.outcome import Later, StepFailed, WaitKind
from pipeline.states import FailureKind

ITEM, ALIVE, DONE, MEMORY, ENDED = "item", "alive", "done", "memory", "ended"
OPEN = "open"
"""The protections that the kernel has not given to this process."""
ADMIT = "admit"
"""A question: may so many bytes be written? The worker answers with the bytes that may be."""

ANSWER = struct.Struct(">Q")
_FAILED, _LATER, _OS_ERROR, _MISTAKE = "failed", "later", "os-error", "mistake"


class DecoderBroken(RuntimeError):
    """A mistake in the code of a decoder, with its traceback."""


def line(kind: str, *values: Any) -> bytes:
    return json.dumps([kind, *values], separators=(",", ":")).encode() + b"\n"


def of_error(error: BaseException, traceback: Callable[[], str]) -> bytes:
    match error:
        case StepFailed():
            return line(_FAILED, error.kind, error.message, error.retry_after)
        case Later():
            return line(_LATER, error.kind, error.name, error.message, error.wait)
        case OSError():
            return line(_OS_ERROR, error.errno, error.strerror or str(error), str(error.filename or ""))
        case _:
            return line(_MISTAKE, traceback())


def error_of(kind: str, values: list[Any]) -> Exception:
    """The error that `of_error` wrote."""
    match kind:
        case "failed":
            return StepFailed(FailureKind(values[0]), values[1], values[2])
        case "later":
            return Later(WaitKind(values[0]), values[1], values[2], values[3])
        case "os-error":
            return OSError(values[0], values[1], *filter(None, values[2:]))
        case _:
            return DecoderBroken(values[0] if values else kind)
