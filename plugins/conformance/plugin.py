"""The plugin of pytest that adds the conformance suites for the backends that the command line names.

Rule: pytest loads this module wherever arkline is installed, so it imports nothing of arkline unless one of
its options is given.
"""

from pathlib import Path

import pytest

from plugins.conformance.given import option, subject

SUITES = {
    "storage": ("test_storage_versions", "test_storage_reading", "test_storage_faults"),
    "inventory": ("test_inventory",),
    "minter": ("test_minter",),
    "login": ("test_login",),
    "check": ("test_check",),
}
"""The kind of a backend, as its option has it -> the modules with its tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("arkline", "conformance suites of arkline for a site's own backends")
    for kind in SUITES:
        group.addoption(
            option(kind),
            metavar="MODULE:NAME",
            help=f"test this {kind}; plugins.conformance.subjects says what NAME is",
        )
    group.addoption(
        "--arkline-every",
        type=int,
        default=1,
        metavar="N",
        help="let a writer die at every Nth moment alone: a quick run of the suite of a storage",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Without a path on the command line, only the suites run."""
    kinds = [kind for kind in SUITES if config.getoption(option(kind))]
    if not kinds:
        return
    for kind in kinds:
        subject(config, kind)  # a wrong name is an error of the command line
    from plugins.conformance import fixtures

    config.pluginmanager.register(fixtures, "arkline-fixtures")
    modules = [str(Path(__file__).with_name(f"{name}.py")) for kind in kinds for name in SUITES[kind]]
    others = config.args if config.getoption("file_or_dir") else []
    config.args = [*others, *(module for module in modules if module not in others)]
