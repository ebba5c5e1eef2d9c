"""Commands that check manifests, and convert tables to manifests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli import api, completion, context
from entrypoints.cli.commands import submit_command
from entrypoints.cli.options import Columns, Json, SheetName, command, table_choice
from entrypoints.render import judgement, screen
from operations.deposits import local_deposit, validation
from pipeline import records
from pipeline.errors import UsageRefused
from pipeline.manifests import checkm, from_csv
from pipeline.tables.content import TableUnreadable

if TYPE_CHECKING:
    from operations.deposits.validation import ManifestBytes
    from pipeline.manifests.checkm import ManifestProfile
    from pipeline.settings import Settings

_MANIFESTS = "object-manifest, batch-manifest, container-batch-manifest or single-file-batch-manifest"

CaseSensitive = Annotated[
    bool,
    typer.Option(
        "--case-sensitive/--no-case-sensitive",
        help="Accept or refuse names that differ only in upper and lower case.",
    ),
]


@command("arkline manifest check harbour.checkm")
def manifest_check(
    source: Annotated[str, typer.Argument(metavar="FILE|URL", help="The manifest.")],
    kind: Annotated[str, typer.Option("--type", "-t", help=f"The expected type: {_MANIFESTS}.")] = "",
    profile_name: Annotated[
        str,
        typer.Option(
            "--profile",
            "-p",
            autocompletion=completion.profiles,
            help="The profile of a collection: what the collection would refuse is reported, too, and which "
            "objects would get a new version.",
        ),
    ] = "",
    case_sensitive: CaseSensitive = True,
    json: Json = False,
) -> None:
    """Report every problem of a manifest with its line.

    Exit 1 if its submission would be refused. The files that its rows name are not fetched.
    """
    settings = context.settings()
    expected = _profile_of(kind) if kind else None
    if "://" in source:
        manifest = validation.fetch_manifest(settings, source)
    else:
        manifest = _read(settings, Path(source))
    result = validation.check_manifest(settings, manifest, expected, not case_sensitive)
    if profile_name and result.good:
        deposit = validation.planned_deposit(manifest, expected)
        submission = records.Submission(
            profile_name=profile_name, payload_url=manifest.name, type=deposit.type, new_version=False
        )
        with api.site() as site:
            judged = submit_command.dry_run_of_files(site, submission, deposit)
        result = validation.with_judgement(result, deposit, judged)
    screen.emit(result) if json else judgement.show((result,))
    raise typer.Exit(int(not result.good))


def _read(settings: Settings, path: Path) -> ManifestBytes:
    """Read a manifest or a table from a file on this machine; UsageRefused if the file is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(settings.manifest_limit + 1)
    except OSError as error:
        raise UsageRefused(f"{path} cannot be read: {error.strerror}") from error
    validation.check_manifest_size(settings, len(data), str(path))
    return validation.ManifestBytes(str(path), data)


@command("arkline manifest from-csv --type object-manifest files.csv --output files.checkm")
def manifest_from_csv(  # noqa: PLR0913 - a command's arguments are its options
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The table: CSV, TSV, XLSX, XLS or ODS, with a header row."),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            "-t",
            help=f"{_MANIFESTS}. By default an object of each row, as when it is submitted.",
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The manifest's file; standard output if left out."),
    ] = None,
    columns: Columns = None,
    sheet: SheetName = "",
    template: Annotated[
        bool,
        typer.Option("--template", help="Print an empty table with its header row only."),
    ] = False,
    case_sensitive: CaseSensitive = True,
    json: Json = False,
) -> None:
    """Turn a table into a manifest.

    Columns are found by usual names, such as URL, MD5, Author and Year; --column names the others.
    Exit 1 without a manifest if the table has an error; every problem is reported with its row. With
    --json the problems go to standard output, and the manifest only to --output.
    """
    profile = _profile_of(kind) if kind else None
    if template:
        text = from_csv.template(profile or checkm.ManifestProfile.FILE_BATCH)
        screen.emit({"template": text}) if json else sys.stdout.write(text)
        return
    if file is None:
        raise UsageRefused("name the file with the table, or add --template to get an empty one")
    settings, choice = context.settings(), table_choice(columns, sheet)
    table = _read(settings, file)
    try:
        content = local_deposit.read_table(table.data, table.name, choice, settings)
    except TableUnreadable as error:
        problems = (checkm.Problem(error.row, error.reason),)
        result = validation.check_result(table.name, problems, "table", None)
    else:
        profile = profile or from_csv.batch_profile(content)
        conversion = from_csv.convert(content, profile, not case_sensitive, choice.columns)
        kind = profile.submission_type.label
        result = validation.check_result(table.name, conversion.problems, kind, len(conversion.rows))
        if (manifest := conversion.manifest()) is not None:
            _write(manifest, output, to_screen=not json)
    if json:
        screen.emit(result)
    else:
        judgement.print_problems(result)
    raise typer.Exit(int(not result.good))


def _profile_of(kind: str) -> ManifestProfile:
    for profile in checkm.ManifestProfile:
        if profile.submission_type.label == kind.replace("_", "-"):
            return profile
    raise typer.BadParameter(f"'{kind}' is not one of {_MANIFESTS}", param_hint="--type")


def _write(manifest: bytes, output: Path | None, *, to_screen: bool) -> None:
    if output is None:
        if to_screen:
            sys.stdout.buffer.write(manifest)
            sys.stdout.flush()
        return
    try:
        output.write_bytes(manifest)
    except OSError as error:
        raise UsageRefused(f"{output} cannot be written: {error.strerror}") from error
