"""What the demo shows: a bar on a terminal, plain lines elsewhere."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from entrypoints.demo import repository
from pipeline.states import BatchState

STYLES = {"completed": "green", "failed": "red"}


class Meter(Protocol):
    def show(self, progress: repository.Progress) -> None: ...


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: dict[str, repository.Progress] = {}

    def show(self, progress: repository.Progress) -> None:
        if self._last.get(progress.bid) == progress:
            return
        self._last[progress.bid] = progress
        total = "?" if progress.total is None else progress.total
        failed = f", {progress.failed} failed" if progress.failed else ""
        line = f"{progress.bid}  {progress.state}: {progress.completed} of {total} jobs completed{failed}"
        self._console.print(line, markup=False)


class _Bars:
    def __init__(self, progress: Progress, names: Mapping[str, str]) -> None:
        self._progress = progress
        self._names = names
        self._bars = {bid: progress.add_task(name, total=None) for bid, name in names.items()}

    def show(self, progress: repository.Progress) -> None:
        ended = progress.completed + progress.failed
        style = STYLES.get(progress.state, "cyan")
        self._progress.update(
            self._bars[progress.bid],
            total=progress.total,
            completed=ended,
            description=f"{self._names[progress.bid]}  [{style}]{progress.state}[/]",
        )


@contextmanager
def meter(console: Console, names: Mapping[str, str]) -> Iterator[Meter]:
    """Shows the progress of batches: BID -> what it is called."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield _Bars(progress, names)


def report(
    console: Console, name: str, progress: repository.Progress, rows: Iterable[tuple[str, ...]]
) -> None:
    state = Text(progress.state, STYLES.get(progress.state, ""))
    console.print(Text.assemble("\n", (f"{progress.bid}, {name}: ", "bold"), state))
    if progress.state is BatchState.FAILED and progress.message:
        console.print(progress.message, markup=False)
    table = Table.grid(padding=(0, 2))
    for jid, job_state, ark, title, message in rows:
        said = message if job_state == "failed" else title
        table.add_row(jid, Text(job_state, STYLES.get(job_state, "")), ark, Text(said))
    console.print(table)


def places(console: Console, title: str, rows: Mapping[str, str]) -> None:
    console.print(Text(f"\n{title}", "bold"))
    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(f"  {name}", Text(value))
    console.print(table)
