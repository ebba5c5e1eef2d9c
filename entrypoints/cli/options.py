"""Declares commands: shared options, and the parsers of their values.

Help needs this module, so it imports nothing that is slow to load.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

import typer

from entrypoints.cli import completion
from entrypoints.render import screen
from pipeline import humanize
from pipeline.states import JOB, JobState
from pipeline.tables import content

ID = {"bid": re.compile(r"bid\d{10,}"), "jid": re.compile(r"jid\d{10,}")}


def read_duration(text: str) -> float:
    try:
        return humanize.seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def read_bid(text: str) -> str:
    return _read_id(text, "bid", "the id of a batch looks like bid0000000001")


def read_jid(text: str) -> str:
    return _read_id(text, "jid", "the id of a job looks like jid0000000001")


def read_id(text: str) -> str:
    """The id of a batch or a job."""
    if text.startswith("bid"):
        return read_bid(text)
    return _read_id(text, "jid", "an id looks like bid0000000001 (a batch) or jid0000000001 (a job)")


def _read_id(text: str, prefix: str, explained: str) -> str:
    if not ID[prefix].fullmatch(text):
        raise typer.BadParameter(f"'{text}' is not an id: {explained}")
    return text


Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        "-c",
        metavar="TITLE=FIELD",
        help="The field of a column of the table, as 'Signatur=local id'; TITLE= leaves the column out. "
        "Repeatable.",
    ),
]
SheetName = Annotated[
    str, typer.Option("--sheet", metavar="NAME", help="The sheet of a spreadsheet; by default the first.")
]


def table_choice(columns: Sequence[str] | None, sheet: str) -> "content.Choice":
    for column in columns or ():
        if "=" not in column:
            raise typer.BadParameter(f"'{column}' is not TITLE=FIELD", param_hint="--column")
    named = (column.partition("=") for column in columns or ())
    return content.Choice(sheet=sheet, columns={title: name for title, _, name in named})


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, and nothing else, on standard output.")
]
Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        "-w",
        help="Show the list again when it changes, until Ctrl-C; rows that change are lines if it is not a "
        "terminal, or with -o.",
    ),
]
Bid = Annotated[
    str,
    typer.Argument(
        metavar="BID",
        parser=read_bid,
        autocompletion=completion.bids,
        help="A batch, such as bid0000000001.",
    ),
]


def _named(metavar: str, kinds: str) -> Any:
    """The argument for ids."""
    return typer.Argument(
        metavar=metavar,
        parser=read_id,
        autocompletion=completion.ids,
        help=f"{kinds}; or select jobs by options.",
    )


@dataclass(frozen=True)
class SharedOptions:
    """The values of the shared options; options that a command does not offer keep their defaults."""

    ids: Annotated[list[str] | None, _named("ID", "Jobs or batches")] = None
    jids: Annotated[list[str] | None, _named("JID", "Jobs")] = None
    """As `ids`, of a verb for jobs alone; the verb refuses a batch in words of its own."""
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", "-p", autocompletion=completion.profiles, help="Only jobs of this collection."
        ),
    ] = None
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            "-b",
            metavar="BID",
            parser=read_bid,
            autocompletion=completion.bids,
            help="Only jobs of this batch.",
        ),
    ] = None
    state: Annotated[
        JobState | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            help="Only jobs in this state: " + ", ".join(JOB.where(lambda facts: facts.queued)) + ".",
        ),
    ] = None
    cause: Annotated[
        str | None,
        typer.Option("--cause", metavar="ID", help="Only failed jobs of this cause; `top` lists the causes."),
    ] = None
    older_than: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION",
            parser=read_duration,
            help="Only jobs that have not moved for this long: 90s, 30m, 2h, 3d.",
        ),
    ] = None
    version: Annotated[
        int | None,
        typer.Option(
            "--if-version",
            metavar="N",
            help="Act only if the job or batch still has this version; `status --json` shows it.",
        ),
    ] = None
    reason: Annotated[
        str, typer.Option("--reason", "-r", help="Reason; recorded in the history and the archive.")
    ] = ""
    by: Annotated[str, typer.Option(help="Name of the person who acts; default: user@host.")] = ""
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = (
        False
    )
    json: Json = False
    offered: tuple[str, ...] = ()
    """The options that the command has."""

    @property
    def named(self) -> list[str]:
        """The jobs and batches that the command line names."""
        return self.ids or self.jids or []


class Shown(StrEnum):
    TABLE = "table"
    JSON = "json"


class ShownWithIds(StrEnum):
    TABLE = Shown.TABLE
    JSON = Shown.JSON
    NAME = "name"


def command(
    example: str, *shared: str, ids: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command, with an example for its help.

    The function gets the values of the `shared` options as one `SharedOptions`, its first argument. `ids`:
    where its answer has the ids that `-o name` prints, as `jobs.jid`; several places if answers differ.
    """

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        declared = _with_output(_with_options(function, shared) if shared else function, ids.split())
        declared.example = example  # type: ignore[attr-defined]
        return declared

    return declare


def _with_output(function: Callable[..., None], ids: list[str]) -> Callable[..., None]:
    """Add `-o` to a command that has `--json`, unless its `-o` is a file."""
    parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    if not {"json"} <= (names := {parameter.name for parameter in parameters}) or "output" in names:
        return function

    def run(*given: Any, output: str | None = None, **values: Any) -> None:
        if output is not None:
            if values.get("json") and output != Shown.JSON:
                raise typer.BadParameter("--json is the same as -o json", param_hint="--output")
            values["json"] = output != Shown.TABLE
        with screen.answering(ids, alone=output == ShownWithIds.NAME):
            function(*given, **values)

    kind = ShownWithIds if ids else Shown
    text = "How to print the answer; json is --json" + (", name is one id a line." if ids else ".")
    option = typer.Option("--output", "-o", help=text)
    output = _keyword("output", None, Annotated[kind | None, option])
    return _declared(run, function, [*parameters, output])


def _keyword(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _declared(
    run: Callable[..., None], function: Callable[..., None], parameters: list[inspect.Parameter]
) -> Callable[..., None]:
    """`run`, which shows itself as `function` with these parameters."""
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _with_options(function: Callable[..., None], names: tuple[str, ...]) -> Callable[..., None]:
    def run(**values: Any) -> None:
        given = {name: values.pop(name) for name in names}
        function(SharedOptions(**given, offered=names), **values)

    hints = get_type_hints(SharedOptions, include_extras=True)
    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    parameters = [
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
        *(_keyword(name, getattr(SharedOptions, name), hints[name]) for name in names),
    ]
    return _declared(run, function, parameters)
