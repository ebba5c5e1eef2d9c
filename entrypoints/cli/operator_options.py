"""Shared by the operators' commands: options, principal, confirmation and result."""

import getpass
import inspect
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.text import Text

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import exit_codes
from entrypoints.cli.options import Batch, Json, OlderThan, Profile, State, read_id
from operations.bulk import Outcome
from operations.job_list import JobFilter
from operations.operator import Operator, Run
from pipeline.errors import UsageRefused
from pipeline.principal import Interface, Principal, Role

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", parser=read_id, help="Jobs or batches; or select jobs by options."),
]
Reason = Annotated[
    str, typer.Option("--reason", "-r", help="Reason; recorded in the history and the archive.")
]
By = Annotated[str, typer.Option(help="Name of the person who acts; default: user@host.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
Seen = Annotated[
    int | None,
    typer.Option(
        "--if-version",
        metavar="N",
        help="Act only if the job or batch still has this version; `status --json` shows it.",
    ),
]

QUEUED_LATER = (
    "Redis does not answer, so no worker was notified; nothing is lost: ZooKeeper has the change, and "
    "the work continues once Redis is back"
)


@dataclass(frozen=True)
class VerbOptions:
    """The values of the shared options; options that a command does not offer have their defaults."""

    context: typer.Context
    ids: list[str] | None = None
    profile: str | None = None
    batch: str | None = None
    state: str | None = None
    older_than: float | None = None
    seen: int | None = None
    reason: str = ""
    by: str = ""
    yes: bool = False
    dry_run: bool = False
    json: bool = False

    @property
    def filter(self) -> JobFilter:
        conditions = {"bid": self.batch, "profile": self.profile, "state": self.state}
        return JobFilter.model_validate(conditions | {"older_than": self.older_than})


_ANNOTATIONS: dict[str, Any] = {
    "ids": Ids,
    "profile": Profile,
    "batch": Batch,
    "state": State,
    "older_than": OlderThan,
    "seen": Seen,
    "reason": Reason,
    "by": By,
    "yes": Yes,
    "dry_run": DryRun,
    "json": Json,
}


def with_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these shared options; the command gets them as one `VerbOptions` named `options`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(context: typer.Context, **values: Any) -> None:
            shared = {name: values.pop(name) for name in names}
            command(VerbOptions(context, **shared), **values)

        own = [one for one in inspect.signature(command).parameters.values() if one.name != "options"]
        shared = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(VerbOptions, name),
                annotation=_ANNOTATIONS[name],
            )
            for name in names
        ]
        context = inspect.signature(run).parameters["context"]
        parameters = [context, *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own), *shared]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def principal(by: str = "") -> Principal:
    """The person at this command line: an administrator, because the record itself is open to them."""
    name = by or f"{getpass.getuser()}@{socket.gethostname()}"
    return Principal(name=name, role=Role.ADMIN, interface=Interface.CLI)


@contextmanager
def operator(options: VerbOptions) -> Iterator[Operator]:
    """The person at this command line, with a session."""
    settings = opened.settings()
    with opened.session(settings) as session:
        opened.quiet_logs(bool(options.context.obj))
        yield Operator(
            session=session,
            settings=settings,
            inventory=lambda: opened.inventory(settings),
            principal=principal(options.by),
            reason=options.reason,
        )


@contextmanager
def long_run(operator: Operator) -> Iterator[Operator]:
    """The operator, with a progress bar on a terminal; Ctrl-C stops before the next job or batch."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    stop = threading.Event()

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        with Progress(*columns, console=screen.err(), transient=True, disable=not sys.stderr.isatty()) as bar:
            task = bar.add_task("")

            def on_progress(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            yield replace(operator, run=Run(on_progress, stop.is_set))
    finally:
        signal.signal(signal.SIGINT, before)


def confirm(question: str, yes: bool) -> None:
    """Ask before an effect that cannot be undone; UsageRefused without a terminal and without --yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageRefused(f"{question} Not a terminal: add --yes to confirm")
    if not typer.confirm(question, err=True):
        raise typer.Exit(exit_codes.REFUSED)


def are_named(options: VerbOptions) -> bool:
    """True if ids are given, False if a filter is; UsageRefused if neither is, or both are."""
    filtered = options.filter != JobFilter()
    if bool(options.ids) == filtered:
        raise UsageRefused(
            "specify ids of jobs or batches, or select jobs by --batch, --profile, --state or --older-than"
        )
    return bool(options.ids)


def show(outcome: Outcome, *, as_json: bool, single: bool) -> None:
    """Print the results and exit: 1 if anything was refused or not tried, 3 if a service did not answer."""
    code = exit_codes.UNREACHABLE if outcome.stopped else int(bool(outcome.refused or outcome.untried))
    if as_json:
        screen.emit(outcome)
        raise typer.Exit(code)
    would = "would become" if outcome.dry_run else "is now"
    for result in outcome.done:
        screen.say(Text.assemble(f"{result.id} was {result.was}, {would} ", screen.state(result.now)))
        if not result.sent:
            screen.note(f"{result.id}: {QUEUED_LATER}")
        if result.folder_left:
            screen.note(
                f"{result.id}: its folder {result.folder_left} is not on this machine: run `arkline cleanup` "
                "on a machine that has working storage"
            )
    for refusal in outcome.refused:
        screen.note(f"{refusal.id} refused: {refusal.message}", "red")
    if not single or outcome.stopped:
        screen.note(_summary(outcome), "")
    raise typer.Exit(code)


def _summary(outcome: Outcome) -> str:
    """`resume: 2 done, 1 refused`."""
    parts = [f"{outcome.verb}: {len(outcome.done)} {'would be done' if outcome.dry_run else 'done'}"]
    if outcome.refused:
        parts.append(f"{len(outcome.refused)} refused")
    if outcome.untried:
        because = outcome.stopped or "stopped; the same command does the rest"
        parts.append(f"{outcome.untried} not tried: {because}")
    return ", ".join(parts)
