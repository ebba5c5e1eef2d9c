"""Drawings: histories and states of jobs as ribbons, working storage as a bar, and hours as columns.

Widths are attributes, because the pages' content security policy forbids style attributes. A table beside the
drawing has the same facts, for screen readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from entrypoints.web.pages.templating import render
from operations.board.throughput import HOURS
from operations.board.values import Hour
from operations.fleet.health import Space
from operations.jobs.job_view import Step
from pipeline.states import JOB, JobState
from pipeline.working_storage.capacity import in_units

WIDTH = 1000
"""Width of a drawing in units."""

NARROWEST = 6
"""Width of the shortest segment in units: a state of some milliseconds must be visible."""

WAITING = frozenset(JOB.where(lambda facts: not facts.occupies_place and not facts.ended))
"""States in which no worker works on the job; drawn hatched."""


@dataclass(frozen=True)
class Segment:
    """A part of the ribbon: one stay in a state, or the jobs in a state."""

    state: str
    x: float
    width: float
    label: str
    waits: bool = False


@dataclass(frozen=True)
class Mark:
    """A moment on the ribbon: an attempt that met a fault, or a person's act."""

    x: float
    label: str


@dataclass(frozen=True)
class Ribbon:
    segments: tuple[Segment, ...]
    tries: tuple[Mark, ...] = ()
    people: tuple[Mark, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class _Stay:
    state: JobState
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        # two workers' clocks may disagree: a stay never ends before it began
        return max((self.end - self.start).total_seconds(), 0.0)


def of_history(steps: Sequence[Step], ended: bool, moment: datetime | None = None) -> Ribbon:
    """The stays in states, with widths by duration; an unfinished job is drawn up to `moment`."""
    until = moment or datetime.now(UTC)
    stays = tuple(_stays(steps, ended, until))
    widths = _widths([stay.seconds for stay in stays])
    starts = [sum(widths[:number]) for number in range(len(widths))]
    segments = tuple(
        Segment(stay.state, round(x, 1), round(width, 1), _spent(stay), stay.state in WAITING)
        for stay, x, width in zip(stays, starts, widths, strict=True)
    )

    def position(at: datetime) -> float:
        for stay, x, width in zip(stays, starts, widths, strict=True):
            if at < stay.end or stay is stays[-1]:
                share = (at - stay.start).total_seconds() / stay.seconds if stay.seconds else 0.0
                return round(x + width * min(max(share, 0.0), 1.0), 1)
        return 0.0

    return Ribbon(
        segments=segments,
        tries=tuple(Mark(position(step.at), f"try met: {step.message}") for step in steps if _is_try(step)),
        people=tuple(
            Mark(
                position(step.at),
                f"{step.event} by {step.by}" + (f": {step.message}" if step.message else ""),
            )
            for step in steps
            if step.via is not None
        ),
        label=", ".join(segment.label for segment in segments),
    )


def of_counts(counts: Mapping[JobState, int]) -> Ribbon:
    """The states, with widths by number of jobs."""
    present = {state: counts[state] for state in JobState if counts.get(state)}
    widths = _widths([float(number) for number in present.values()])
    segments = tuple(
        Segment(state, round(sum(widths[:number]), 1), round(widths[number], 1), f"{jobs:,} {state}")
        for number, (state, jobs) in enumerate(present.items())
    )
    return Ribbon(segments=segments, label=", ".join(segment.label for segment in segments) or "no jobs")


def _stays(steps: Sequence[Step], ended: bool, until: datetime) -> Iterator[_Stay]:
    """One stay for all adjacent entries of a state; the end of an ended job takes no time."""
    starts = [
        step for number, step in enumerate(steps) if number == 0 or step.state != steps[number - 1].state
    ]
    for number, step in enumerate(starts):
        last = number == len(starts) - 1
        end = (step.at if ended else until) if last else starts[number + 1].at
        yield _Stay(step.state, step.at, end)


def _is_try(step: Step) -> bool:
    return step.event is None and step.kind is not None


def _spent(stay: _Stay) -> str:
    return f"{stay.state} {stay.seconds:,.1f} s" if stay.seconds else f"{stay.state}"


def _widths(amounts: Sequence[float]) -> list[float]:
    """Widths that together are WIDTH: in proportion, but none below NARROWEST.

    >>> _widths([1.0, 3.0]), _widths([0.0, 10.0]), _widths([])
    ([250.0, 750.0], [6.0, 994.0], [])
    """
    if not amounts:
        return []
    total = sum(amounts)
    if not total:
        return [WIDTH / len(amounts)] * len(amounts)
    narrow = [amount * WIDTH / total < NARROWEST for amount in amounts]
    left = WIDTH - NARROWEST * sum(narrow)
    wide = sum(amount for amount, is_narrow in zip(amounts, narrow, strict=True) if not is_narrow)
    return [
        float(NARROWEST) if is_narrow else amount * left / wide
        for amount, is_narrow in zip(amounts, narrow, strict=True)
    ]


HIGHEST = 60
"""Height of the highest column in units."""

GAP = 8
"""Units between two columns."""


@dataclass(frozen=True)
class Box:
    """A part of a column; `kind` is its colour."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    label: str


def columns(stacks: Sequence[Sequence[tuple[str, int, str]]]) -> tuple[Box, ...]:
    """A column for each stack of (kind, amount, label), from the ground up; a thing not known is in no stack.

    There is room for HOURS columns; fewer stand at the right, where the present is. An amount of zero is a
    line on the ground, so that it differs from what is not known.
    """
    step = WIDTH / HOURS
    highest = max((sum(amount for _, amount, _ in stack) for stack in stacks), default=0)
    boxes: list[Box] = []
    for number, stack in enumerate(stacks, HOURS - len(stacks)):
        top = float(HIGHEST)
        for kind, amount, label in stack:
            height = max(1.0, (HIGHEST - 2) * amount / highest) if amount else float(top == HIGHEST)
            top -= height
            x = round(number * step + GAP / 2, 1)
            boxes.append(Box(x, round(top, 1), round(step - GAP, 1), round(height, 1), kind, label))
    return tuple(boxes)


def of_hours(hours: Sequence[Hour]) -> tuple[tuple[str, tuple[Box, ...]], ...]:
    """The name and the columns of what ended, and of the bytes stored, hour by hour."""
    objects: list[list[tuple[str, int, str]]] = []
    sizes: list[list[tuple[str, int, str]]] = []
    for hour in hours:
        name = f"{hour.begins:%Y-%m-%d %H:%M} UTC"
        stored, failed = hour.stored, hour.failed
        stack = [("completed", stored, f"{name}: {stored:,} stored")] if stored is not None else []
        stack += [("failed", failed, f"{name}: {failed:,} failed")] if failed is not None else []
        objects.append(stack)
        size = hour.bytes
        sizes.append([("processing", size, f"{name}: {in_units(size)}")] if size is not None else [])
    return ("Objects an hour", columns(objects)), ("Bytes an hour", columns(sizes))


def picture(space: Space) -> Markup:
    """Working storage as a bar; without a total on a machine that has no working storage."""
    total, used = space.total or 0, space.used or 0
    limit = total * space.threshold // 100
    scale = WIDTH / total if total else 0.0
    used_width = min(used * scale, WIDTH)
    return render(
        "space_picture.html",
        total=space.total,
        used=used,
        reserved=space.reserved,
        limit=limit,
        left=max(0, limit - used - space.reserved),
        threshold=space.threshold,
        used_width=round(used_width, 1),
        # reserved bytes already on the disk are drawn as used
        reserved_width=round(min(space.reserved * scale, WIDTH - used_width), 1),
        limit_x=round(limit * scale, 1),
    )
