"""The demo from beginning to end."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from entrypoints.cli import exit_codes
from entrypoints.stack.child import HOST
from entrypoints.stack.home import running_pid
from entrypoints.stack.services import StackConfig
from entrypoints.stack.stack import Stack, running
from entrypoints.stack.supervisor import stop_signals
from operations.run import Stopped
from pipeline.errors import ArklineError, UsageRefused
from pipeline.settings import Settings
from tools.checkout import PROJECT, own_profiles, stop_command
from tools.demo import collection
from tools.dev.console import teller
from tools.web_server import serving

HARBOUR = PROJECT / "examples" / "harbour"
NO_SITE = {"ARKLINE_URL": "", "ARKLINE_TOKEN": ""}
"""The demo uses its own stack, whatever site the shell names."""

LIMIT = 300
"""Seconds after which an unfinished demo counts as stuck; on two cores it takes half a minute."""

SERVER_SETTINGS = ("ARKLINE_ZK_HOSTS", "ARKLINE_BROKER_URL")
"""The caller's only settings that are kept: a demo must not write into a real repository."""

DEPOSITS = (("batch-manifest", "objects.checkm"), ("container-batch-manifest", "containers.checkm"))
"""(type, manifest): three objects by manifest, and two zip containers."""


YOUR_OWN = """
Now try a folder of your own:
  ./dev up --detach
  . var/run/environment
  .venv/bin/arkline submit FOLDER --profile demo --wait"""


class DemoStuck(ArklineError):
    """A command of the demo did not end in time."""


@dataclass(frozen=True)
class Session:
    """A person at a terminal using the running stack; with `as_json`, the terminal is standard error."""

    stack: Stack
    console: Console
    as_json: bool

    def arkline(self, *arguments: str, show: bool = True) -> tuple[int, str]:
        """Run a command while supervising the stack; returns its exit code and standard output."""
        self.console.print(f"\n$ arkline {shlex.join(arguments)}", style="bold", markup=False)
        deadline = time.monotonic() + LIMIT
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "arkline", *arguments],
            env={**os.environ, **NO_SITE, **self.stack.info.environment, **self._colours()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if self.console.record else None,  # progress bars
            text=True,
        ) as child:
            try:
                while child.poll() is None:
                    if time.monotonic() > deadline:
                        logs = self.stack.settings.home / "log"
                        raise DemoStuck(f"not done after {LIMIT} s; the logs are in {logs}")
                    self.stack.supervisor.poll_for(0.1)
            finally:
                child.kill()
            output = child.stdout.read() if child.stdout else ""
        if show:
            self.console.print(Text.from_ansi(output.rstrip()))
        return child.returncode, output

    def _colours(self) -> dict[str, str]:
        """The variables that give the command the console's width and colours."""
        if not self.console.is_terminal or self.as_json:
            return {}
        return {"FORCE_COLOR": "1", "COLUMNS": str(self.console.width)}


def demonstrate(home: Path, as_json: bool, keep: bool) -> int:
    """Run the demo; 0 if every batch completed. `as_json`: standard output has one line, for a program."""
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    home = home.absolute()
    _clear(home)
    with stop_signals() as signals, serving(home / "source") as base:
        collection.prepare(HARBOUR, home / "source", base)
        try:
            with running(demo_config(home), signals, teller(console)) as stack:
                completed = _ingest(Session(stack, console, as_json), base)
                if keep:
                    console.print("\nThe stack keeps running; Ctrl-C stops it.")
                    _wait_for_signal(stack)
        except Stopped as stop:
            return exit_codes.of_error(stop)
    return 0 if completed else 1


def _clear(home: Path) -> None:
    """Remove the previous demo; refused if it is still running, or if the folder is not a demo's."""
    if (pid := running_pid(home)) is not None:
        raise UsageRefused(f"a demo already runs (process {pid}); stop it with Ctrl-C in its terminal")
    if home.exists() and any(home.iterdir()) and not (home / "source").is_dir():
        raise UsageRefused(f"{home} is not a demo's folder, and would be emptied: choose another folder")
    shutil.rmtree(home, ignore_errors=True)


