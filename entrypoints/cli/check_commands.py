"""Commands that judge profiles and manifests before anything is submitted."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import operator_options as acting
from entrypoints.cli.operator_options import By, DryRun, Reason
from entrypoints.cli.options import Bid, Json
from operations.profile_renewal import renew
from operations.validation import Checked, check_manifest, check_profiles, read_file, sorted_out
from operations.wording import counted
from pipeline.errors import UsageRefused
from pipeline.manifests import from_csv as manifest_csv
from pipeline.manifests.checkm import ManifestProfile
from pipeline.profiles.profile import Profiles

_MANIFESTS = "object-manifest, batch-manifest, container-batch-manifest or single-file-batch-manifest"

CaseSensitive = Annotated[
    bool,
    typer.Option("--case-sensitive", help="Take names that differ only in upper and lower case."),
]


def register(app: typer.Typer) -> None:
    profile = _group("Collection profiles.")
    profile.command("check", epilog="Example: arkline profile check demo")(profile_check)
    profile.command("renew", epilog="Example: arkline profile renew bid0000000001 --dry-run")(profile_renew)
    app.add_typer(profile, name="profile")
    manifest = _group("Checkm manifests.")
    manifest.command("check", epilog="Example: arkline manifest check harbour.checkm")(manifest_check)
    manifest.command("from-csv", epilog=_CSV_EXAMPLE)(from_csv)
    app.add_typer(manifest, name="manifest")


_CSV_EXAMPLE = "Example: arkline manifest from-csv --type object-manifest files.csv --output files.checkm"


def _group(text: str) -> typer.Typer:
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def profile_check(
    which: Annotated[
        str | None,
        typer.Argument(metavar="NAME|FILE", help="A profile, or its file; or all in ARKLINE_PROFILES."),
    ] = None,
    json: Json = False,
) -> None:
    """Judge one profile or all.

    Exit 1 if one cannot be used. What has no meaning here is a warning.
    """
    found = check_profiles(Profiles(opened.settings().profiles), which)
    _show(found, {"profiles": found}, as_json=json)


def profile_renew(
    context: typer.Context,
    bid: Bid,
    dry_run: DryRun = False,
    reason: Reason = "",
    by: By = "",
    json: Json = False,
) -> None:
    """Let a batch go on by its collection's profile as the file says now.

    A batch keeps the profile it started with; after a fault in that was mended, renew it, then resume.
    """
    with acting.operator(context, by, reason) as operator:
        renewed = renew(operator, bid, dry_run=dry_run)
    if json:
        screen.emit(renewed)
        return
    for field, (before, after) in renewed.changes.items():
        screen.say(f"{field}: {before} -> {after}")
    would = "would go" if dry_run else "goes"
    screen.note(
        f"{renewed.bid} {would} on by profile {renewed.profile}, "
        f"{counted(len(renewed.changes), 'field')} changed"
    )


def manifest_check(
    source: Annotated[str, typer.Argument(metavar="FILE|URL", help="The manifest.")],
    kind: Annotated[str, typer.Option("--type", "-t", help=f"What it should be: {_MANIFESTS}.")] = "",
    case_sensitive: CaseSensitive = False,
    json: Json = False,
) -> None:
    """Report every problem of a manifest with its line.

    Exit 1 if a submission of it would be refused. What its rows name is not fetched.
    """
    expected = _profile_of(kind) if kind else None
    found = check_manifest(opened.settings(), source, expected, not case_sensitive)
    _show((found,), found, as_json=json)


def from_csv(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The table: CSV in UTF-8 with a line of titles.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--type", "-t", help=f"{_MANIFESTS}.", show_default=True)
    ] = "object-manifest",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the manifest goes; standard output if none.")
    ] = None,
    template: Annotated[
        bool, typer.Option("--template", help="Print a table to fill in, and do nothing else.")
    ] = False,
    case_sensitive: CaseSensitive = False,
    json: Json = False,
) -> None:
    """Turn a table into a manifest.

    Exit 1, and no manifest, if anything in the table is wrong; each problem is told with its line. With
    --json the problems go to standard output, and the manifest only to --output.
    """
    profile = _profile_of(kind)
    if template:
        screen.emit({"template": manifest_csv.template(profile)}) if json else sys.stdout.write(
            manifest_csv.template(profile)
        )
        return
    if file is None:
        raise UsageRefused("name the table's file, or ask for a --template")
    made = manifest_csv.convert(read_file(opened.settings(), file, profile), profile, not case_sensitive)
    found = sorted_out(str(file), made.problems, profile.submission_type.label, made.rows)
    if made.manifest is not None:
        _write(made.manifest, output, to_screen=not json)
    if json:
        screen.emit(found)
    else:
        _tell(found)
    raise typer.Exit(int(not found.good))


def _profile_of(kind: str) -> ManifestProfile:
    for profile in ManifestProfile:
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


def _show(found: Sequence[Checked], document: object, *, as_json: bool) -> None:
    if as_json:
        screen.emit(document)
    else:
        for each in found:
            _tell(each)
            if each.good:
                rows = "" if each.rows is None else f" of {counted(each.rows, 'row')}"
                screen.say(f"{each.name}: {each.kind}{rows}, {_warnings(each)}", "green")
    raise typer.Exit(int(not all(each.good for each in found)))


def _warnings(found: Checked) -> str:
    return counted(len(found.warnings), "warning") if found.warnings else "good"


def _tell(found: Checked) -> None:
    """Problems in the form of compilers, so that editors lead to the line."""
    for problems, word, style in (
        (found.errors, "error", "red"),
        (found.warnings, "warning", "yellow"),
    ):
        for problem in problems:
            line = f":{problem.line}" if problem.line else ""
            screen.note(f"{found.name}{line}: {word}: {problem.message}", style)
