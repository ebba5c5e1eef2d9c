"""`arkline submit`."""

import getpass
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli.operator_options import QUEUED_LATER, principal
from entrypoints.cli.options import Json
from entrypoints.cli.render import dry_run as show_dry_run
from entrypoints.cli.watch_command import wait_for
from operations.dry_run import perform_dry_run
from operations.submission import check_url, submission_type
from operations.submission import submit as submit_
from pipeline.description import local_ids
from pipeline.description.dublin_core import ELEMENTS
from pipeline.errors import UsageRefused
from pipeline.names import name_in
from pipeline.profiles.profile import Profiles
from pipeline.records import Submission, SubmissionType

_DIGEST = "ALGORITHM:VALUE"
_ELEMENT = "ELEMENT=VALUE"
_TYPES = (
    "file, container, object-manifest, batch-manifest, container-batch-manifest or single-file-batch-manifest"
)


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example: arkline submit --profile demo --type batch-manifest "
        "https://example.org/batch.checkm --what 'Harbour views' --wait"
    )(submit)


def submit(  # noqa: PLR0913 - a command's arguments are its options
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of the payload; http or https.")],
    profile: Annotated[str, typer.Option("--profile", "-p", help="The profile of the collection.")],
    payload_type: Annotated[
        str,
        typer.Option("--type", "-t", help=f"{_TYPES}. Inferred from the file extension, except .checkm."),
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the batch has ended; exit 1 if it failed.")
    ] = False,
    idempotency_key: Annotated[
        str, typer.Option(metavar="KEY", help="Repeating a submission with the same key has no effect.")
    ] = "",
    submitter: Annotated[str, typer.Option(help="The submitter; by default the user's name.")] = "",
    who: Annotated[str, typer.Option(help="The object's creator.")] = "",
    what: Annotated[str, typer.Option(help="The object's title.")] = "",
    when: Annotated[str, typer.Option(help="The object's date.")] = "",
    where: Annotated[str, typer.Option(help='ERC "where": another location of the object.')] = "",
    dublin_core: Annotated[
        list[str] | None,
        typer.Option("--dc", metavar=_ELEMENT, help="A Dublin Core element, as language=de; repeatable."),
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
        str, typer.Option(metavar=_DIGEST, help="The payload's digest, as sha256:9f86d0...")
    ] = "",
    notify: Annotated[
        list[str] | None, typer.Option(metavar="MAIL", help="A further recipient of the report; repeatable.")
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            help="add: exactly these files; update: these files and the previous version's others; reset: "
            "exactly these files, for an object that exists."
        ),
    ] = "add",
    response: Annotated[
        str, typer.Option(metavar="FORM", help="Format of the callback: json, xml or turtle.")
    ] = "json",
    priority: Annotated[
        int | None, typer.Option(min=0, max=99, help="0 is the most urgent; by default the profile's.")
    ] = None,
    note: Annotated[str, typer.Option(help="A remark, stored with the version.")] = "",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would happen and how long it would take; change nothing."),
    ] = False,
    ask: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Dry run: maximum manifests read and files probed."),
    ] = 1000,
    json: Json = False,
) -> None:
    """Submit the payload at a URL; prints the batch's id.

    With --dry-run: exit 1 if any part of the submission would fail.
    """
    given = {
        "profile_name": profile,
        "submitter": submitter or getpass.getuser(),
        "payload_url": url,
        "submission_mode": mode,
        "erc_who": who,
        "erc_what": what,
        "erc_when": when,
        "erc_where": where,
        "dublin_core": _read_elements(dublin_core or ()),
        "response_type": response,
        "local_id": _read_local_ids(local_id or ()),
        "primary_id": primary_id or None,
        "digest": _read_digest(digest),
        "notification": tuple(notify or ()),
        "priority": priority,
        "note": note,
        "idempotency_key": idempotency_key or None,
        "owner": principal().identity,
    }
    submission = _submission(given, payload_type)
    if dry_run:
        _dry_run(submission, ask, as_json=json)
    _submit(submission, wait=wait, as_json=json, debug=bool(context.obj))


def _read_digest(text: str) -> dict[str, str] | None:
    if not text:
        return None
    algorithm, separator, value = text.partition(":")
    if not separator:
        raise typer.BadParameter(f"'{text}' is not {_DIGEST}", param_hint="--digest")
    return {"algorithm": algorithm, "value": value}


def _read_local_ids(given: Sequence[str]) -> tuple[str, ...]:
    return local_ids.merge(*(local_ids.parse(text) for text in given))


def _read_elements(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    elements: dict[str, tuple[str, ...]] = {}
    for text in given:
        element, separator, value = text.partition("=")
        if not separator or element not in ELEMENTS:
            raise typer.BadParameter(
                f"'{text}' is not {_ELEMENT} with one of {', '.join(ELEMENTS)}", param_hint="--dc"
            )
        elements[element] = (*elements.get(element, ()), value)
    return elements


def _submission(given: dict[str, Any], payload_type: str) -> Submission:
    check_url(given["payload_url"])
    try:
        chosen = SubmissionType(payload_type) if payload_type else None
    except ValueError as error:
        raise typer.BadParameter(f"'{payload_type}' is not one of {_TYPES}", param_hint="--type") from error
    try:
        return Submission(
            **given,
            type=submission_type(given["payload_url"], chosen),
            payload_filename=name_in(given["payload_url"]),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = _option(str(first["loc"][0]))
        raise UsageRefused(f"{where}: {first['msg'].removeprefix('Value error, ')}") from error


_OPTIONS = {
    "profile_name": "--profile",
    "payload_url": "URL",
    "submission_mode": "--mode",
    "dublin_core": "--dc",
    "response_type": "--response",
    "notification": "--notify",
}
"""Options whose names do not follow from the names of the fields."""


def _option(field: str) -> str:
    return _OPTIONS.get(field) or f"--{field.removeprefix('erc_').replace('_', '-')}"


def _dry_run(submission: Submission, limit: int, *, as_json: bool) -> NoReturn:
    settings = opened.settings()
    with opened.session(settings) as session:
        result = perform_dry_run(session, settings, submission, opened.archive(settings), limit)
    screen.emit(result) if as_json else show_dry_run.dry_run(result)
    raise typer.Exit(int(not result.good))


def _submit(submission: Submission, *, wait: bool, as_json: bool, debug: bool) -> None:
    settings = opened.settings()
    profiles = Profiles(settings.profiles)
    profiles.get(submission.profile_name)
    with opened.session(settings) as session:
        opened.quiet_logs(debug)
        done = submit_(session, settings, profiles, submission, principal())
        if done.again:
            screen.note(f"{done.bid} was submitted under this key before; no new batch was made")
        if not done.sent:
            screen.note(QUEUED_LATER)
        if not wait:
            screen.emit(done) if as_json else screen.say(done.bid)
            return
        if not as_json:
            screen.say(done.bid)
        raise typer.Exit(wait_for(session, settings, done.bid, as_json=as_json))
