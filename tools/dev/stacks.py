"""`./dev up` and `./dev down`: the stack in the foreground, or detached from the terminal."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from kombu.utils.url import maybe_sanitize_url
from rich.console import Console
from rich.table import Table

from entrypoints.stack import stack as whole
from entrypoints.stack.home import StackNote, StackRunning, environment_path, holder, note_path, read_note
from entrypoints.stack.signals import listening
from entrypoints.stack.supervisor import StopWished
from pipeline.errors import ArklineError, ServiceUnreachable
from tools.dev.console import teller

START_SECONDS = 180
STOP_SECONDS = 120
"""A worker may take 60 s to end its step, and Celery's pool half a minute to notice."""


class StackFailed(ArklineError):
    pass


def up(home: Path, workers: int, concurrency: int, detach: bool, console: Console) -> int:
    home = home.absolute()
    if detach:
        return _detach(home, workers, concurrency, console)
    choice = whole.Choice(home=home, workers=workers, concurrency=concurrency)
    say = teller(console)
    with listening() as signals, suppress(StopWished), whole.running(choice, signals, say) as running:
        console.print(summary(running.note, home))
        say("Ctrl-C stops everything.")
        while True:
            running.tend_for(0.2)
    return 0


def _detach(home: Path, workers: int, concurrency: int, console: Console) -> int:
    if (pid := holder(home)) is not None:
        raise StackRunning(f"a stack runs in {home} already (process {pid}); ./dev down stops it")
    log = home / "log" / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    options = (f"--home={home}", f"--workers={workers}", f"--concurrency={concurrency}")
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", "tools.dev", "up", *options],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while (note := read_note(home)) is None:
        if child.poll() is not None:
            raise StackFailed(f"the stack did not start; {log} says:\n{log.read_text()}")
        if time.monotonic() > deadline:
            raise StackFailed(
                f"the stack is not ready after {START_SECONDS} s; see {log}; ./dev down stops it"
            )
        time.sleep(0.1)
    console.print(summary(note, home))
    console.print("It runs in the background; ./dev down stops it.")
    return 0


def down(home: Path, console: Console) -> int:
    home = home.absolute()
    pid = holder(home)
    if pid is None:
        console.print(f"no stack runs in {home}")
        return 0
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    while holder(home) == pid:
        if time.monotonic() - began > STOP_SECONDS:
            raise ServiceUnreachable(f"process {pid} still runs after {STOP_SECONDS} s; see {home / 'log'}")
        time.sleep(0.1)
    console.print(f"stopped after {time.monotonic() - began:.1f} s")
    return 0


def summary(note: StackNote, home: Path) -> Table:
    table = Table.grid(padding=(0, 2))
    rows = {
        "ZooKeeper": note.zk_hosts,
        "Redis": maybe_sanitize_url(note.broker_url),
        "Flower": note.flower_url,
        "  login": f"{note.flower_user} / {note.flower_password}" if note.flower_user else "",
        "files": str(home),
        "logs": str(home / "log"),
        "for programs": str(note_path(home)),
        "for a shell": f". {environment_path(home)}",
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, value)
    return table
