"""kazoo's own tests pass with the direct client, but for those of `tests/support/kazoo_exceptions.txt`.

`NIGHTLY=1 ./dev test tests/e2e/test_kazoo.py` runs all of them that need no other program, in some ten
minutes. They have an environment of their own, which is kept in var/kazoo_tests.
"""

import hashlib
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from entrypoints.stack.child import free_ports
from tests.servers.zookeeper import tls_classpath
from tests.support.nightly import NIGHTLY
from tests.support.polling import eventually
from tests.support.requirements import unavailable
from tools.bootstrap import installer_environment
from tools.checkout import PROJECT, VAR

LOCK = PROJECT / "tools" / "kazoo_tests.lock"

SHORT = ("connection", "counter", "interrupt")
REST = (
    "barrier",
    "cache",
    "client",
    "election",
    "lease",
    "lock",
    "partitioner",
    "party",
    "queue",
    "watchers",
)
"""Modules of kazoo's tests; the others test its other handlers, or functions without a server."""

JAVA = "-Dzookeeper.admin.enableServer=false -Dzookeeper.forceSync=no -XX:TieredStopAtLevel=1 -Xmx192m"


@pytest.fixture(scope="session")
def python() -> Path:
    """The Python of an environment with the locked kazoo and what its tests import."""
    key = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = VAR / "kazoo_tests" / key
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes")
        done = subprocess.run(
            [python, "-m", "pip", "install", *options, "-r", LOCK],
            env=installer_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            assert "HASH" not in done.stderr, done.stderr
            unavailable(f"kazoo's tests could not be installed: {done.stderr.strip().splitlines()[-1]}")
        (folder / "complete").touch()
    return python


PORTS = 25
"""Each of the three servers of kazoo's tests has five ports: from the offset on, or 10 or 20 later."""


def _free_range() -> int | None:
    """The first of PORTS free ports in a row, if those after a free one are free, too."""
    (first,) = free_ports(1)
    with ExitStack() as bound, suppress(OSError):
        for port in range(first, first + PORTS):
            bound.enter_context(socket.create_server(("127.0.0.1", port)))
        return first
    return None


@pytest.mark.timeout(3600)
def test_the_tests_of_kazoo_pass_with_the_direct_client(python: Path, tmp_path: Path) -> None:
    names = (*SHORT, *REST) if NIGHTLY else SHORT
    done = subprocess.run(
        [
            *(python, "-m", "pytest", "-p", "tests.support.kazoo_suite", "-p", "no:cacheprovider"),
            *("-o", "addopts=", "-o", "log_cli=false", "-q", "-rfExX", "--tb=short", "--timeout=180"),
            *("--show-capture=no", "--pyargs", *(f"kazoo.tests.test_{name}" for name in names)),
        ],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))},
            "JAVA_TOOL_OPTIONS": JAVA,
            "PYTHONPATH": str(PROJECT),
            "ZOOKEEPER_CLASSPATH": tls_classpath(),
            "ZOOKEEPER_PORT_OFFSET": str(eventually(_free_range)),
            "ZOOKEEPER_VERSION": "3.8",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert done.returncode == 0, "\n".join(done.stdout.splitlines()[-80:])
    assert " passed" in done.stdout
