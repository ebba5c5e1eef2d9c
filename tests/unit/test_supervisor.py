import errno
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from entrypoints.stack import child, home, stack
from entrypoints.stack.child import HOST, RESTARTS, Command, Process
from entrypoints.stack.home import (
    StackInfo,
    default_home,
    lock_home,
    read_info,
    running_pid,
    unread_environment,
    write_info,
)
from entrypoints.stack.services import Servers, StackConfig, child_environment, servers
from entrypoints.stack.stack import ensure_profiles, running
from entrypoints.stack.supervisor import StopSignals, Supervisor, stop_signals
from operations.run import Stopped
from pipeline import codes
from pipeline.errors import UsageRefused
from pipeline.profiles.profile import Profiles
from tests.support.errors import raises_code

WAITS = "import sys, time, pathlib; pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def service(folder: Path, name: str, code: str = WAITS, stop_seconds: float = 5) -> Command:
    ready = folder / f"{name}.ready"
    return Command(
        name=name,
        argv=(sys.executable, "-S", "-c", code, str(ready)),
        log=folder / f"{name}.log",
        clean=frozenset({0, -signal.SIGTERM}),
        stop_seconds=stop_seconds,
        ready_file=ready,
        ready_seconds=10,
    )


def supervisor(*tiers: tuple[Command, ...]) -> tuple[Supervisor, list[str]]:
    lines: list[str] = []
    return Supervisor(tiers, StopSignals(), lines.append), lines


def test_a_log_that_is_too_large_is_kept_once_and_continues_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "LOG_BYTES", 1000)
    talks = "import sys, time\nfor n in range(10**9): print(n, flush=True); time.sleep(0.001)"
    running, lines = supervisor((replace(service(tmp_path, "talker", talks), ready_file=None),))
    log, before = tmp_path / "talker.log", tmp_path / "talker.log.1"

    try:
        running.start()
        for _ in range(2):
            before.unlink(missing_ok=True)
            until(lambda: log.stat().st_size > 1000)
            running.poll()
            assert before.stat().st_size > 1000
            assert log.stat().st_size < 1000
        until(lambda: log.stat().st_size > 0)
    finally:
        running.stop()

    assert b"\0" not in log.read_bytes()
    assert lines[1:] == []


def test_tiers_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    order = tmp_path / "order"
    code = textwrap.dedent(f"""
        import pathlib, signal, sys
        def note(word):
            with open({str(order)!r}, "a") as stream: stream.write(word + sys.argv[1][-7] + " ")
        def stop(*_): note("-"); sys.exit()
        signal.signal(signal.SIGTERM, stop)
        note("+"); pathlib.Path(sys.argv[1]).touch()
        while True: signal.pause()
    """)
    stack, _ = supervisor((service(tmp_path, "a", code),), (service(tmp_path, "b", code),))

    stack.start()
    stack.stop()

    assert order.read_text().split() == ["+a", "+b", "-b", "-a"]


def test_a_process_that_dies_is_restarted(tmp_path: Path) -> None:
    stack, lines = supervisor((service(tmp_path, "worker"),))
    stack.start()
    (process,) = stack.processes
    first = process.pid
    os.kill(first, signal.SIGKILL)
    process.wait()

    def is_back() -> bool:
        stack.poll()
        return process.running and process.pid != first

    until(is_back)
    stack.stop()

    assert any("worker ended with code -9" in line for line in lines)


def test_a_process_that_dies_is_restarted_although_the_disk_is_full(tmp_path: Path) -> None:
    full = False

    def write(_: str = "") -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    stack = Supervisor([[service(tmp_path, "worker")]], StopSignals(), write, write)
    stack.start()
    (process,) = stack.processes
    first, full = process.pid, True
    process.kill()

    def is_back() -> bool:
        stack.poll()
        return process.running and process.pid != first

    until(is_back)
    stack.stop()


def test_a_process_that_runs_but_does_not_answer_is_restarted(tmp_path: Path) -> None:
    answering = tmp_path / "answering"
    given = replace(service(tmp_path, "zookeeper"), answers=answering.exists, silent_seconds=0.2)
    answering.touch()
    stack, lines = supervisor((given,))
    stack.start()
    (process,) = stack.processes
    first = process.pid
    stack.poll_for(0.5)
    assert process.pid == first
    answering.unlink()

    def is_back() -> bool:
        stack.poll()
        if not process.running:
            answering.touch()
        return process.running and process.pid != first

    until(is_back, 30)
    stack.stop()

    assert any("zookeeper has not answered for" in line for line in lines)


def test_a_zookeeper_that_is_suspended_is_judged_by_its_answers(tmp_path: Path) -> None:
    """Its process runs, and accepts connections, but answers nothing."""
    found = servers(StackConfig(tmp_path, environment={"ARKLINE_BROKER_URL": "redis://127.0.0.1:1/0"}))
    (given,) = found.services
    stack, _ = supervisor((replace(given, silent_seconds=1),))
    stack.start()
    (process,) = stack.processes
    first = process.pid
    os.kill(first, signal.SIGSTOP)

    def is_back() -> bool:
        stack.poll()
        return process.running and process.pid != first and given.is_ready()

    until(is_back, 60)
    stack.stop()


