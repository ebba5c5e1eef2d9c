"""`arkline submit`, and its options as a submission."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import pydantic_core
import typer

from entrypoints.cli import acting, api, completion, context, local_files
from entrypoints.cli.commands import watch_commands
from entrypoints.cli.options import Json, command
from entrypoints.render import judgement, screen
from operations.deposits import local_deposit, submission
from pipeline import names, records
from pipeline.description import xml
from pipeline.errors import UsageRefused

if TYPE_CHECKING:
    from entrypoints.cli.api import Client
    from operations.deposits.local_deposit import LocalDeposit
    from pipeline.records import Submission

DIGEST = "ALGORITHM:VALUE"
ELEMENT = "ELEMENT=VALUE"
TYPES = (
    "file, container, object-manifest, batch-manifest, container-batch-manifest or single-file-batch-manifest"
)


def read_digest(text: str) -> dict[str, str]:
    algorithm, separator, value = text.partition(":")
    if not separator:
        raise typer.BadParameter(f"'{text}' is not {DIGEST}")
    return {"algorithm": algorithm, "value": value}


def read_type(text: str) -> records.SubmissionType | None:
    try:
        return records.SubmissionType(text) if text else None
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' is not one of {TYPES}", param_hint="--type") from error


def read_elements(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    elements: dict[str, tuple[str, ...]] = {}
    for text in given:
        element, separator, value = text.partition("=")
        if not separator or element not in xml.ELEMENTS:
            raise typer.BadParameter(
                f"'{text}' is not {ELEMENT} with one of {', '.join(xml.ELEMENTS)}", param_hint="--dc"
            )
        elements[element] = (*elements.get(element, ()), value)
    return elements


def submission_of(context: typer.Context, given: dict[str, Any]) -> records.Submission:
    try:
        return records.Submission(**given)
    except pydantic_core.ValidationError as error:
        first = error.errors(include_url=False)[0]
        (given_as,) = (each for each in context.command.params if each.name == first["loc"][0])
        option = "URL" if given_as.name == "payload_url" else given_as.opts[0]
        raise UsageRefused(f"{option}: {first['msg'].removeprefix('Value error, ')}") from error


@command("arkline submit --profile demo --what 'Harbour views' --wait photos/")
def submit(  # noqa: PLR0913 - a command's arguments are its options
    context: typer.Context,
    payload_url: Annotated[
        str,
        typer.Argument(
            metavar="PATH|URL",
            help="A file, a folder (one object) or a table in CSV of this machine, which is uploaded; or the "
            "URL of the payload; http or https.",
        ),
    ],
    profile_name: Annotated[
        str,
        typer.Option(
            "--profile", "-p", autocompletion=completion.profiles, help="The profile of the collection."
        ),
    ],
    type: Annotated[
        str,
        typer.Option(
            "--type",
            "-t",
            autocompletion=completion.types,
            help=f"{TYPES}. Inferred from the file extension, except .checkm.",
        ),
    ] = "",
    payload_filename: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="NAME",
            help="The file name of the payload at a URL; by default the one that its source states, else "
            "the last part of the URL.",
        ),
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the batch has ended; exit 1 if it failed.")
    ] = False,
    idempotency_key: Annotated[
        str, typer.Option(metavar="KEY", help="Repeating a submission with the same key has no effect.")
    ] = "",
    submitter: Annotated[str, typer.Option(help="The submitter; by default the user's name.")] = "",
    erc_who: Annotated[str, typer.Option("--who", help="The object's creator.")] = "",
    erc_what: Annotated[str, typer.Option("--what", help="The object's title.")] = "",
    erc_when: Annotated[str, typer.Option("--when", help="The object's date.")] = "",
    erc_where: Annotated[
        str, typer.Option("--where", help='ERC "where": another location of the object.')
    ] = "",
    dublin_core: Annotated[
        list[str] | None,
        typer.Option("--dc", metavar=ELEMENT, help="A Dublin Core element, as language=de; repeatable."),
    ] = None,
    local_id: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="The depositor's own identifier, or several separated by ';'; repeatable."
        ),
    ] = None,
    primary_id: Annotated[
        str, typer.Option(metavar="ARK", help="The ARK of an existing object, to add a version to it.")
    ] = "",
    digest: Annotated[
        dict[str, str] | None,
        typer.Option(metavar=DIGEST, parser=read_digest, help="The payload's digest, as sha256:9f86d0..."),
    ] = None,
    notification: Annotated[
        list[str] | None,
        typer.Option("--notify", metavar="MAIL", help="A further recipient of the report; repeatable."),
    ] = None,
    submission_mode: Annotated[
        str,
        typer.Option(
            "--mode",
            help="add: exactly these files; update: these files and the previous version's others; reset: "
            "exactly these files, for an object that exists.",
        ),
    ] = "add",
    new_version: Annotated[
        bool,
        typer.Option(
            "--new-version/--no-new-version",
            "--update",
            help="Allow that an object which the repository has already gets a new version; otherwise it is "
            "refused. --mode update and reset allow it, too.",
        ),
    ] = False,
    response_type: Annotated[
        str, typer.Option("--response", metavar="FORM", help="Format of the callback: json, xml or turtle.")
    ] = "json",
    priority: Annotated[
        int | None, typer.Option(min=0, max=99, help="0 is the most urgent; by default the profile's.")
    ] = None,
    note: Annotated[str, typer.Option(help="A remark, stored with the version.")] = "",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would happen and how long it would take; change nothing."),
    ] = False,
    object_per_file: Annotated[
        bool, typer.Option("--object-per-file", help="Make an object of each file of a folder.")
    ] = False,
    ask: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Dry run: maximum manifests read and files probed."),
    ] = 1000,
    json: Json = False,
) -> None:
    """Submit files of this machine or at a URL; prints the batch's id.

    With --dry-run: exit 1 if any part of the submission would fail.
    """
    given = {name: value for name, value in locals().items() if name in records.Submission.model_fields}
    kind = read_type(type)
    deposit = None
    if names.is_local(payload_url):
        if payload_filename:
            raise typer.BadParameter(
                "it is for a URL; a file of this machine keeps its name", param_hint="--name"
            )
        deposit = _local(Path(payload_url), kind, digest, object_per_file=object_per_file)
        kind, payload_url = deposit.type, str(deposit.source)
    elif object_per_file:
        raise typer.BadParameter("it is for a folder of this machine", param_hint="--object-per-file")
    else:
        submission.check_url(payload_url)
        payload_filename = submission.given_name(payload_url, payload_filename)
    submitted = submission_of(
        context,
        {
            **given,
            "submitter": submitter or getpass.getuser(),
            "payload_url": payload_url,
            "payload_filename": payload_filename,
            "type": submission.submission_type(payload_url, kind, payload_filename),
            "dublin_core": read_elements(dublin_core or ()),
            "local_id": names.merge_local_ids(*map(names.parse_local_ids, local_id or ())),
            "primary_id": primary_id or None,
            "notification": tuple(notification or ()),
            "idempotency_key": idempotency_key or None,
        },
    )
    if dry_run:
        _dry_run(submitted, deposit, ask, as_json=json)
    _submit(submitted, deposit, wait=wait, as_json=json)


def _local(
    path: Path,
    kind: records.SubmissionType | None,
    digest: dict[str, str] | None,
    *,
    object_per_file: bool,
) -> LocalDeposit:
    deposit = local_deposit.plan_deposit(path, kind, object_per_file=object_per_file)
    if digest and deposit.rows:
        raise typer.BadParameter(
            "a digest is for one file: the digests of a folder or a table are computed here",
            param_hint="--digest",
        )
    return deposit


def _uploaded(site: Client, submission: Submission, deposit: LocalDeposit) -> Submission:
    """The submission of what was uploaded."""
    local_files.describe(deposit)
    payload = local_files.upload(deposit, local_files.ApiUploader(site), submission.idempotency_key or "")
    return submission.model_copy(
        update={
            "payload_url": payload.url,
            "payload_filename": payload.filename,
            "digest": submission.digest or payload.digest,
            "size": payload.size,
        }
    )


def _dry_run(submission: Submission, deposit: LocalDeposit | None, ask: int, *, as_json: bool) -> NoReturn:
    if deposit is not None:
        local_files.remark(local_deposit.with_container_read(deposit, context.settings()))
    with api.site() as site:
        result = (
            local_files.dry_run(site, submission, ask)
            if deposit is None
            else local_files.dry_run_of_files(site, submission, deposit)
        )
    screen.emit(result) if as_json else judgement.dry_run(result)
    raise typer.Exit(int(not result.good))


def _submit(submission: Submission, deposit: LocalDeposit | None, *, wait: bool, as_json: bool) -> None:
    with api.site() as site:
        if deposit is not None or submission.local_id or submission.primary_id:
            local_files.known(local_files.dry_run_of_files(site, submission, deposit))
        if deposit is not None:
            submission = _uploaded(site, submission, deposit)
        done = local_files.submit(site, submission)
        if done.again:
            screen.note(f"{done.bid} was submitted under this key before; no new batch was made")
        if not done.sent:
            screen.note(acting.QUEUED_LATER)
        if wait and not as_json:
            screen.say(done.bid)
        if wait:
            raise typer.Exit(watch_commands.wait_for(site, done.bid, as_json=as_json))
    screen.emit(done) if as_json else screen.say(done.bid)
