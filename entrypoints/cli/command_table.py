"""The commands of `arkline` as data, so that `arkline --help` imports no command module.

A command's module is imported when the command is run or asked for its help; the imports of that module are
loaded on first use. `tests/unit/test_cli.py` compares the table with the modules.
"""

import functools
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from entrypoints.cli import reach

_PACKAGES = ("entrypoints", "kombu", "operations", "pipeline", "rich", "tasks", "zkstate")
"""Packages whose modules are deferred."""

_LIBRARIES = ("prometheus_client", "redis")
"""Packages that are deferred as a whole."""


class _DeferringFinder(MetaPathFinder):
    """Finds these modules as usual, but defers loading them until first use."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        deferred = fullname in _LIBRARIES if path is None else fullname.partition(".")[0] in _PACKAGES
        if not deferred:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


_FINDER = _DeferringFinder()


@contextmanager
def deferring() -> Iterator[None]:
    """Defer modules imported within the block until first use, or until `load_all` is called."""
    if _FINDER in sys.meta_path:
        yield
        return
    sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        _end()


def load_all() -> None:
    """Load what is deferred and stop deferring: two threads that use a module at once would load it twice.

    Ctrl-C takes effect at the end: CPython drops an exception out of a deferred module that another one
    imports, and then says that the half of a module lacks a name.
    """
    _end()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for module in tuple(sys.modules.values()):
            getattr(module, "__file__", None)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _end() -> None:
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


@dataclass(frozen=True)
class Entry:
    """One command: a function of this name in `module`, a module of `commands`."""

    name: str
    module: str
    help: str
    """The first line of the command's own help."""
    commands: tuple[str, ...] = ()
    """The commands of a group; `profile check` is the function `profile_check`."""


GROUPS: dict[str, tuple[Entry, ...]] = {
    "Choose a site": (
        Entry("login", "login_commands", "Log in at a site by a page, and use that site from now on."),
        Entry("logout", "login_commands", "Log out: revoke the token at the site, and remove it here."),
        Entry(
            "whoami",
            "login_commands",
            "Show the site that commands ask, by which token, and what it allows.",
        ),
    ),
    "Submit deposits": (
        Entry("submit", "submit_command", "Submit files of this machine or at a URL; prints the batch's id."),
        Entry("watch", "watch_commands", "Show progress until a batch has ended."),
        Entry("report", "queue_commands", "Print a batch's current report."),
        Entry("manifest", "manifest_commands", "Checkm manifests.", ("check", "from-csv")),
        Entry(
            "profile",
            "profile_commands",
            "Collection profiles.",
            ("list", "show", "template", "check", "renew"),
        ),
    ),
    "Inspect": (
        Entry("status", "inspect_commands", "Show a batch, a job, or the health of the whole fleet."),
        Entry("top", "watch_commands", "Show jobs, stops and failures by cause as they change."),
        Entry("jobs", "inspect_commands", "List jobs."),
        Entry("timeline", "inspect_commands", "Show every step of a job, and how long it took."),
        Entry("why", "inspect_commands", "Explain what a job or batch waits for."),
        Entry("open", "inspect_commands", "Open the page of a deposit, a job or an object in the browser."),
        Entry(
            "collection", "inspect_commands", "Show what a collection stores, how it grows and what failed."
        ),
        Entry("objects", "inspect_commands", "Find objects by words, and by what checks found in them."),
        Entry(
            "object", "object_commands", "Show an object and prove its custody, or download one of its files."
        ),
        Entry("export", "object_commands", "Write an object as a BagIt bag."),
        Entry("fixity", "object_commands", "Fixity of the stored files.", ("report", "check")),
        Entry("recheck", "object_commands", "Check stored objects again by the checks of their profile."),
        Entry("space", "queue_commands", "Show working storage and the jobs that reserve it."),
        Entry("check", "store_commands", "Check that record, storage and inventory agree."),
        Entry("audit", "store_commands", "The older name of `check --jobs`."),
    ),
    "Act on jobs and batches": (
        Entry("hold", "verb_commands", "Hold pending jobs or a whole collection."),
        Entry("release", "verb_commands", "Release held jobs, batches or a collection."),
        Entry(
            "resume", "verb_commands", "Resume failed jobs at the step that failed; of a batch, all of them."
        ),
        Entry("approve", "verb_commands", "Approve jobs in review: they continue and are stored."),
        Entry("reject", "verb_commands", "Reject jobs in review: they fail, and the depositor learns why."),
        Entry("fail", "verb_commands", "Stop jobs that have not ended."),
        Entry("delete", "verb_commands", "Delete failed or held jobs and batches."),
        Entry("cancel", "verb_commands", "Stop a batch."),
        Entry("repair", "verb_commands", "Replace znodes of a job or batch that cannot be read."),
        Entry("update-report", "verb_commands", "Send the depositor the changes since the last report."),
    ),
    "Operate the queue": (
        Entry("pause", "queue_commands", "Stop starting new jobs."),
        Entry("unpause", "queue_commands", "Start new jobs again."),
        Entry("history", "queue_commands", "Show who did what to a batch, a collection or the fleet."),
        Entry("drain", "queue_commands", "Stop a worker from taking new jobs."),
        Entry("fleet", "queue_commands", "The size of the fleet.", ("plan",)),
        Entry(
            "notify",
            "notify_commands",
            "Notifications by mail or webhook.",
            ("add", "list", "confirm", "test", "remove"),
        ),
        Entry("callback", "queue_commands", "Callbacks to depositors' systems.", ("list", "deliver", "test")),
        Entry("cleanup", "queue_commands", "Archive old batches and remove unused folders."),
    ),
    "Run on this machine": (
        Entry("doctor", "doctor_commands", "Examine this host, its servers and the fleet; say what to do."),
        Entry(
            "support-bundle", "doctor_commands", "Write what an engineer needs from afar, without secrets."
        ),
        Entry("init", "store_commands", "Give record, storage root and inventory one deployment id."),
        Entry("backup", "store_commands", "Copy the record and the inventory into a folder."),
        Entry("restore", "store_commands", "Restore a lost record from a backup."),
        Entry(
            "token", "token_commands", "Tokens of the REST API and the pages.", ("create", "list", "revoke")
        ),
        Entry(
            "certificates",
            "certificates_commands",
            "Certificates of this deployment's servers.",
            ("renew",),
        ),
        Entry("exporter", "serving_commands", "Serve the metrics for Prometheus."),
        Entry("web", "serving_commands", "Serve the REST API and the pages."),
        Entry("reconcile", "store_commands", "The older name of `check`."),
        Entry("worker", "program_commands", "Run a worker until SIGTERM."),
        Entry("beat", "program_commands", "Run a scheduler until SIGTERM."),
        Entry("flower", "program_commands", "Run Flower, which shows the workers' tasks, until SIGTERM."),
        Entry("standalone", "standalone_command", "Run a whole stack on this machine.", ("start", "stop")),
    ),
}
"""Heading in the help -> its commands."""

