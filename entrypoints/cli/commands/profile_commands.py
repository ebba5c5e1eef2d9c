"""Commands for collection profiles."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import pipeline.profiles.profile
import pipeline.profiles.template
from entrypoints.cli import api, completion, context, reach
from entrypoints.cli.options import Bid, Json, SharedOptions, command
from entrypoints.render import judgement, screen
from entrypoints.render.screen import Column
from operations.deposits import validation
from operations.verbs import collection_profiles
from pipeline import humanize
from pipeline.errors import UsageRefused

if TYPE_CHECKING:
    from operations.deposits.validation import CheckResult


@command("arkline profile check demo")
def profile_check(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            autocompletion=completion.profiles,
            help="A profile or its file; all profiles if left out.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check one profile, or all.

    Exit 1 if a profile cannot be used. An ignored field is a warning.
    """
    if which is not None and ("/" in which or which.endswith((".yaml", ".txt"))):
        results: tuple[CheckResult, ...] = (validation.check_profile_file(Path(which)),)
    else:
        reach.refuse_over_api("`arkline profile check` without a file")
        if not reach.is_own_stack() and (site := api.client()) is not None:
            raise UsageRefused(
                "`arkline profile check` without a file reads the profiles of this machine, and you are "
                f"logged in at {site.url}: name a file, or see `arkline profile list`"
            )
        results = validation.check_profiles(
            pipeline.profiles.profile.Profiles(context.settings().profiles), which
        )
    screen.emit({"profiles": results}) if json else judgement.show(results)
    raise typer.Exit(int(not all(result.good for result in results)))


@command("arkline profile list", ids="profiles.name")
def profile_list(json: Json = False) -> None:
    """List the profiles: their collections, and what the ARKs of new objects look like.

    Exit 1 if a profile cannot be used.
    """
    with api.site(record=False) as site:
        lines = site.get("/v1/profiles", collection_profiles.ProfileLines).profiles
    if json:
        screen.emit({"profiles": lines})
    else:
        screen.table(
            lines,
            Column("profile", lambda line: line.name),
            Column("collections", lambda line: ", ".join(line.collections), wide=True),
            Column("ARKs begin with", lambda line: ", ".join(line.ark_prefixes)),
            Column("description", lambda line: "; ".join(line.faults) or line.description, long=True),
        )
    raise typer.Exit(int(any(line.faults for line in lines)))


@command("arkline profile show demo")
def profile_show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", autocompletion=completion.profiles, help="A profile.")
    ],
    json: Json = False,
) -> None:
    """Show all values of a profile, also those that its file leaves out. No secret is shown."""
    with api.site(record=False) as site:
        view = site.get(f"/v1/collections/{api.quoted(name)}/profile", collection_profiles.ProfileView)
    if json:
        screen.emit(view)
        return
    screen.say(view.file, "bold")
    screen.table(
        view.values.items(),
        Column("field", lambda row: row[0]),
        Column("value", lambda row: _value(row[1]), long=True),
        Column("", lambda row: "" if row[0] in view.set_in_file else "default"),
    )
    for warning in view.ignored:
        screen.note(f"{view.file}: warning: {warning}")


_UNSET: tuple[object, ...] = (None, [], {})
"""Values of a nested field that its file leaves out."""


def _value(value: object) -> str:
    """A value as written in a profile file."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_nested(part)}" for name, part in value.items() if part not in _UNSET)
    if isinstance(value, list | tuple):
        return ", ".join(map(_nested, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nested(value: object) -> str:
    text = _value(value)
    return f"{{{text}}}" if isinstance(value, dict) else f"[{text}]" if isinstance(value, list) else text


@command("arkline profile template > harbour.yaml")
def profile_template(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="The name of the new profile.")] = "demo",
    json: Json = False,
) -> None:
    """Print the file of a new profile, with every field described."""
    text = pipeline.profiles.template.template(name)
    screen.emit({"template": text}) if json else sys.stdout.write(text)


@command(
    "arkline profile renew bid0000000001 --reason 'its NAAN was corrected'",
    "version",
    "reason",
    "by",
    "dry_run",
    "json",
)
def profile_renew(options: SharedOptions, bid: Bid) -> None:
    """Use the changed profile for the rest of a batch.

    A batch keeps the profile that it started with. After a mistake in the profile is corrected, renew the
    profile of the batch, then resume its failed jobs.
    """
    path = f"/v1/batches/{bid}/renew-profile{'/dry-run' if options.dry_run else ''}"
    body = {"reason": options.reason}
    with api.site(options.by) as site:
        renewed = site.post(path, collection_profiles.ProfileRenewal, body, **api.if_match(options.version))
    if options.json:
        screen.emit(renewed)
        return
    for field, (before, after) in renewed.changes.items():
        screen.say(f"{field}: {before} -> {after}")
    would = "would use" if options.dry_run else "uses"
    changed = humanize.counted(len(renewed.changes), "field")
    screen.note(f"{renewed.bid} {would} profile {renewed.profile} as its file is now: {changed} changed")
