"""The commands of `arkline` as data, so that `arkline --help` imports none of their modules.

A command's module is imported when the command is run or asked for its own help. `tests/unit/test_cli.py`
compares the table with the modules.
"""

from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group


@dataclass(frozen=True)
class Entry:
    """One command: `module` is a module of this package whose `register` adds the command to an app."""

    name: str
    module: str
    group: str
    help: str
    """The first line of the command's own help."""


_DEPOSIT = "Submit deposits"
_INSPECT = "Inspect"
_ACT = "Act on jobs and batches"
_QUEUE = "Operate the queue"
_MACHINE = "Run on this machine"

ENTRIES = (
    Entry("submit", "submit_command", _DEPOSIT, "Submit the payload at a URL; prints the batch's id."),
    Entry("watch", "watch_command", _DEPOSIT, "Show progress until a batch has ended."),
    Entry("report", "queue_commands", _DEPOSIT, "Print a batch's current report."),
    Entry("manifest", "check_commands", _DEPOSIT, "Checkm manifests."),
    Entry("profile", "check_commands", _DEPOSIT, "Collection profiles."),
    Entry("status", "inspect_commands", _INSPECT, "Show a batch, a job, or the health of the whole fleet."),
    Entry("jobs", "inspect_commands", _INSPECT, "List jobs."),
    Entry("timeline", "inspect_commands", _INSPECT, "Show every step of a job, and how long it took."),
    Entry("why", "inspect_commands", _INSPECT, "Explain what a job or batch waits for."),
    Entry("object", "object_command", _INSPECT, "Show an object and prove its custody."),
    Entry("space", "queue_commands", _INSPECT, "Show working storage and the jobs that reserve it."),
    Entry("audit", "inspect_commands", _INSPECT, "Check that ZooKeeper's nodes agree."),
    Entry("hold", "verb_commands", _ACT, "Hold pending jobs or a whole collection."),
    Entry("release", "verb_commands", _ACT, "Release held jobs, batches or a collection."),
    Entry("resume", "verb_commands", _ACT, "Resume failed jobs at the step that failed."),
    Entry("fail", "verb_commands", _ACT, "Stop jobs that have not ended."),
    Entry("delete", "verb_commands", _ACT, "Delete failed or held jobs and batches."),
    Entry("cancel", "verb_commands", _ACT, "Stop every job of a batch."),
    Entry("update-report", "verb_commands", _ACT, "Send the depositor the changes since the last report."),
    Entry("pause", "queue_commands", _QUEUE, "Stop starting new jobs."),
    Entry("unpause", "queue_commands", _QUEUE, "Start new jobs again."),
    Entry("history", "queue_commands", _QUEUE, "Show who did what to a batch, a collection or the queue."),
    Entry("drain", "queue_commands", _QUEUE, "Stop a worker from taking new jobs."),
    Entry("cleanup", "queue_commands", _QUEUE, "Archive old batches and remove unused folders."),
    Entry("standalone", "standalone_command", _MACHINE, "Run a whole stack on this machine."),
)
_BY_NAME = {entry.name: entry for entry in ENTRIES}


def load(name: str) -> Any:
    """The command of this name, from its module; None if the table has no such command."""
    entry = _BY_NAME.get(name)
    if entry is None:
        return None
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(_no_options)  # a group, also when the module has one command only
    import_module(f"{__package__}.{entry.module}").register(app)
    return get_group(app).commands[name]


def _no_options() -> None:
    """Do nothing before the command."""


class LazyGroup(TyperGroup):
    """Lists its commands from the table, and imports the module of the requested command."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {entry.name: TyperCommand(entry.name, help=entry.help) for entry in ENTRIES}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for group, entries in groupby(ENTRIES, lambda entry: entry.group):
            with formatter.section(group):
                formatter.write_dl([(entry.name, entry.help) for entry in entries])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The names of commands and options; the table's lines stand for the commands."""
        ctx.command = TyperGroup(name=self.name, commands=dict(self.commands))
        return super().shell_complete(ctx, incomplete)
