"""The plugin of pytest that adds the conformance suites for the backends that the command line names.

Rule: pytest loads this module wherever arkline is installed, so it imports nothing of arkline unless one of
its options is given.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

SUITES = {
    "storage": ("test_storage_versions", "test_storage_reading", "test_storage_faults"),
}
"""The kind of a backend, as its option has it -> the modules with its tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("arkline", "conformance suites of arkline for a site's own backends")
    for kind in SUITES:
        group.addoption(
            _option(kind),
            metavar="MODULE:NAME",
            help=f"test this {kind}; plugins.conformance.subjects says what NAME is",
        )


def pytest_configure(config: pytest.Config) -> None:
    """Without a path on the command line, only the suites run."""
    kinds = [kind for kind in SUITES if config.getoption(_option(kind))]
    if not kinds:
        return
    for kind in kinds:
        subject(config, kind)  # a wrong name is an error of the command line
    from plugins.conformance import fixtures

    config.pluginmanager.register(fixtures, "arkline-fixtures")
    modules = [str(Path(__file__).with_name(f"{name}.py")) for kind in kinds for name in SUITES[kind]]
    others = config.args if config.getoption("file_or_dir") else []
    config.args = [*others, *(module for module in modules if module not in others)]


def subject(config: pytest.Config, kind: str) -> Any:
    """What the option names; pytest.UsageError if there is no such thing."""
    option = _option(kind)
    module, _, name = str(config.getoption(option)).partition(":")
    here = str(config.invocation_params.dir)
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"{option}={module}:{name} cannot be loaded: {error}") from error


def _option(kind: str) -> str:
    return f"--arkline-{kind}"
