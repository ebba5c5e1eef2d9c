"""What the operators' commands share: session, selection, confirmation and result.

A submission uses this too: what only verbs need is imported where they need it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from entrypoints.cli import context as opened
from entrypoints.cli import exit_codes
from entrypoints.render import console as screen
from pipeline.errors import UsageRefused

if TYPE_CHECKING:
    from entrypoints.cli.api import Client
    from operations.site import Site
    from operations.verbs.bulk import Outcome

QUEUED_LATER = (
    "Redis does not answer, so no worker was notified; nothing is lost: ZooKeeper has the change, and "
    "the work continues once Redis is back"
)


@contextmanager
def quiet_site() -> Iterator[Site]:
    """The site of the environment, for a command that reports itself what the task layer would log."""
    opened.quiet_logs()
    with opened.site() as site:
        yield site


@contextmanager
def acting(site: Client) -> Iterator[None]:
    """A verb on many jobs: a progress bar on a terminal, and Ctrl-C stops before the next job.

    Of a verb in this process; a site that is asked over the network stops it once the caller has left.
    """
    if site.here is None:
        yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from operations.run import UNWATCHED, Run

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=screen.err(), transient=True, disable=not sys.stderr.isatty())
    with screen.interruptible() as interrupted, bars:
        task = bars.add_task("")

        def on_progress(done: float, total: int) -> None:
            bars.update(task, completed=done, total=total)

        site.here.acting = Run(on_progress, interrupted)
        try:
            yield
        finally:
            site.here.acting = UNWATCHED


def confirm(question: str, yes: bool) -> None:
    """Ask before an effect that cannot be undone; UsageRefused without a terminal and without --yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageRefused(f"{question} Not a terminal: add --yes to confirm")
    if not typer.confirm(question, err=True):
        raise typer.Exit(exit_codes.REFUSED)


def show(outcome: Outcome, *, as_json: bool, single: bool) -> None:
    """Print the results and exit: 1 if anything was refused or not tried, 3 if a service did not answer."""
    from rich.text import Text

    complete = not (outcome.refused or outcome.untried) and all(result.complete for result in outcome.done)
    code = exit_codes.UNREACHABLE if outcome.stopped else int(not complete)
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
        if not result.complete:
            screen.note(f"{result.id}: the deletion was stopped; the same command does the rest")
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
