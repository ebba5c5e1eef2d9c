"""Lists that are shown once or, with --watch, again whenever the site's stream of events says so.

The stream tells of changes of jobs, batches and stops, and is never silent for long: then the list is read
once more, because other things change without an event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import rich.console
import rich.live
import typer
from pydantic_core import to_jsonable_python

from entrypoints.cli import api, exit_codes
from entrypoints.render import screen, views
from pipeline import humanize
from pipeline.errors import ServiceUnreachable

if TYPE_CHECKING:
    from operations.board.values import Freshness

R = TypeVar("R")

PAUSE = 1.0
"""Seconds between two readings of a list, however many events come."""

LONGEST_PAUSE = 30.0
"""Maximum seconds between two tries to reach a site that is away; each pause is twice the one before."""

SILENCE = 45.0
"""Seconds after which a stream without a word is broken: the site sends a comment every 15 seconds."""


def show(
    site: api.Client,
    read: Callable[[api.Client], R],
    draw: Callable[[R], None],
    *,
    watch: bool,
    as_json: bool,
    document: Callable[[R], Any] = to_jsonable_python,
) -> None:
    """Show the list that `read` returns; with `watch`, until Ctrl-C.

    On a terminal it is redrawn in place when it differs; elsewhere each row that is new or differs is a line.
    """
    if not watch:
        value = read(site)
        screen.emit(document(value)) if as_json else draw(value)
        require_current(value)
    elif as_json or not screen.out().is_terminal:
        _lines((document(value), problem) for value, problem in readings(site, read))
    else:
        _in_place(readings(site, read), draw)


def _stale(value: object) -> Freshness | None:
    """The freshness of a value that the web process has from memory and cannot renew."""
    freshness = getattr(value, "freshness", None)
    return freshness if freshness is not None and freshness.stale else None


def require_current(value: object) -> None:
    """Say on standard error that a value is not current, and exit as if a service did not answer."""
    if (stale := _stale(value)) is not None:
        screen.note(f"not current: as of {views.when(stale.as_of)}; {views.WHY_STALE}")
        raise typer.Exit(exit_codes.UNREACHABLE)


def readings(site: api.Client, read: Callable[[api.Client], R]) -> Iterator[tuple[R, str]]:
    """The list after each change, with why it is not current; the last one while the site does not answer."""
    stream, pause = replace(site, timeout=SILENCE), PAUSE
    value = read(site)
    yield value, views.WHY_STALE if _stale(value) else ""
    with screen.lost_interrupts() as check:
        while True:
            problem = ""
            try:
                for piece in stream.pieces("/v1/events"):  # the first event comes at once
                    check()
                    if b"\n\n" not in piece:
                        continue  # the beginning of an event
                    value = read(stream)
                    yield value, views.WHY_STALE if _stale(value) else ""
                    pause = PAUSE
                    time.sleep(PAUSE)
            except ServiceUnreachable as error:
                problem = str(error)
                yield value, problem
            check()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def noting(back: str = "the site answers again") -> Callable[[str], None]:
    """A function of the problem after each try, empty if there is none, that notes what is new."""
    away = False

    def note(problem: str) -> None:
        nonlocal away
        if bool(problem) is not away:
            screen.note(f"{problem}; still trying" if problem else back)
        away = bool(problem)

    return note


def _lines(lists: Iterator[tuple[Any, str]]) -> None:
    before: dict[str, Any] = {}
    note = noting()
    for document, problem in lists:
        note(problem)
        rows = dict(screen.rows_of(document))
        screen.emit_rows({name: row for name, row in rows.items() if before.get(name) != row})
        before = rows


def _in_place(lists: Iterator[tuple[R, str]], draw: Callable[[R], None]) -> None:
    before, read_at = "", time.time()
    with rich.live.Live(console=screen.out(), auto_refresh=False) as area:
        for value, problem in lists:
            if (stale := _stale(value)) is not None:
                read_at = stale.as_of.timestamp()
            elif not problem:
                read_at = time.time()
            drawn = screen.drawn(partial(draw, value))
            text = screen.as_text(drawn)
            if text == before and not problem:
                continue
            before = "" if problem else text
            moment = time.strftime("%H:%M:%S", time.localtime(read_at))
            away = f", {humanize.duration(time.time() - read_at)} ago: {problem}" if problem else ""
            area.update(rich.console.Group(drawn, f"as of {moment}{away}"), refresh=True)
