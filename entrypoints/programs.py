"""The command lines of the fleet's programs: workers, beats, the web process and Flower.

`arkline worker|beat|flower` replaces itself with one of them; the local stack starts them as child processes.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import UsageRefused

PYTHON = (sys.executable, "-P")
"""-P: modules are not searched for in the current directory."""

CELERY = (*PYTHON, "-m", "celery", "-A", "tasks.app")

FLOWER_TASKS = 5000
"""Number of tasks that Flower keeps."""

FLOWER_COLUMNS = "name,args,state,received,runtime,worker"
"""The columns of Flower's task list; `args` holds job, batch, collection and state."""


def worker(processes: int, node: str, queues: Sequence[str] = ()) -> tuple[str, ...]:
    """A worker; `node`: its name, NAME@HOST; `queues`: those it consumes, all if empty."""
    only = ("-Q", ",".join(queues)) if queues else ()
    return (*PYTHON, "-m", "tasks.worker_program", "-c", str(processes), *only, "-n", node)


def ping(node: str) -> tuple[str, ...]:
    """Ping a worker over Redis; exits with 0 if it answers."""
    return (*CELERY, "inspect", "ping", "-d", node)


def beat() -> tuple[str, ...]:
    return (*PYTHON, "-m", "tasks.beat_leader")


def web(host: str, port: int) -> tuple[str, ...]:
    return (*PYTHON, "-m", "arkline", "web", "--host", host, "--port", str(port))


def flower(address: str, port: int, *, url_prefix: str = "", conf: Path | None = None) -> tuple[str, ...]:
    """Flower, read-only: operators act through arkline. Its password is never an argument.

    `conf`: a file with its `basic_auth`; without it Flower reads FLOWER_BASIC_AUTH. UsageRefused if Flower is
    not installed.
    """
    if importlib.util.find_spec("flower") is None:
        raise UsageRefused("Flower is not installed: pip install 'arkline[flower]'")
    more = (f"--url-prefix={url_prefix}",) if url_prefix else ()
    login = (f"--conf={conf}",) if conf else ()
    place = (f"--address={address}", f"--port={port}")
    shown = (f"--max-tasks={FLOWER_TASKS}", f"--tasks-columns={FLOWER_COLUMNS}")
    return (*PYTHON, "-m", "entrypoints.flower_program", *place, "--read-only", *shown, *more, *login)
