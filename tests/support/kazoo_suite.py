"""A plugin of pytest, in the environment of kazoo's own tests: they get the direct client for kazoo's.

Imports nothing else of the project: that environment has kazoo alone. `tests/e2e/test_kazoo.py` starts it.
"""

from pathlib import Path

import kazoo.client
import pytest

from zkstate.direct import Client

EXCEPTIONS = Path(__file__).with_name("kazoo_exceptions.txt")


def pytest_configure() -> None:
    if not Client().is_direct:
        raise pytest.UsageError(f"kazoo {kazoo.__version__} would be tested with its own connection")
    kazoo.client.KazooClient = Client


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that `fails` and passes fails the run; a test that `varies` may do both."""
    for item in items:
        if found := exceptions().get(item.nodeid.split("::", 1)[-1].replace("::", ".")):
            kind, reason = found
            item.add_marker(pytest.mark.xfail(reason=reason, strict=kind == "fails"))


def exceptions() -> dict[str, tuple[str, str]]:
    """Class and name of a test -> `fails` or `varies`, and the reason."""
    lines = [line for line in EXCEPTIONS.read_text().splitlines() if line and not line.startswith("#")]
    return {name: (kind, reason) for kind, name, reason in (line.split(maxsplit=2) for line in lines)}
