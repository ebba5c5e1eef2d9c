"""The real servers, started once for a test run, and settings that point to them."""

import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from entrypoints.stack.services import ServerMissing
from operations.site import Site
from pipeline.settings import Settings
from tests.servers import redis as redis_servers
from tests.servers import zookeeper as zookeeper_servers
from tests.servers.proxy import Proxy
from tests.support import folders, nightly
from tests.support.requirements import unavailable
from tools.bootstrap import keep_bytecode
from zkstate.care.audit import audit
from zkstate.connection.session import Session, connect

if TYPE_CHECKING:
    from tests.servers import postgresql, s3

pytest_plugins = ("tests.support.loopback", "tests.support.repositories", "tests.support.site")

LONG_EXAMPLES = 2000
"""Of each property in a round of `./dev fuzz`."""

PROJECT = Path(__file__).parent.parent
PROFILES = PROJECT / "examples" / "profiles"

for name in [each for each in os.environ if each.startswith("ARKLINE_") and each != "ARKLINE_SCHEMAS"]:
    del os.environ[name]  # a developer's running stack must not leak into the tests

# a developer's logins must not, either
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"

for name in ("COLUMNS", "LINES", "PYTHONUNBUFFERED"):
    # readline leaves a width to child processes, although what is piped has none; and a child that forgets to
    # flush must not be saved by the developer's shell
    os.environ.pop(name, None)

if bytecode := keep_bytecode():
    # this process has read the variable already, and would spend ten seconds on the assertions of the tests
    sys.dont_write_bytecode, sys.pycache_prefix = False, bytecode