def test_a_process_that_dies_too_often_ends_the_stack(tmp_path: Path) -> None:
    process = Process(service(tmp_path, "worker"))

    plans = [process.plan_restart(float(second)) for second in range(RESTARTS + 1)]

    assert plans == [True] * RESTARTS + [False]


def test_old_restarts_do_not_count(tmp_path: Path) -> None:
    process = Process(service(tmp_path, "worker"))

    assert all(process.plan_restart(hour * 3600.0) for hour in range(100))


def test_a_start_that_fails_shows_the_end_of_the_log(tmp_path: Path) -> None:
    stack, _ = supervisor((service(tmp_path, "worker", "raise SystemExit('no such broker')"),))

    with raises_code(codes.PROCESS_DIED, match=r"worker ended with code 1(?s:.*)no such broker"):
        stack.start()


def test_a_process_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    stack, lines = supervisor((service(tmp_path, "worker", STUBBORN, stop_seconds=0.2),))
    stack.start()

    stack.stop()

    assert not stack.processes[0].running
    assert any("killed" in line for line in lines)


def test_a_second_stop_signal_kills_at_once(tmp_path: Path) -> None:
    stack, _ = supervisor((service(tmp_path, "worker", STUBBORN, stop_seconds=60),))
    stack.start()
    with stop_signals() as signals:
        stack.signals = signals
        second = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM))
        second.start()
        stack.stop()
        second.join()

    assert signals.received
    assert not stack.processes[0].running


def test_a_signal_requests_a_stop(tmp_path: Path) -> None:
    with stop_signals() as signals:
        stack = Supervisor((), signals)
        os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(Stopped):
            stack.poll()


def test_a_suspended_process_stops_in_order(tmp_path: Path) -> None:
    process = Process(service(tmp_path, "worker"))
    process.start()
    until((tmp_path / "worker.ready").exists)
    process.send_signal(signal.SIGSTOP)

    assert process.stop(5) == -signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_children_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = textwrap.dedent(f"""
        import pathlib, sys, time
        from entrypoints.stack.child import Command, Process
        folder = pathlib.Path({str(tmp_path)!r})
        argv = (sys.executable, "-S", "-c", {WAITS!r}, str(folder / "ready"))
        child = Process(Command("child", argv, folder / "log"))
        child.start()
        (folder / "pid").write_text(str(child.pid))
        time.sleep(60)
    """)
    parent = subprocess.Popen([sys.executable, "-c", code])
    until((tmp_path / "ready").exists)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    pid = int((tmp_path / "pid").read_text())

    parent.kill()
    parent.wait()

    until(
        lambda: not Path(f"/proc/{pid}").exists() or "Z (zombie)" in Path(f"/proc/{pid}/status").read_text()
    )


def test_two_stacks_in_one_folder_are_refused(tmp_path: Path) -> None:
    with (
        lock_home(tmp_path, "./dev down"),
        raises_code(codes.STACK_RUNNING, match=rf"process {os.getpid()}\); stop it .* or with: \./dev down"),
        lock_home(tmp_path, "./dev down"),
    ):
        pass


def test_a_folder_is_free_after_its_stack(tmp_path: Path) -> None:
    with lock_home(tmp_path, "./dev down"):
        assert running_pid(tmp_path) == os.getpid()

    assert running_pid(tmp_path) is None


def test_a_stack_is_found_and_keeps_its_folder_after_run_was_deleted(tmp_path: Path) -> None:
    with lock_home(tmp_path, "./dev down"):
        (tmp_path / "run").mkdir()
        shutil.rmtree(tmp_path / "run")

        assert running_pid(tmp_path) == os.getpid()
        with raises_code(codes.STACK_RUNNING), lock_home(tmp_path, "./dev down"):
            pass


def test_a_stack_of_the_release_before_is_found_by_its_lock(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        print(os.getpid(), file=lock, flush=True)

        with raises_code(codes.STACK_RUNNING), lock_home(tmp_path, "./dev down"):
            pass


def test_a_server_keeps_its_data_locked_for_as_long_as_it_lives(tmp_path: Path) -> None:
    data = tmp_path / "redis"
    command = Command(
        "first", (sys.executable, "-c", "import time; time.sleep(600)"), tmp_path / "log", lock=data / "lock"
    )
    first = Process(command)
    first.start()
    try:
        assert running_pid(tmp_path) == os.getpid(), "also if every lock of the stack itself was deleted"
        assert home.take(data / "lock", wait=0) is None
    finally:
        first.kill()

    lock = home.take(data / "lock")
    assert lock is not None
    lock.close()


def test_a_second_server_on_the_same_data_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "LOCK_SECONDS", 0.1)
    argv = (sys.executable, "-c", "import time; time.sleep(600)")
    one, two = (Process(Command(name, argv, tmp_path / "log", lock=tmp_path / "lock")) for name in "ab")
    one.start()
    try:
        with raises_code(codes.PROCESS_DIED, match=f"b: another process works on {tmp_path}"):
            two.start()
    finally:
        one.kill()