def demo_config(home: Path) -> StackConfig:
    for name in [name for name in os.environ if name.startswith("ARKLINE_") and name not in SERVER_SETTINGS]:
        del os.environ[name]
    environment = own_profiles() | {
        "ARKLINE_ALLOW_NETWORKS": "127.0.0.0/8",  # the sample collection is served there
        "NO_PROXY": ",".join(filter(None, (HOST, os.environ.get("NO_PROXY")))),
    }
    if any(os.environ.get(name) for name in SERVER_SETTINGS):
        own = f"demo-{uuid.uuid4().hex[:8]}"
        environment |= {"ARKLINE_ZK_ROOT": f"/{own}", "ARKLINE_BROKER_PREFIX": f"{own}:"}
    return StackConfig(home=home, environment=environment, stop_command=stop_command(home))


def _ingest(session: Session, base: str) -> bool:
    """Submit, wait for the end, show the reports; returns whether every batch completed."""
    began = time.monotonic()
    settings, info = session.stack.settings, session.stack.info
    if not session.as_json:
        session.console.print(f"Watch it on the board: {info.web_url} (token {info.token})\n", markup=False)
    form = ("--json",) if session.as_json else ()
    ended = []
    for kind, manifest in DEPOSITS:
        options = ("--profile", "demo", "--type", kind, "--wait", *form)
        ended.append(session.arkline("submit", *options, f"{base}/{manifest}", show=not session.as_json))
    seconds = time.monotonic() - began
    if not session.as_json:
        for _, output in ended:
            session.arkline("report", Text.from_ansi(output).plain.split()[0])
    session.console.print(f"\nDone in {seconds:.1f} s. The results:", style="bold")
    for name, value in (
        ("objects", str(settings.storage)),
        ("inventory", settings.inventory),
        ("mail", str(settings.outbox_folder)),
        ("board", f"{info.web_url} (token {info.token}) while the stack runs"),
        (
            "Flower",
            f"{info.flower_url} (login {info.flower_user} / {info.flower_password}) while the stack runs",
        ),
        ("logs", str(settings.home / "log")),
    ):
        session.console.print(f"  {name:<9}  {value}", markup=False)
    if not session.as_json:
        session.console.print(YOUR_OWN, markup=False)
    if session.as_json:
        views = [json.loads(output) for _, output in ended]
        sys.stdout.write(json.dumps(summary(views, seconds, settings)) + "\n")
        sys.stdout.flush()
    return all(code == 0 for code, _ in ended)


def summary(views: list[dict[str, Any]], seconds: float, settings: Settings) -> dict[str, object]:
    """The JSON object of `./dev demo --json`. `files` and `bytes` count the depositors' files in storage."""
    stored = [path for path in settings.storage.rglob("v*/content/producer/**/*") if path.is_file()]
    batches = [
        {
            "bid": view["bid"],
            "status": view["status"],
            "jobs": {result: view["buckets"].get(f"batch-{result}", 0) for result in ("completed", "failed")},
        }
        for view in views
    ]
    return {
        "batches": batches,
        "status": "completed" if all(view["status"] == "completed" for view in views) else "failed",
        "jobs": {
            result: sum(_count(batch, result) for batch in batches) for result in ("completed", "failed")
        },
        "files": len(stored),
        "bytes": sum(path.stat().st_size for path in stored),
        "seconds": round(seconds, 3),
        "storage_root": str(settings.storage),
        "inventory_url": settings.inventory,
        "outbox": str(settings.outbox_folder),
    }


def _count(batch: dict[str, Any], result: str) -> int:
    return int(batch["jobs"][result])


def _wait_for_signal(stack: Stack) -> None:
    with suppress(Stopped):
        while True:
            stack.supervisor.poll_for(0.2)
