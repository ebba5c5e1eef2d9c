"""`arkline submit`: builds a submission from options, and deposits local files over the API."""

from __future__ import annotations

import getpass
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import pydantic_core
import typer

from entrypoints.cli import acting, api, completion, context
from entrypoints.cli.commands import watch_commands
from entrypoints.cli.options import Columns, Json, SheetName, command, table_choice
from entrypoints.cli.uploading import SiteUploader
from entrypoints.render import judgement, screen
from operations.deposits import dry_run_result, local_deposit, local_upload, submission
from pipeline import humanize, names, records
from pipeline.description import xml
from pipeline.errors import ArklineError, UsageRefused
from pipeline.tables.content import NO_CHOICE
from pipeline.working_storage import capacity

if TYPE_CHECKING:
    from entrypoints.cli.api import Client
    from operations.deposits.dry_run_result import DryRunResult
    from operations.deposits.local_deposit import LocalDeposit
    from operations.deposits.local_upload import Payload
    from operations.deposits.submission import Submitted
    from pipeline.records import Submission
    from pipeline.tables.content import Choice

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
        field = str(first["loc"][0])
        spelled = {str(option.name): option.opts[0] for option in context.command.params}
        option = "URL" if field == "payload_url" else spelled[field]
        raise UsageRefused(f"{option}: {first['msg'].removeprefix('Value error, ')}") from error


