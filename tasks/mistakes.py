"""A mistake in the code, or a damaged znode, as a failure of the work that met it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipeline.outcome import StepFailed
from tasks.logs import log
from tasks.meanings import Meaning, meaning_of
from zkstate.errors import Corrupt

_MISTAKES = (Meaning.UNEXPECTED, Meaning.DAMAGED)


def is_mistake(error: Exception) -> bool:
    return meaning_of(error) in _MISTAKES


@contextmanager
def mistakes_as(
    unexpected: Callable[[str], StepFailed], damaged: Callable[[str], StepFailed]
) -> Iterator[None]:
    """Raise `unexpected`, or `damaged` for a znode, with a message, in place of a mistake."""
    try:
        yield
    except Exception as error:
        if not is_mistake(error):
            raise
        log().exception("work failed unexpectedly")
        if isinstance(error, Corrupt):
            raise damaged(str(error)) from error
        raise unexpected(f"unexpected {type(error).__name__}: {error}") from error
