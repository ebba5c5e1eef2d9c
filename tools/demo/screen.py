"""What the demo shows: a bar on a terminal, plain lines elsewhere."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from operations.batch_view import BatchView
from pipeline.states import JOB, JobState

STYLES = {"completed": "green", "failed": "red"}
PATH = (*JOB.working(), JobState.COMPLETED)
"""The states of a job that meets no trouble, in order."""

LAST = len(PATH) - 1


class Meter(Protocol):
    def show(self, view: BatchView) -> None: ...


def steps(view: BatchView) -> tuple[int, int | None]:
    """States that the jobs have left behind, of how many; the latter is unknown until the batch is split."""
    done = sum(number * _behind(state) for state, number in view.jobs.items())
    return done, None if view.total is None else view.total * LAST


def _behind(state: JobState) -> int:
    if state is JobState.HELD:
        return 0
    return PATH.index(state) if state in PATH else LAST


def described(view: BatchView) -> str:
    """`2 completed, 1 downloading of 3 jobs`."""
    parts = [f"{number} {state}" for state, number in view.jobs.items()]
    return f"{', '.join(parts) or 'none yet'} of {'?' if view.total is None else view.total} jobs"


class _Lines:
    def __init__(self, console: Console, names: Mapping[str, str]) -> None:
        self._console = console
        self._names = names
        self._last: dict[str, str] = {}

    def show(self, view: BatchView) -> None:
        line = f"{view.bid}, {self._names[view.bid]}: {view.status}; {described(view)}"
        if self._last.get(view.bid) != line:
            self._last[view.bid] = line
            self._console.print(line, markup=False)


class _Bars:
    def __init__(self, progress: Progress, names: Mapping[str, str]) -> None:
        self._progress = progress
        self._bars = {bid: progress.add_task(name, total=None, said="") for bid, name in names.items()}

    def show(self, view: BatchView) -> None:
        done, total = steps(view)
        style = STYLES.get(view.status, "cyan")
        jobs = f"{view.ended_jobs}/{'?' if view.total is None else view.total} jobs"
        self._progress.update(
            self._bars[view.bid],
            total=total,
            completed=done,
            said=f"{jobs}  [{style}]{view.status}[/]",
        )


@contextmanager
def meter(console: Console, names: Mapping[str, str]) -> Iterator[Meter]:
    """Shows the progress of batches: BID -> what it is called."""
    if not console.is_terminal:
        yield _Lines(console, names)
        return
    columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[said]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        yield _Bars(progress, names)


def report(console: Console, name: str, view: BatchView, text: str) -> None:
    console.print(Text.assemble("\n", (f"{name}: ", "bold"), (view.status, STYLES.get(view.status, ""))))
    console.print(text, markup=False, end="")


def places(console: Console, title: str, rows: Mapping[str, str]) -> None:
    console.print(Text(f"\n{title}", "bold"))
    width = max(map(len, rows))
    for name, value in rows.items():
        console.print(f"  {name:<{width}}  {value}", markup=False)
