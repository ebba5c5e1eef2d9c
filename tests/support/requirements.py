"""Requirements that this machine lacks: the test is skipped on a laptop, and fails in CI.

A plain `pytest.skip` is left for what nobody can install: another system, a kernel that forbids it, root.
"""

import os
import shutil
from typing import NoReturn

import pytest


def unavailable(reason: object) -> NoReturn:
    """`reason` names what is missing and how to get it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (CI=true: a test that cannot run has failed)", pytrace=False)
    pytest.skip(str(reason))


def program(name: str, package: str) -> str:
    """The path of a program of the system; a plain user's PATH lacks the folders of programs for root."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    return found or unavailable(f"{name} was not found: apt-get install {package}")