def test_a_stack_that_is_just_ending_is_not_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is removed a moment before the lock ends."""
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr(time, "sleep", lambda _: lock.close())

        assert running_pid(tmp_path) is None


def test_the_file_of_a_stack_is_private_and_removed_with_the_stack(tmp_path: Path) -> None:
    note = StackInfo(
        pid=os.getpid(), zk_hosts="z", broker_url="b", environment={"ARKLINE_HOME": "a b"}, services={}
    )
    with lock_home(tmp_path, "./dev down"):
        write_info(tmp_path, note)

        assert read_info(tmp_path) == note
        assert (tmp_path / "run" / "stack.json").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "run" / "environment").read_text() == "export ARKLINE_HOME='a b'\n"

    assert read_info(tmp_path) is None


def test_the_file_of_a_killed_stack_is_ignored(tmp_path: Path) -> None:
    write_note_dir = tmp_path / "run"
    write_note_dir.mkdir()
    write_info(tmp_path, StackInfo(pid=1, zk_hosts="z", broker_url="b", environment={}, services={}))

    with lock_home(tmp_path, "./dev down"):
        assert read_info(tmp_path) is None


def test_a_shell_that_names_the_servers_of_the_previous_run_gets_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StackConfig(home=tmp_path)
    previous = child_environment(config, Servers("127.0.0.1:1", "redis://127.0.0.1:2/0", ()))
    for name, value in previous.items():
        monkeypatch.setenv(name, value)

    assert servers(config).zk_hosts != "127.0.0.1:1"
    assert servers(StackConfig(home=tmp_path / "other")).zk_hosts == "127.0.0.1:1"


def test_folders_in_the_settings_are_those_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARKLINE_PROFILES", "profiles")
    monkeypatch.chdir(tmp_path)

    environment = child_environment(StackConfig(home=tmp_path / "home"), Servers("", "", ()))

    assert environment["ARKLINE_PROFILES"] == str(tmp_path / "profiles")


def test_a_folder_that_is_no_zookeeper_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARKLINE_ZK_HOSTS", raising=False)

    with pytest.raises(UsageRefused, match="the folder of an unpacked ZooKeeper"):
        servers(StackConfig(home=tmp_path, zookeeper=tmp_path))


def test_a_stack_whose_pages_have_no_port_is_not_started(tmp_path: Path) -> None:
    """Another stack that has the port would answer that the pages are ready, and get this one's token."""
    with socket.create_server((HOST, 0)) as other:
        port = str(other.getsockname()[1])
        away = {"ARKLINE_ZK_HOSTS": f"{HOST}:1", "ARKLINE_BROKER_URL": f"redis://{HOST}:1/0"}
        config = StackConfig(tmp_path, environment={**away, "ARKLINE_WEB_PORT": port})
        signals = StopSignals()
        signals.count = 1

        with (
            pytest.raises(UsageRefused, match=rf"port {port} of {HOST} cannot be used.*ARKLINE_WEB_PORT"),
            running(config, signals),
        ):
            pytest.fail("it was started")


def test_of_two_stacks_that_start_at_once_in_the_background_one_says_that_the_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = iter([None])
    monkeypatch.setattr(stack, "running_pid", lambda folder: next(before, running_pid(folder)))

    with (
        lock_home(tmp_path, "stop it"),
        raises_code(codes.STACK_RUNNING, match=f"process {os.getpid()}"),
    ):
        stack.start_in_background(StackConfig(tmp_path))


def test_a_new_stack_has_a_profile_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARKLINE_PROFILES", raising=False)
    config = StackConfig(home=tmp_path / "home")

    ensure_profiles(config)

    assert Profiles(tmp_path / "home" / "profiles").get("demo").naan == "99999"


def test_a_start_that_ended_while_it_copied_the_profiles_is_made_up_for_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARKLINE_PROFILES", raising=False)
    config = StackConfig(home=tmp_path / "home")
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "demo.yaml").symlink_to(tmp_path / "nowhere")
    with monkeypatch.context() as first:
        first.setattr(stack, "SAMPLE_PROFILES", cut)
        with pytest.raises(OSError, match=r"demo\.yaml"):
            ensure_profiles(config)

    ensure_profiles(config)

    assert Profiles(tmp_path / "home" / "profiles").get("demo").naan == "99999"
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["profiles"]


def test_the_stack_of_another_user_is_not_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "arkline" / "run" / "environment"
    with lock_home(tmp_path / "arkline", "stop it"):
        file.parent.mkdir()
        file.write_text("export ARKLINE_HOME=elsewhere\n")

        assert unread_environment() == file
        with monkeypatch.context() as other:
            other.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
            assert unread_environment() is None
    assert unread_environment() is None


def test_the_default_home_is_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")

    assert default_home() == Path("/data/arkline")