ENTRIES = tuple(entry for entries in GROUPS.values() for entry in entries)
_BY_NAME = {entry.name: entry for entry in ENTRIES}


def load(name: str) -> Any:
    """The command of this name, imported from its module; None if the table has no such command."""
    entry = _BY_NAME.get(name)
    if entry is None:
        return None
    app = typer.Typer(
        help=entry.help,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_no_options)  # a group, even if the module has only one command
    prefix = f"{name}_" if entry.commands else ""
    with deferring():
        module = import_module(f"{__package__}.commands.{entry.module}")
        for command in entry.commands or (name,):
            function = getattr(module, f"{prefix}{command}".replace("-", "_"))
            path = f"{name} {command}" if entry.commands else name
            app.command(command, epilog=f"Example: {function.example}")(_for_host(path, function))
    group = get_group(app)
    return group if entry.commands else group.commands[name]


def _for_host(name: str, function: Callable[..., None]) -> Callable[..., None]:
    """The command; a host-only command is refused if ARKLINE_URL names another site."""
    if name not in reach.HOST_ONLY:
        return function

    @functools.wraps(function)
    def run(*values: Any, **options: Any) -> None:
        reach.refuse_over_api(f"`arkline {name}`")
        function(*values, **options)

    return run


def _no_options() -> None:
    """Callback of a group: does nothing."""


class LazyGroup(TyperGroup):
    """Lists its commands from the table, and imports the module of the requested command."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {entry.name: TyperCommand(entry.name, help=entry.help) for entry in ENTRIES}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for group, entries in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(entry.name, entry.help) for entry in entries])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete names of commands and options; the table's entries stand for the commands."""
        ctx.command = TyperGroup(name=self.name, commands=dict(self.commands))
        return super().shell_complete(ctx, incomplete)
