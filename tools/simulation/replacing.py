"""Names of modules and classes that have other values for a block."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

Put = Callable[[Any, str, Any], None]
"""Gives a name of a module or a class another value, until the end of the block."""


@contextmanager
def replacing() -> Iterator[Put]:
    with ExitStack() as replaced:

        def put(where: Any, name: str, value: Any) -> None:
            replaced.callback(setattr, where, name, vars(where)[name])
            setattr(where, name, value)

        yield put