# no limit of time per example: a loaded machine must not fail a test
hypothesis.settings.register_profile("short", deadline=None)
hypothesis.settings.register_profile("long", deadline=None, max_examples=LONG_EXAMPLES)
hypothesis.settings.load_profile("short")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # so a shell starts a background job of a script, and a child process would never hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end: searches for garbage would go through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped, and why, however quiet the rest is."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Copies of the project had bytecode of their own."""
    if sys.pycache_prefix and not hasattr(session.config, "workerinput"):
        shutil.rmtree(sys.pycache_prefix + tempfile.gettempdir(), ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test for its folder, refuse one that needs more servers than that allows, order them, and
    leave the long forms to the nightly run."""
    items.sort(key=lambda item: folders.turn(item.path))
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        fixtures = getattr(item, "fixturenames", ())
        if reason := folders.refusal(folder, fixtures):
            raise pytest.UsageError(f"{item.nodeid}: {reason}")
        for marker in folders.markers(folder, fixtures):
            item.add_marker(marker)
    if not any("[" in asked for asked in config.args) and (unproven := nightly.without_short_form(items)):
        raise pytest.UsageError(f"no case of these tests always runs: {', '.join(unproven)}")
    if left_out := nightly.left_out(items):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if (process := getattr(config, "workerinput", None)) is not None:
        items[:] = folders.distributed(items, lambda item: item.path, process["workercount"])


CLOSING = 15.0
"""Seconds in which a request that was still answered may close its connection, on a loaded machine."""


def _connections() -> int:
    """How many connections of kazoo have a thread."""
    return sum("zk_loop" in thread.name for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _every_connection_is_closed() -> Iterator[None]:
    """Kazoo's threads draw random numbers: hypothesis takes this for a strategy that is not repeatable.

    They are counted, because a module's session connects anew where ZooKeeper did not answer for long.
    """
    before = _connections()
    yield
    deadline = time.monotonic() + CLOSING
    while (left := _connections() - before) > 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left <= 0, "the test leaves a connection to ZooKeeper open: drop its session"


DESCRIPTORS = 100
"""Further open files of the test process after which a test is followed by a search for garbage: in a process
of so many objects Python does that rarely, and the common limit is 1,024. A search takes up to a second."""


def pytest_collection_finish() -> None:
    """What is loaded by now stays: no search for garbage has to look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def _open_after_last_search() -> list[int]:
    return [0]


@pytest.fixture(autouse=True)
def _no_open_files_pile_up(_open_after_last_search: list[int]) -> Iterator[None]:
    yield
    if len(os.listdir("/dev/fd")) > _open_after_last_search[0] + DESCRIPTORS:  # noqa: PTH208 - each test
        gc.collect()
        _open_after_last_search[0] = len(os.listdir("/dev/fd"))  # noqa: PTH208


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zookeeper_servers.Server]:
    """A ZooKeeper server: `.hosts`; `.process` to suspend, kill and `.start()` again."""
    try:
        with zookeeper_servers.running(tmp_path_factory.mktemp("zookeeper"), tick=500) as server:
            yield server
    except ServerMissing as error:
        unavailable(error)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis_servers.Server]:
    """A Redis or Valkey server: `.url`; `.process` to suspend, kill and `.start()` again."""
    try:
        with redis_servers.running(tmp_path_factory.mktemp("redis")) as server:
            yield server
    except ServerMissing as error:
        unavailable(error)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["s3.Server"]:
    """A server that speaks S3: `.settings()` makes a bucket."""
    from tests.servers.s3 import running  # boto3 takes half a second, which most tests need not spend

    with running(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator["postgresql.Server"]:
    """A PostgreSQL server: `.new_schema()` for a test's own tables; `.kill()` and `.start()` again."""
    from tests.servers import postgresql

    try:
        with postgresql.running() as server:
            yield server
    except postgresql.PostgresqlMissing as missing:
        unavailable(missing)


def _settings(
    zookeeper: zookeeper_servers.Server, redis_server: redis_servers.Server, home: Path
) -> Settings:
    own = f"t{uuid.uuid4().hex}"
    return Settings(
        zk_hosts=zookeeper.hosts,
        zk_root=f"/{own}",
        zk_session_timeout=10,  # the longest that the test servers grant: a busy machine may stop a process
        broker_url=redis_server.url,
        broker_prefix=f"{own}:",
        home=home,
        profiles=PROFILES,
        allow_networks="127.0.0.0/8",
    )


@pytest.fixture
def settings(
    zookeeper: zookeeper_servers.Server, redis_server: redis_servers.Server, tmp_path: Path
) -> Settings:
    """Settings with a root in ZooKeeper, a prefix in Redis and a folder of this test's own."""
    return _settings(zookeeper, redis_server, tmp_path)


@pytest.fixture(scope="module")
def module_settings(
    zookeeper: zookeeper_servers.Server,
    redis_server: redis_servers.Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Settings:
    """Like `settings`, for all tests of a module."""
    return _settings(zookeeper, redis_server, tmp_path_factory.mktemp("module"))


@pytest.fixture(scope="module")
def record(module_settings: Settings) -> Iterator[Session]:
    """A session for all tests of a module."""
    with connect(module_settings) as opened:
        yield opened


@pytest.fixture
def zookeeper_proxy(zookeeper: zookeeper_servers.Server) -> Iterator[Proxy]:
    """A proxy before ZooKeeper: `.hosts` for the client, `.swallow()`, `.cut()`, `.refuse()`."""
    with Proxy(zookeeper.port) as proxy:
        yield proxy


@pytest.fixture
def shaky(settings: Settings, zookeeper_proxy: Proxy) -> Iterator[Session]:
    """A session that goes through the proxy."""
    with connect(settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})) as opened:
        yield opened


@pytest.fixture
def session(settings: Settings) -> Iterator[Session]:
    """A session below this test's root; the auditor must have nothing to say at the end."""
    with connect(settings) as opened:
        yield opened
        assert [str(finding) for finding in audit(opened)] == []


@pytest.fixture
def site(session: Session, settings: Settings) -> Site:
    return Site(settings, session)


@pytest.fixture
def alone(settings: Settings, tmp_path: Path) -> Settings:
    """The settings of a machine that has neither ZooKeeper nor Redis nor the site's folders."""
    return settings.model_copy(
        update={"zk_hosts": "127.0.0.1:1", "broker_url": "redis://127.0.0.1:1/0", "home": tmp_path / "away"}
    )
