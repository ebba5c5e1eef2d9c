"""What the options of the suites name: a module that the site wrote, and a name in it."""

import importlib
import sys
from typing import Any

import pytest


def subject(config: pytest.Config, kind: str) -> Any:
    """What the option names; pytest.UsageError if there is no such thing."""
    name_of_option = option(kind)
    module, _, name = str(config.getoption(name_of_option)).partition(":")
    here = str(config.invocation_params.dir)
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise pytest.UsageError(f"{name_of_option}={module}:{name} cannot be loaded: {error}") from error


def option(kind: str) -> str:
    return f"--arkline-{kind}"
