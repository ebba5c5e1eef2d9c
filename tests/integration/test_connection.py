"""A thread sends its own requests and reads its own answers; no answer is lost or taken for another's."""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from kazoo.exceptions import KazooException, NoNodeError

from pipeline.settings import Settings
from tests.servers.proxy import Proxy
from zkstate import paths
from zkstate.connection.locks import take
from zkstate.connection.session import CLOSE_TIME, EXIT_UNCLOSED, Session, connect
from zkstate.connection.transaction import Put, commit

PATH = "/ids/asked"

SHORT = {"zk_session_timeout": 4}
"""Some tests wait for the end of a session."""


class Interrupted(Exception):
    """Raised by the handler of a signal, as at the end of an attempt."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update=SHORT)


def test_the_thread_of_kazoo_sleeps_while_a_thread_reads_its_answers(
    settings: Settings, zookeeper_proxy: Proxy
) -> None:
    # an answer that comes before its thread waits for it wakes that of kazoo: these take a moment
    zookeeper_proxy.delay(0.03)
    session = connect(settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts}))
    try:
        session.ensure_node(PATH, b"0")
        before = _wake_ups(session)
        for _ in range(40):
            session.get(PATH)

        # twice as many if that thread sends and reads
        assert _wake_ups(session) - before < 20
    finally:
        session.close()


def _wake_ups(session: Session) -> int:
    thread = session.zk._connection._connection_routine.native_id
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary"))


def test_threads_that_ask_at_once_get_their_own_answers(session: Session) -> None:
    nodes = [f"{PATH}-{number}" for number in range(8)]
    for node in nodes:
        session.ensure_node(node, node.encode())

    def read_often(node: str) -> set[bytes]:
        single = {session.get(node)[0] for _ in range(100)}
        many = {found[0] for _ in range(20) for found in session.get_many([node] * 5) if found}
        return single | many

    with ThreadPoolExecutor(len(nodes)) as pool:
        assert list(pool.map(read_often, nodes)) == [{node.encode()} for node in nodes]


def test_requests_reach_the_server_in_the_order_in_which_they_were_made(session: Session) -> None:
    session.ensure_node(PATH, b"0")
    puts = [partial(session.zk.set_async, PATH, str(number).encode()) for number in range(50)]
    *answers, read = session.zk.together(
        lambda: [ask() for ask in (*puts, partial(session.zk.get_async, PATH))]
    )

    assert read.get(timeout=30)[0] == b"49"
    assert [answer.get(timeout=30).version for answer in answers] == list(range(1, 51))


def test_a_fault_between_requests_that_are_sent_together_spoils_none(session: Session) -> None:
    session.ensure_node(PATH, b"0")
    reads = []

    def ask() -> None:
        reads.append(session.zk.get_async(PATH))
        raise Interrupted

    with pytest.raises(Interrupted):
        session.zk.together(ask)

    assert reads[0].get(timeout=30)[0] == b"0"
    assert session.get(PATH)[0] == b"0"


def test_an_answer_larger_than_one_piece_is_read_whole(session: Session) -> None:
    content = bytes(range(256)) * 2000
    session.ensure_node(PATH, content)

    assert [found[0] for found in session.get_many([PATH] * 4) if found] == [content] * 4


def test_a_watch_fires_while_nobody_waits_for_an_answer(session: Session) -> None:
    changed = threading.Event()
    session.ensure_node(PATH)
    session.ask(session.zk.get_async, PATH, watch=lambda _: changed.set())

    session.zk.set_async(PATH, b"1")

    assert changed.wait(30)


def test_a_thread_that_waits_for_long_gets_its_answer_from_the_thread_of_kazoo(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    session.ensure_node(PATH, b"0")
    zookeeper_proxy.delay(0.3)

    assert shaky.get(PATH)[0] == b"0"


def test_the_answer_to_a_command_is_read_to_its_end(shaky: Session, zookeeper_proxy: Proxy) -> None:
    zookeeper_proxy.trickle(0.001)

    assert "java.version=" in shaky.zk.command(b"envi")


def test_a_command_that_is_not_answered_leaves_no_socket_open(
    shaky: Session, zookeeper_proxy: Proxy, recwarn: pytest.WarningsRecorder
) -> None:
    zookeeper_proxy.partition()

    with pytest.raises(TimeoutError):
        shaky.zk.command(b"envi")
    zookeeper_proxy.cut()
    assert shaky.wait_connected(time.monotonic() + 30)

    gc.collect()
    assert not [one for one in recwarn if one.category is ResourceWarning]


def test_a_cut_connection_ends_what_waits_and_a_new_one_answers(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    session.ensure_node(PATH, b"0")
    for _ in range(5):
        zookeeper_proxy.swallow()
        answers = [shaky.zk.get_async(PATH) for _ in range(3)]
        assert zookeeper_proxy.swallowed.wait(30)
        zookeeper_proxy.cut()
        for answer in answers:
            with pytest.raises(KazooException):
                answer.get(timeout=30)
        assert shaky.get(PATH)[0] == b"0"


def test_many_threads_outlive_cut_connections(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    nodes = [f"{PATH}-{number}" for number in range(4)]
    for node in nodes:
        session.ensure_node(node, node.encode())
    done = threading.Event()

    def read_on(node: str) -> set[bytes]:
        found = set()
        while not done.is_set():
            found.add(shaky.get(node)[0])
        return found

    with ThreadPoolExecutor(len(nodes)) as pool:
        reading = [pool.submit(read_on, node) for node in nodes]
        for _ in range(5):
            connections = shaky.connections
            zookeeper_proxy.cut()
            _wait_for(lambda known=connections: shaky.connections > known)  # type: ignore[misc]
        done.set()
        assert [future.result(timeout=30) for future in reading] == [{node.encode()} for node in nodes]


def _wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


TOOLS = {"coverage", "hypothesis", "weakref.py"}


@contextmanager
def signals(pause: float) -> Iterator[None]:
    """Exceptions in the main thread, at any line of the block, `pause` seconds apart."""

    def interrupt(_number: int, frame: FrameType | None) -> None:
        if _in_tools(frame):
            signal.setitimer(signal.ITIMER_REAL, 0.0001)
        else:
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, pause)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _in_tools(frame: FrameType | None) -> bool:
    """Whether coverage runs, which would keep its lock for ever, or a callback of the garbage collector (of
    hypothesis or of a weak reference), whose exception reaches nobody."""
    while frame is not None:
        if TOOLS.intersection(Path(frame.f_code.co_filename).parts):
            return True
        frame = frame.f_back
    return False


def test_an_exception_of_a_signal_handler_leaves_the_session_usable(session: Session) -> None:
    session.ensure_node(PATH, b"0")
    for number in range(60):
        with suppress(Interrupted), signals(0.0005 + number * 0.00005):
            until = time.monotonic() + 0.1
            while time.monotonic() < until:
                session.get(PATH)
                session.get_many([PATH] * 3)
        assert session.get(PATH)[0] == b"0"
    with pytest.raises(NoNodeError):
        session.ask(session.zk.get_async, f"{PATH}-absent")


LINES_OF = (
    "zkstate/direct/client.py",
    "zkstate/direct/connection.py",
    "zkstate/direct/handler.py",
    "zkstate/connection/session.py",
)
"""The modules whose lines are interrupted, each once."""


def interrupted_at(line: int, work: Callable[[], object]) -> bool:
    """Do the work in this thread, with an exception before the `line`th line of LINES_OF; False if the work
    has fewer."""
    passed = 0

    def on_line(_: FrameType, event: str, __: object) -> object:
        nonlocal passed
        passed += event == "line"
        if passed == line:
            sys.settrace(None)
            raise Interrupted
        return on_line

    def on_call(frame: FrameType, _: str, __: object) -> object:
        return on_line if frame.f_code.co_filename.endswith(LINES_OF) else None

    before = sys.gettrace()
    sys.settrace(on_call)  # type: ignore[arg-type]
    try:
        work()
    except Interrupted:
        pass
    finally:
        sys.settrace(before)
    return passed >= line


WORK: dict[str, Callable[[Session], object]] = {
    "a request": lambda session: session.get(PATH),
    "requests that are sent together": lambda session: session.get_many([PATH] * 3),
    "a transaction": lambda session: commit(session, [Put(PATH, b"0"), Put(PATH, b"0")]),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("name", WORK)
def test_a_thread_that_is_interrupted_at_any_line_spoils_no_later_request(
    session: Session, settings: Settings, name: str
) -> None:
    """The next requests get their own answers soon, from this thread and from others."""
    session.ensure_node(PATH, b"0")
    session.ensure_node(f"{PATH}-own", b"own")
    with connect(settings) as interrupted, ThreadPoolExecutor(1) as other:
        line = 1
        while interrupted_at(line, lambda: WORK[name](interrupted)):
            began = time.monotonic()
            assert interrupted.get(f"{PATH}-own")[0] == b"own", f"line {line}"
            assert other.submit(interrupted.get, PATH).result(timeout=30)[0] == b"0", f"line {line}"
            assert time.monotonic() - began < SOON, f"line {line}"
            line += 1
        assert line > 20


SOON = 5.0
"""Seconds for an answer, after a connection that may have been broken; ten times less than a limit."""


@pytest.mark.no_cover
def test_a_request_that_is_interrupted_while_the_connection_is_away_delays_no_later_one(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    session.ensure_node(PATH, b"0")
    session.ensure_node(f"{PATH}-own", b"own")
    line, more = 1, True
    while more:
        zookeeper_proxy.refuse()
        zookeeper_proxy.cut()
        _wait_for(lambda: not shaky.connected)
        more = interrupted_at(line, lambda: shaky.zk.get_async(PATH))
        zookeeper_proxy.accept()
        began = time.monotonic()
        assert shaky.get(f"{PATH}-own")[0] == b"own", f"line {line}"
        assert shaky.get(PATH)[0] == b"0", f"line {line}"
        assert time.monotonic() - began < SOON, f"line {line}"
        line += 1
    assert line > 5


@pytest.mark.no_cover
def test_a_close_that_is_interrupted_at_any_line_can_be_repeated_and_releases_the_locks(
    session: Session, settings: Settings
) -> None:
    line, more = 1, True
    while more:
        closed = connect(settings)
        lock = f"/ids/lock-{line}"
        assert take(closed, lock, "mark")
        more = interrupted_at(line, closed.close)
        began = time.monotonic()
        closed.close()
        assert time.monotonic() - began < SOON, f"line {line}"
        assert session.exists(lock) is None, f"line {line}"
        line += 1
    assert line > 5


def test_a_process_whose_session_does_not_end_ends_with_its_locks(
    session: Session, settings: Settings
) -> None:
    """Its pings would keep the locks for ever."""
    child = os.fork()
    if not child:
        _hold_a_lock_and_close(settings)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == EXIT_UNCLOSED
    _wait_for(lambda: session.exists("/ids/held") is None)


def _hold_a_lock_and_close(settings: Settings) -> None:
    try:
        closed = connect(settings)
        assert take(closed, "/ids/held", "mark")
        held = threading.Event()

        def hang() -> None:
            with closed.zk._connection._reading:
                held.set()
                threading.Event().wait()

        threading.Thread(target=hang, daemon=True).start()
        held.wait()
        closed.close()
    finally:
        os._exit(1)


def test_a_close_whose_answer_never_comes_has_a_limit_and_the_locks_go(
    session: Session, shaky: Session, zookeeper_proxy: Proxy
) -> None:
    assert take(shaky, "/ids/held", "mark")
    zookeeper_proxy.partition()
    began = time.monotonic()

    shaky.close()

    assert time.monotonic() - began < 3 * CLOSE_TIME
    _wait_for(lambda: session.exists("/ids/held") is None)


def test_a_session_that_is_closed_while_threads_ask_ends_at_once(shaky: Session) -> None:
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(_ask_until_refused, shaky) for _ in range(2)]
        time.sleep(0.05)
        shaky.close()
        assert all(future.result(timeout=10) for future in asking)


def _ask_until_refused(session: Session) -> bool:
    while True:
        try:
            session.zk.exists_async("/ids").get(timeout=5)
        except KazooException:
            return True


def _connections() -> int:
    return sum("zk_loop" in thread.name for thread in threading.enumerate())


def test_a_session_that_is_closed_while_it_asks_for_an_older_record_leaves_no_connection(
    settings: Settings, zookeeper_proxy: Proxy
) -> None:
    before = _connections()
    with connect(settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts})):
        zookeeper_proxy.cut()
        zookeeper_proxy.swallow()
        _wait_for(lambda: _connections() == before + 2)

    assert _connections() == before


def test_a_session_that_is_closed_while_it_prepares_the_record_leaves_no_connection(
    settings: Settings, zookeeper_proxy: Proxy
) -> None:
    new = {"zk_hosts": zookeeper_proxy.hosts, "zk_root": f"{settings.zk_root}new"}
    before = _connections()
    zookeeper_proxy.refuse()
    with connect(settings.model_copy(update=new), 0.1, required=False):
        zookeeper_proxy.delay(0.01)
        zookeeper_proxy.accept()
        _wait_for(lambda: _connections() == before + 2)

    assert _connections() == before


def test_a_connection_that_breaks_while_the_record_is_prepared_is_made_again(
    settings: Settings, zookeeper_proxy: Proxy
) -> None:
    new = f"{settings.zk_root}new"
    zookeeper_proxy.swallow_after(new.encode())

    def cut() -> None:
        assert zookeeper_proxy.swallowed.wait(30)
        zookeeper_proxy.cut()

    cutting = threading.Thread(target=cut)
    cutting.start()

    with connect(settings.model_copy(update={"zk_hosts": zookeeper_proxy.hosts, "zk_root": new})) as session:
        assert session.connections == 2
        assert session.exists_many(paths.SKELETON).count(None) == 0

    cutting.join()
