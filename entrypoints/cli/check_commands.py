"""Commands that check profiles and manifests before a submission."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import operator_context as common
from entrypoints.cli.options import Bid, Json, SharedOptions, command
from entrypoints.cli.render import humanize
from operations import profile_renewal, validation
from pipeline.errors import UsageRefused
from pipeline.manifests import checkm
from pipeline.manifests import from_csv as manifest_csv
from pipeline.profiles import profile as profiles

if TYPE_CHECKING:
    from operations.validation import CheckResult, ManifestBytes
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


@command("arkline profile check demo")
def profile_check(
    which: Annotated[
        str | None,
        typer.Argument(metavar="NAME|FILE", help="A profile or its file; all profiles if left out."),
    ] = None,
    json: Json = False,
) -> None:
    """Check one profile, or all.

    Exit 1 if a profile cannot be used. A field that arkline ignores is a warning.
    """
    if which is not None and ("/" in which or which.endswith((".yaml", ".txt"))):
        results: tuple[CheckResult, ...] = (validation.check_profile_file(Path(which)),)
    else:
        results = validation.check_profiles(profiles.Profiles(opened.settings().profiles), which)
    _show(results, {"profiles": results}, as_json=json)


@command("arkline profile renew bid0000000001 --dry-run", "version", "reason", "by", "dry_run", "json")
def profile_renew(options: SharedOptions, bid: Bid) -> None:
    """Use the changed profile for the rest of a batch.

    A batch keeps the profile that it started with. After a mistake in the profile is corrected, renew the
    profile of the batch, then resume its failed jobs.
    """
    with common.operator(options) as operator:
        renewed = profile_renewal.renew(operator, bid, version=options.version, dry_run=options.dry_run)
    if options.json:
        screen.emit(renewed)
        return
    for field, (before, after) in renewed.changes.items():
        screen.say(f"{field}: {before} -> {after}")
    would = "would use" if options.dry_run else "uses"
    changed = humanize.counted(len(renewed.changes), "field")
    screen.note(f"{renewed.bid} {would} profile {renewed.profile} as its file is now: {changed} changed")


@command("arkline manifest check harbour.checkm")
def manifest_check(
    source: Annotated[str, typer.Argument(metavar="FILE|URL", help="The manifest.")],
    kind: Annotated[str, typer.Option("--type", "-t", help=f"The expected type: {_MANIFESTS}.")] = "",
    case_sensitive: CaseSensitive = True,
    json: Json = False,
) -> None:
    """Report every problem of a manifest with its line.

    Exit 1 if its submission would be refused. The files that its rows name are not fetched.
    """
    settings = opened.settings()
    expected = _profile_of(kind) if kind else None
    if "://" in source:
        manifest = validation.fetch_manifest(settings, source, expected)
    else:
        manifest = _read(settings, Path(source), expected)
    result = validation.check_manifest(settings, manifest, expected, not case_sensitive)
    _show((result,), result, as_json=json)


def _read(settings: Settings, path: Path, profile: ManifestProfile | None) -> ManifestBytes:
    """A manifest or a table in a file of this machine; UsageRefused if the file is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(validation.manifest_limit(settings, profile)[0] + 1)
    except OSError as error:
        raise UsageRefused(f"{path} cannot be read: {error.strerror}") from error
    validation.check_manifest_size(settings, len(data), str(path), profile)
    return validation.ManifestBytes(str(path), data)


@command("arkline manifest from-csv --type object-manifest files.csv --output files.checkm")
def manifest_from_csv(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The table: CSV in UTF-8 with a header row.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--type", "-t", help=f"{_MANIFESTS}.", show_default=True)
    ] = "object-manifest",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The manifest's file; standard output if left out."),
    ] = None,
    template: Annotated[
        bool,
        typer.Option("--template", help="Print an empty table with its header row only."),
    ] = False,
    case_sensitive: CaseSensitive = True,
    json: Json = False,
) -> None:
    """Turn a table into a manifest.

    Exit 1 without a manifest if the table has an error; every problem is reported with its line. With
    --json the problems go to standard output, and the manifest only to --output.
    """
    profile = _profile_of(kind)
    if template:
        text = manifest_csv.template(profile)
        screen.emit({"template": text}) if json else sys.stdout.write(text)
        return
    if file is None:
        raise UsageRefused("name the file with the table, or add --template to get an empty one")
    table = _read(opened.settings(), file, profile)
    conversion = manifest_csv.convert(table.data, profile, not case_sensitive)
    kind = profile.submission_type.label
    result = validation.check_result(table.name, conversion.problems, kind, conversion.rows)
    if conversion.manifest is not None:
        _write(conversion.manifest, output, to_screen=not json)
    if json:
        screen.emit(result)
    else:
        _print_problems(result)
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


def _show(results: Sequence[CheckResult], document: object, *, as_json: bool) -> None:
    if as_json:
        screen.emit(document)
    else:
        for result in results:
            _print_problems(result)
            if result.good:
                rows = "" if result.rows is None else f" of {humanize.counted(result.rows, 'row')}"
                screen.say(f"{result.name}: {result.kind}{rows}, {_verdict(result)}", "green")
    raise typer.Exit(int(not all(result.good for result in results)))


def _verdict(result: CheckResult) -> str:
    return humanize.counted(len(result.warnings), "warning") if result.warnings else "good"


def _print_problems(result: CheckResult) -> None:
    """One line for each problem in the form of compilers, so that editors find the line."""
    for problems, severity, style in (
        (result.errors, "error", "red"),
        (result.warnings, "warning", "yellow"),
    ):
        for problem in problems:
            line = f":{problem.line}" if problem.line else ""
            screen.note(f"{result.name}{line}: {severity}: {problem.message}", style)
