"""Requirements that this machine lacks: the test is skipped on a laptop, and fails in CI.

A plain `pytest.skip` is left for what nobody can install: another system, a kernel that forbids it, root.
"""

import os
from typing import NoReturn

import pytest


def unavailable(reason: object) -> NoReturn:
    """`reason` names what is missing and how to get it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (CI=true: a test that cannot run has failed)", pytrace=False)
    pytest.skip(str(reason))
