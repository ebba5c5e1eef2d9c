"""Shows the fixity schedule, its checks and the damage that they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entrypoints.render import console as screen
from entrypoints.render.views import when
from pipeline.humanize import age, counted, duration
from pipeline.inventory.fixity import FixityCheck
from pipeline.names import printable
from pipeline.working_storage.capacity import in_units

if TYPE_CHECKING:
    from collections.abc import Iterable

    from operations.objects.fixity import FixityReport, FixityRun
    from pipeline.inventory.base import DamagedFile
    from pipeline.preservation.fixity import Unreadable


def report(view: FixityReport) -> None:
    counts = view.counts
    screen.facts(
        (
            ("objects", f"{counts.objects:,} in the schedule"),
            ("period", ", ".join(f"{name} {counted(days, 'day')}" for name, days in view.periods.items())),
            ("oldest", f"read {duration(age(counts.oldest))} ago" if counts.oldest else ""),
            ("overdue", counted(counts.overdue, "object") if counts.overdue else ""),
            ("damaged", counted(counts.damaged, "object") if counts.damaged else ""),
        )
    )
    for event in view.damage:
        screen.say(f"\n{event.ark}, found {when(event.at)}", "bold red")
        _damage(event.files)
        if event.damaged > len(event.files):
            screen.say(f"and {counted(event.damaged - len(event.files), 'more problem')}")
    if counts.damaged > len(view.damage):
        screen.note(f"{counted(counts.damaged - len(view.damage), 'more object')} damaged")
    if not counts.damaged:
        screen.say("No damage is known.", "green")


def checked(outcome: FixityCheck | Unreadable) -> None:
    """One object, as soon as it was checked."""
    if not isinstance(outcome, FixityCheck):
        screen.note(f"{outcome.ark} cannot be checked: {printable(outcome.problem)}")
    elif outcome.damaged:
        screen.say(f"{outcome.ark} is damaged: {counted(len(outcome.damaged), 'problem')}", "bold red")
        _damage(outcome.damaged)
    else:
        read = f"{counted(outcome.files, 'file')} of {counted(outcome.versions, 'version')}"
        screen.say(f"{outcome.ark} is proved: {read}, {in_units(outcome.bytes)}", "green")


def summary(run: FixityRun) -> None:
    if not run.complete:
        screen.note("interrupted: the next check continues")
    elif not run.checked and not run.unreadable:
        screen.say("Nothing is due.")


def _damage(files: Iterable[DamagedFile]) -> None:
    for file in files:
        name = f"{file.path} of version {file.version}" if file.path else "the description of the object"
        screen.say(printable(f"{name}: {file.what}."), "red")
        screen.say(printable(f"To do: {file.remedy}."))
