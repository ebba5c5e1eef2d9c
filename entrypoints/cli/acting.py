"""Shared by commands that act: progress, confirmation and results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import rich.text
import typer

from entrypoints.cli import exit_codes
from entrypoints.cli.back_off import BackOff
from entrypoints.render import screen
from operations import run
from pipeline.errors import UsageRefused
from pipeline.working_storage import capacity

if TYPE_CHECKING:
    from entrypoints.cli.api import Client
    from entrypoints.render.screen import Words
    from operations.run import Run
    from operations.verbs.bulk import Outcome
    from pipeline.records import Record

R = TypeVar("R", bound="Record")

QUEUED_LATER = (
    "Redis takes no message, so no worker was notified; nothing is lost: ZooKeeper has the change, and "
    "the work continues once Redis takes messages again"
)


def jobs_done(done: float, total: int) -> str:
    return f"{done:,.0f} of {total:,}"


def bytes_read(done: float, total: int) -> str:
    return f"read {capacity.in_units(int(done))}" + (f" of {capacity.in_units(total)}" if total else "")


def counted(what: str) -> Words:
    """Progress in words, for work of unknown total."""
    return lambda done, _: f"{done:,.0f} {what}"


@contextmanager
def shown(words: Words) -> Iterator[Run]:
    """Show progress; Ctrl-C stops the work before its next part."""
    with screen.interruptible() as interrupted, screen.counting(words) as on_progress:
        yield run.Run(on_progress, interrupted)


@contextmanager
def attended(site: Client, words: Words = jobs_done) -> Iterator[None]:
    """Show the progress of a request handled in this process; Ctrl-C stops it before its next part.

    A site on the network stops when its client disconnects.
    """
    if site.here is None:
        yield
        return
    with shown(words) as site.here.acting:
        try:
            yield
        finally:
            site.here.acting = run.UNWATCHED


def post(site: Client, path: str, kind: type[R], body: Mapping[str, object], **headers: str) -> R:
    """POST to the site, and show progress until it answers."""
    with attended(site):
        return site.post(path, kind, body, **headers)


def back_off() -> BackOff:
    """Wait for a site that is away, and print the reason."""
    return BackOff(lambda reason: screen.note(f"{reason}; trying again, for an hour at most"))


def confirm(question: str, yes: bool) -> None:
    """Confirm an irreversible effect; UsageRefused without a terminal and without --yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageRefused(f"{question} Not a terminal: add --yes to confirm")
    if not typer.confirm(question, err=True):
        raise typer.Exit(exit_codes.REFUSED)


def show(outcome: Outcome, *, as_json: bool, single: bool) -> None:
    """Print the results and exit."""
    code = exit_codes.of_outcome(outcome)
    if as_json:
        screen.emit(outcome)
        raise typer.Exit(code)
    would = "would become" if outcome.dry_run else "is now"
    for result in outcome.done:
        screen.say(
            rich.text.Text.assemble(
                f"{result.id} was {result.was}, {would} ",
                screen.state(result.now),
                f": {result.note}" if result.note else "",
            )
        )
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
