"""A process whose interpreter has stopped is ended by the kernel; one that computes is not."""

import signal
import subprocess
import sys

BEGIN = (
    "import hashlib, re, threading, time; from tasks.interruption import start_hang_guard; "
    "start_hang_guard(2); "
)


def run(program: str) -> int:
    return subprocess.run([sys.executable, "-c", BEGIN + program], check=False).returncode


def test_a_process_that_hangs_in_a_library_is_ended() -> None:
    assert run("re.match('(a+)+$', 'a' * 60 + 'b')") == -signal.SIGPROF


def test_a_process_that_computes_digests_in_threads_is_not_ended() -> None:
    used = "time.process_time() < 6"
    work = f"lambda: [hashlib.sha512(bytes(1 << 24)) for _ in iter(lambda: {used}, False)]"
    program = f"threads = [threading.Thread(target={work}) for _ in range(4)]; "

    assert run(program + "[t.start() for t in threads]; [t.join() for t in threads]") == 0


def test_a_process_that_computes_in_python_is_not_ended() -> None:
    assert run("sum(1 for _ in iter(lambda: time.process_time() < 6, False))") == 0
