"""Names of modules and classes that have other values for a block."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Put = Callable[[Any, str, Any], None]
"""Gives a name of a module or a class another value, until the end of the block."""


@contextmanager
def replacing() -> Iterator[Put]:
    before: list[tuple[Any, str, Any]] = []

    def put(where: Any, name: str, value: Any) -> None:
        before.append((where, name, vars(where)[name]))
        setattr(where, name, value)

    try:
        yield put
    finally:
        for where, name, value in reversed(before):
            setattr(where, name, value)
