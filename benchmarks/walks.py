"""Functions and files of the project that a request passes through: `python -m benchmarks.walks [CHECKOUT]`.

Distinct functions that the processes call for one fixed input, as seen by `sys.setprofile`: one file is
submitted by the command line, ingested by a worker, read and explained by the command line and the API; a
failed job is resumed over the API. Imports, threads that are busy without a request, and the servers are
skipped. CHECKOUT may be an earlier commit's: the figures are those of its code, in this Python.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from benchmarks._output import run, tell
from entrypoints.stack.child import HOST, Command, Process, free_ports
from tests.servers import redis, zookeeper
from tests.servers.http_source import HttpSource
from tests.support.processes import await_ready

PROJECT = Path(__file__).parents[1]
NOTING = Path(__file__).parent / "noting"
WAIT = 120.0
"""Maximum seconds for a step: every call is recorded."""

IDLE = 8.0
"""Seconds without a request: threads that call anything in them are ignored afterwards."""

Places = set[tuple[str, str]]


@dataclass
class Site:
    """The processes of a checkout, and the functions they called."""

    code: Path
    folder: Path
    variables: dict[str, str]
    running: dict[str, Process] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    """Threads that call functions without a request."""

    @property
    def calls(self) -> Path:
        return self.folder / "calls"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **self.variables,
            "PYTHONPATH": f"{NOTING}:{self.code}",
            "WALKS_CODE": str(self.code),
            "WALKS_FOLDER": str(self.calls),
            "PYTHONWARNINGS": "ignore",
        }

    def start(self, name: str, *arguments: str) -> None:
        ready = self.folder / f"{name}.ready"
        process = Process(
            Command(
                name=name,
                argv=(sys.executable, *arguments),
                log=self.folder / f"{name}.log",
                environment={**self.environment, "ARKLINE_READY_FILE": str(ready)},
                folder=self.code,
                stop_seconds=20,
            )
        )
        process.start()
        self.running[name] = process
        await_ready(process, lambda: ready.exists() or " answers at " in process.log_tail(5), WAIT)

    def command(self, *words: str, **variables: str) -> tuple[str, Places]:
        """The output of a command, and the functions it called."""
        self.clear()
        done = subprocess.run(
            [sys.executable, "-c", "from entrypoints.cli.main import main; main()", *words],
            cwd=self.code,
            env={**os.environ, **self.environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stdout, set().union(*self.read("end.*.json").values())

    def clear(self) -> None:
        for file in self.calls.glob("*.json"):
            file.unlink()

    def read(self, pattern: str) -> dict[str, Places]:
        """Thread -> the functions it called."""
        calls: dict[str, Places] = {}
        for file in self.calls.glob(pattern):
            for thread, places in json.loads(file.read_text()).items():
                calls[f"{file.name.split('.')[1]} {thread}"] = set(map(tuple, places))
        return calls

    @contextmanager
    def noted(self, walk: str) -> Iterator[dict[str, Places]]:
        """Yields a dict that is filled with thread -> places when the block ends, without busy threads."""
        self._mark(walk)
        calls: dict[str, Places] = {}
        yield calls
        self._mark(f"after {walk}")
        written = self.read(f"{walk}.*.json")
        calls |= {thread: places for thread, places in written.items() if thread not in self.busy}

    def _mark(self, word: str) -> None:
        """Have all processes write what they called, and start afresh."""
        self.clear()
        (self.calls / "mark.new").write_text(word)
        (self.calls / "mark.new").replace(self.calls / "mark")
        deadline = time.monotonic() + WAIT
        expected = {int(pid) for name in self.running for pid in self._family(name)}
        while not expected <= {int(file.name.split(".")[1]) for file in self.calls.glob("*.json")}:
            assert time.monotonic() < deadline, "a process does not write what it called"
            time.sleep(0.01)  # the answer is a file

    def _family(self, name: str) -> Iterable[int]:
        """The process and its children that record their calls."""
        pid = self.running[name].pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *(int(child) for child in children if _notes(int(child)))]


def _notes(pid: int) -> bool:
    return b"WALKS_FOLDER" in Path(f"/proc/{pid}/environ").read_bytes()


def figure(places: Places) -> str:
    return f"{len(places)} functions / {len({file for file, _ in places})} files"


def only(places: Places, *packages: str) -> Places:
    return {(file, name) for file, name in places if file.startswith(packages)}


def walks(site: Site, source: HttpSource) -> Iterator[tuple[str, Places]]:
    (port,) = free_ports(1)
    site.start("worker", "-m", "tasks.worker_program", "-c", "1", "-n", "worker@%h")
    site.start("web", "-c", "from entrypoints.cli.main import main; main()", "web", "--port", str(port))
    token = json.loads(site.command("token", "create", "walks", "--role", "admin", "--json")[0])["token"]
    api = {"ARKLINE_URL": f"http://{HOST}:{port}", "ARKLINE_TOKEN": token}

    def ask(method: str, path: str) -> Any:
        answer = requests.request(
            method, api["ARKLINE_URL"] + path, headers={"Authorization": f"Bearer {token}"}, timeout=WAIT
        )
        assert answer.ok, answer.text
        return answer.json()

    def ended(bid: str) -> str:
        deadline = time.monotonic() + WAIT
        while True:
            jobs = ask("GET", f"/v1/batches/{bid}/jobs")["rows"]
            if jobs and jobs[0]["state"] in ("completed", "failed"):
                return str(jobs[0]["jid"])
            assert time.monotonic() < deadline, jobs
            time.sleep(0.1)  # neither release has a request that waits for a job

    def submit(url: str) -> tuple[str, Places]:
        out, places = site.command("submit", url, "--profile", "demo", "--type", "file", "--json")
        return json.loads(out)["bid"], places

    ended(submit(source.put("/warm.txt", b"warm"))[0])
    failed = ended(submit(source.put("/gone.txt", b"", status=404))[0])
    for path in ("", "/why", "/progress"):
        ask("GET", f"/v1/jobs/{failed}{path}")
    with site.noted("idle") as idle:
        time.sleep(IDLE)  # calls made without a request
    site.busy |= {thread for thread in idle if "MainThread" not in thread}

    with site.noted("job") as calls:
        bid, places = submit(source.put("/one.txt", b"one"))
        jid = ended(bid)
    yield "submit, beside the stack", places
    web = str(site.running["web"].pid)
    job = set().union(*(places for thread, places in calls.items() if thread.split()[0] != web))
    yield "a job: from its message to completed", job
    yield "of these in tasks and zkstate", only(job, "tasks/", "zkstate/")
    yield "why JID, beside the stack", site.command("why", jid)[1]
    with site.noted("why") as calls:
        places = site.command("why", jid, **api)[1]
    yield "why JID over the API", places.union(*calls.values())
    for name, method, path in (
        ("GET /v1/jobs/JID", "GET", f"/v1/jobs/{jid}"),
        ("GET /v1/jobs/JID/progress", "GET", f"/v1/jobs/{jid}/progress"),
        ("POST /v1/jobs/JID/resume", "POST", f"/v1/jobs/{failed}/resume"),
    ):
        with site.noted("request") as calls:
            ask(method, path)
        yield name, set().union(*(places for thread, places in calls.items() if thread.split()[0] == web))


def main() -> None:
    code = Path(next((word for word in sys.argv[1:] if word[0] != "-"), PROJECT)).resolve()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        zk = opened.enter_context(zookeeper.running(folder / "zookeeper"))
        broker = opened.enter_context(redis.running(folder / "redis"))
        source = opened.enter_context(HttpSource())
        site = Site(
            code,
            folder,
            {
                "ARKLINE_ZK_HOSTS": zk.hosts,
                "ARKLINE_ZK_ROOT": "/walks",
                "ARKLINE_BROKER_URL": broker.url,
                "ARKLINE_HOME": str(folder / "home"),
                "ARKLINE_PROFILES": str(code / "examples" / "profiles"),
                "ARKLINE_ALLOW_NETWORKS": "127.0.0.0/8",
            },
        )
        site.calls.mkdir()
        try:
            counted = {name: figure(places) for name, places in walks(site, source)}
        finally:
            for process in site.running.values():
                process.terminate()
            for process in site.running.values():
                process.stop(5)
    tell({"benchmark": "walks", "figures": counted})


if __name__ == "__main__":
    run(main, __doc__)
