"""Modules that load when one of their names is used, so that a command waits only for what it needs."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

_DEFERRED = ("entrypoints", "kombu", "operations", "pipeline", "rich", "tasks", "zkstate")


class _DeferringFinder(MetaPathFinder):
    """Finds the modules of these packages as usual, and lets them load when one of their names is used."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or fullname.partition(".")[0] not in _DEFERRED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


_FINDER = _DeferringFinder()


@contextmanager
def deferring() -> Iterator[None]:
    """Modules that are imported within the block load when they are used, until `load_all` is called."""
    sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        _end()


def load_all() -> None:
    """Load what is deferred, and defer no more: two threads that use a module at once would load it twice."""
    _end()
    for module in tuple(sys.modules.values()):
        getattr(module, "__file__", None)


def _end() -> None:
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