@command("arkline submit --profile demo --what 'Harbour views' --wait photos/", ids="bid")
def submit(  # noqa: PLR0913 - a command's arguments are its options
    context: typer.Context,
    payload_url: Annotated[
        str,
        typer.Argument(
            metavar="PATH|URL",
            help="A file, a folder (one object) or a table (CSV, TSV, XLSX, XLS, ODS) of this machine, which "
            "is uploaded; or the URL of the payload; http or https.",
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
    deposit_name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What lists, mails and reports call the deposit; by default the name of the folder, the "
            "table or the file.",
        ),
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the batch has ended; exit 1 if it failed.")
    ] = False,
    idempotency_key: Annotated[
        str, typer.Option(metavar="KEY", help="Repeating a submission with the same key has no effect.")
    ] = "",
    submitter: Annotated[
        str, typer.Option(help="The submitter; by default the token's name, beside the stack the user's.")
    ] = "",
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
    all_files: Annotated[
        bool,
        typer.Option(
            "--all-files",
            help="Deposit the files of a folder that the operating system made for itself, too: .DS_Store, "
            "Thumbs.db, desktop.ini, ._NAME.",
        ),
    ] = False,
    columns: Columns = None,
    sheet: SheetName = "",
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
        deposit = _local(
            Path(payload_url),
            kind,
            digest,
            object_per_file=object_per_file,
            all_files=all_files,
            choice=table_choice(columns, sheet),
        )
        kind, payload_url = deposit.type, str(deposit.source)
    elif object_per_file:
        raise typer.BadParameter("it is for a folder of this machine", param_hint="--object-per-file")
    elif columns or sheet:
        raise typer.BadParameter("they are for a table of this machine", param_hint="--column, --sheet")
    else:
        submission.check_url(payload_url)
        payload_filename = submission.given_name(payload_url, payload_filename)
    submitted = submission_of(
        context,
        {
            **given,
            "deposit_name": deposit_name or (deposit.name if deposit else None),
            "submitter": submitter or ("" if api.client() else getpass.getuser()),
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
    all_files: bool,
    choice: Choice,
) -> LocalDeposit:
    deposit = local_deposit.plan_deposit(
        path,
        kind,
        object_per_file=object_per_file,
        all_files=all_files,
        choice=choice,
        settings=context.settings(),
    )
    if choice != NO_CHOICE and not deposit.is_table:
        raise UsageRefused(f"'{path}' is no table: --column and --sheet are for tables")
    if digest and deposit.rows:
        raise typer.BadParameter(
            "a digest is for one file: the digests of a folder or a table are computed here",
            param_hint="--digest",
        )
    return deposit


def _deposited(site: Client, given: Submission, deposit: LocalDeposit) -> Submitted:
    """Upload the files and submit them, under a key: an answer that is lost makes no second batch."""
    describe(deposit)
    uploader = SiteUploader(site, acting.back_off())
    key = given.idempotency_key or secrets.token_hex(8)
    try:
        submission = _uploaded(uploader, given.model_copy(update={"idempotency_key": key}), deposit)
        done = uploader.back_off.repeated(lambda: _send(site, submission))
    except (ArklineError, KeyboardInterrupt):
        if uploader.upload:
            way = f"repeat the command with --idempotency-key {key}"
            screen.note(f"to continue with what has not arrived, {way}")
        raise
    return done if given.idempotency_key else done.model_copy(update={"again": False})


def _uploaded(uploader: SiteUploader, submission: Submission, deposit: LocalDeposit) -> Submission:
    """Upload the files; returns the submission that refers to the upload."""
    payload = _upload(deposit, uploader, submission.idempotency_key or "")
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
        _remark(local_deposit.with_container_read(deposit, context.settings()))
    with api.site() as site:
        result = (
            _dry_run_of_url(site, submission, ask)
            if deposit is None
            else dry_run_of_files(site, submission, deposit, read=True)
        )
    screen.emit(result) if as_json else judgement.dry_run(result)
    raise typer.Exit(int(not result.good))


def _submit(submission: Submission, deposit: LocalDeposit | None, *, wait: bool, as_json: bool) -> None:
    if deposit is not None:
        _note_reading(deposit)
        local_deposit.with_container_read(deposit)  # before hours of an upload that would be refused
    with api.site() as site:
        if deposit is not None or submission.local_id or submission.primary_id:
            _note_known(dry_run_of_files(site, submission, deposit))
        done = _send(site, submission) if deposit is None else _deposited(site, submission, deposit)
        if done.again:
            screen.note(f"{done.bid} was submitted under this key before; no new batch was made")
        if not done.sent:
            screen.note(acting.QUEUED_LATER)
        if wait and not as_json:
            screen.say(done.bid)
        if wait:
            raise typer.Exit(watch_commands.wait_for(site, done.bid, as_json=as_json))
    screen.emit(done) if as_json else screen.say(done.bid)


LONG_READING = 1 << 30
"""Bytes of a container whose reading may take long: a compressed tar is unpacked for it."""


def _note_reading(deposit: LocalDeposit) -> None:
    if deposit.type is records.SubmissionType.CONTAINER:
        size = deposit.source.stat().st_size
        if size >= LONG_READING:
            screen.note(f"reading {deposit.source.name}, {capacity.in_units(size)}, before it is sent", "dim")


HIDDEN_NAMED = 3
"""Maximum number of hidden files named in a remark."""


SUBMITTED_AS = {
    records.SubmissionType.CONTAINER: "a container",
    records.SubmissionType.BATCH_MANIFEST: "a list of objects",
    records.SubmissionType.CONTAINER_BATCH_MANIFEST: "a list of containers",
    records.SubmissionType.SINGLE_FILE_BATCH_MANIFEST: "a list of objects",
}
"""Types of which a depositor has to know, in words."""


def describe(deposit: LocalDeposit) -> None:
    """Print what is deposited."""
    files = humanize.counted(len(deposit.files), "file")
    objects = humanize.counted(deposit.objects, "object")
    of_files = "" if deposit.listed else f" of {files}"
    kind = f"submitted as {SUBMITTED_AS[deposit.type]}, " if deposit.type in SUBMITTED_AS else ""
    screen.note(f"{deposit.source}: {objects}{of_files}, {kind}{capacity.in_units(deposit.bytes)}", "")
    _remark(deposit)


def _remark(deposit: LocalDeposit) -> None:
    """Point out what the person may not have meant to deposit or omit."""
    for remark in deposit.remarks:
        screen.note(remark)
    if deposit.hidden:
        screen.note(f"hidden files are deposited, too: {_first(deposit.hidden)}")
    if deposit.left_out:
        left_out = _first(deposit.left_out)
        screen.note(f"files of the operating system are left out (--all-files keeps them): {left_out}")
    if deposit.empty:
        screen.note(f"folders without files are not deposited: {_first(deposit.empty)}")


def _first(paths: Sequence[str]) -> str:
    more = len(paths) - HIDDEN_NAMED
    return ", ".join(map(names.quote_name, paths[:HIDDEN_NAMED])) + (f" and {more} more" if more > 0 else "")


def _note_known(judged: DryRunResult) -> None:
    """Print which objects exist already, whether they get a new version, and what else would be refused."""
    for identifier, ark in judged.known.items():
        consequence = "this deposit becomes its next version"
        if any(ark in trouble.message for trouble in judged.failures):
            consequence = "this deposit will be refused, because --new-version was not given"
        screen.note(f"'{identifier}' is {ark} already: {consequence}")
    arks = judged.known.values()
    judgement.failures(one for one in judged.failures if not any(ark in one.message for ark in arks))
    for warning in judged.repeated:
        screen.note(warning)


def _upload(deposit: LocalDeposit, uploader: SiteUploader, key: str) -> Payload:
    sent, began = 0, time.monotonic()

    def words(done: float, total: int) -> str:
        speed = capacity.in_units(int(done / max(time.monotonic() - began, 0.1)))
        return f"sent {capacity.in_units(int(done))} of {capacity.in_units(total)}, {speed}/s"

    with screen.counting(words) as show:

        def on_bytes(size: int) -> None:
            nonlocal sent
            sent += size
            show(sent, deposit.bytes)

        return local_upload.upload_deposit(deposit, uploader, key, on_bytes)


def _body(submission: Submission) -> dict[str, object]:
    """The submission as the body of `POST /v1/batches`."""
    given = submission.model_dump(mode="json", exclude_none=True)
    spelled = {
        "profile_name": "profile",
        "payload_filename": "name",
        "submission_mode": "mode",
        "erc_who": "who",
        "erc_what": "what",
        "erc_when": "when",
        "erc_where": "where",
    }
    left_out = {"idempotency_key", "owner", "submitted_at"}
    return {spelled.get(name, name): value for name, value in given.items() if name not in left_out}


def _headers(submission: Submission) -> dict[str, str]:
    key = submission.idempotency_key
    return {"Idempotency-Key": key} if key else {}


def _send(site: Client, given: Submission) -> Submitted:
    answer = site.post_json("/v1/batches", _body(given), **_headers(given))
    return submission.Submitted(
        bid=answer["bid"], again=answer.get("replayed", False), sent=not answer.get("note")
    )


def _dry_run_of_url(site: Client, submission: Submission, ask: int) -> DryRunResult:
    """A dry run at the site; `ask`: maximum manifests and files probed, up to the web process's own limit."""
    path = f"/v1/batches?dry_run=true&ask={ask}"
    return site.post(path, dry_run_result.DryRunResult, _body(submission), **_headers(submission))


def dry_run_of_files(
    site: Client, submission: Submission, deposit: LocalDeposit | None, *, read: bool = False
) -> DryRunResult:
    """A dry run of these files; without files, it only shows whether the object exists already.

    `read`: compare their bytes with the digests that are declared for them.
    """
    body = {
        "profile": submission.profile_name,
        "source": submission.payload_url,
        "type": submission.type,
        "mode": submission.submission_mode,
        "new_version": bool(submission.new_version),
        "priority": submission.priority,
        "deposit_name": submission.deposit_name,
        "notification": submission.notification,
    }
    bodies = (
        {**body, "plan": plan.model_dump(mode="json")}
        for plan in dry_run_result.plans(submission, deposit, read=read)
    )
    path, headers = "/v1/batches/files/dry-run", _headers(submission)
    return dry_run_result.together(
        [site.post(path, dry_run_result.DryRunResult, one, **headers) for one in bodies]
    )
