"""The version of arkline, `python -m arkline`, and the application of `celery -A arkline`."""

from importlib.metadata import version
from typing import Any

from entrypoints.cli.main import main

__version__ = version("arkline")


def __getattr__(name: str) -> Any:
    """`app`, for `celery -A arkline`."""
    if name != "app":
        raise AttributeError(name)
    from tasks.app import app  # the command line needs no Celery

    return app


if __name__ == "__main__":
    main()
