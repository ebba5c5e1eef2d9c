"""What the operators' commands share: who acts, being asked first, and showing what was done."""

import getpass
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.text import Text

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli.options import read_id
from operations.bulk import Outcome
from operations.job_list import JobFilter
from operations.operator import Operator
from pipeline.errors import UsageRefused
from pipeline.principal import Interface, Principal, Role

UNREACHABLE = 3

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", parser=read_id, help="Jobs or batches; or choose jobs by options."),
]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why; kept in the history and the archive.")]
By = Annotated[str, typer.Option(help="Who; by default user@host.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


@contextmanager
def operator(context: typer.Context, by: str, reason: str) -> Iterator[Operator]:
    """The person at the keyboard, with a session."""
    settings = opened.settings()
    with opened.session(settings) as session:
        opened.quiet_logs(bool(context.obj))
        yield Operator(
            session=session,
            settings=settings,
            inventory=lambda: opened.inventory(settings),
            principal=principal(by),
            reason=reason,
        )


def principal(by: str = "") -> Principal:
    """The person at this command line: an administrator, because the record itself is open to them."""
    name = by or f"{getpass.getuser()}@{socket.gethostname()}"
    return Principal(name=name, role=Role.ADMIN, interface=Interface.CLI)


def confirm(question: str, yes: bool) -> None:
    """Ask, where the depositor would no longer be told; refuse where there is nobody to ask."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageRefused(f"{question} There is nobody to ask here: --yes says so")
    if not typer.confirm(question, err=True):
        raise typer.Exit(2)


def named(ids: list[str] | None, wanted: JobFilter) -> bool:
    """True if things are named one by one; UsageRefused unless they are either named or chosen."""
    by_filter = wanted != JobFilter()
    if bool(ids) == by_filter:
        raise UsageRefused(
            "say which: name jobs or batches, or choose jobs by --batch, --profile, --state or --older-than"
        )
    return bool(ids)


def show(outcome: Outcome, *, as_json: bool, single: bool) -> None:
    """Print what was done and exit: 1 if something was refused, 3 if a service did not answer."""
    code = UNREACHABLE if outcome.stopped else int(bool(outcome.refused or outcome.untried))
    if as_json:
        screen.emit(outcome)
        raise typer.Exit(code)
    would = "would become" if outcome.dry_run else "is now"
    for acted in outcome.done:
        line = Text.assemble(f"{acted.id} was {acted.was}, {would} ", screen.state(acted.now))
        screen.say(line)
        if acted.note:
            screen.note(f"{acted.id}: {acted.note}")
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
        because = f": {outcome.stopped}" if outcome.stopped else ": stopped; the same command does the rest"
        parts.append(f"{outcome.untried} not tried{because}")
    return ", ".join(parts)
