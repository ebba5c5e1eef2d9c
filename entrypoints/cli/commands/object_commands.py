"""Commands on objects: show one, prove its custody, export it, check fixity, run its checks again."""

from __future__ import annotations

import dataclasses
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import quote

import pydantic
import typer

import operations.objects.fixity
import operations.objects.recheck
import operations.site
from entrypoints.cli import acting, api, context, downloading, exit_codes, reach
from entrypoints.cli.options import Json, SharedOptions, command
from entrypoints.render import check_runs, custody, screen
from operations.objects import objects
from pipeline import codes, humanize
from pipeline.errors import ArklineError, ServiceUnreachable, UsageRefused
from pipeline.names import quote_name
from pipeline.preservation import received_bag
from pipeline.preservation.custody import joined, size_of
from pipeline.working_storage import capacity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from entrypoints.cli.api import Client
    from operations.objects.objects import ObjectView


Asked = TypeVar("Asked", "operations.objects.fixity.CustodyProof", "operations.objects.recheck.Recheck")
"""What a worker does on request."""

ASKED_AGAIN = 1.0
"""Seconds between two questions how far the workers are."""

ObjectName = Annotated[
    str, typer.Argument(metavar="ARK", help="ARK of the object, such as ark:/99999/fk4abc, or its local id.")
]


def _path_of(name: str) -> str:
    return f"/v1/objects/{quote(name, safe=':')}"


@command("arkline object ark:/99999/fk4abc --all-versions")
def object(  # noqa: PLR0913 - a command has these options
    ark: ObjectName,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=1, help="Prove this version; default: the current one."),
    ] = None,
    all_versions: Annotated[bool, typer.Option("--all-versions", help="Prove every version.")] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify/--no-verify", help="Read every byte from storage, or only compare records."),
    ] = True,
    premis: Annotated[
        Path | None,
        typer.Option(
            "--premis", metavar="FILE", help="Also write all files and events as one PREMIS 3 document."
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="PATH", help="Only download this file, such as producer/page.tif."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where --file writes; default: the file's name, here."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show an object and prove its custody, or download one of its files.

    For every file: its digest at the source, after download, in storage and now; then the events since
    storage. Exit 4 if the digests differ or a file is missing. Ctrl-C stops the reading and shows the result
    so far. Over the API a worker reads, and Ctrl-C ends the wait; the same command waits on.
    """
    if all_versions and version is not None:
        raise UsageRefused("--version and --all-versions cannot be combined")
    path = _path_of(ark)
    if file is not None:
        _download(f"{path}/versions/{version or 'current'}/files/{quote(file)}", file, output)
        return
    with api.site(record=False, local=verify or premis is not None) as site:
        if site.here is not None:
            context.own_inventory(context.settings())
        if premis is not None:
            _write(site.pieces(f"{path}/premis"), premis)
        if verify and site.here is None:
            view = _proved(site, path, version, every=all_versions)
        else:
            with acting.attended(site, acting.bytes_read):
                view = _view(site, f"{path}/custody" if verify else path, version, every=all_versions)
    if json:
        screen.emit(view)
    else:
        custody.described(view)
        if premis is not None:
            screen.say(f"{premis} has the files and the events of every version as PREMIS 3.")
    raise typer.Exit(exit_codes.of_custody(view.custody))


def _download(path: str, name: str, output: Path | None) -> None:
    """The site compares the file with its digest, and ends a damaged one before its stated length."""
    target = output or Path(name).name
    with api.site(record=False) as site, screen.counting(acting.bytes_read) as on_read:
        _write(downloading.received(site, path, acting.back_off(), on_read), Path(target))
    screen.say(f"{target} has {quote_name(name)}, verified while it was read", "green")


def _view(site: Client, path: str, version: int | None, *, every: bool) -> ObjectView:
    answer = site.request("GET", path, query={"version": version, "every": every})
    shown = pydantic.TypeAdapter(objects.ShownObject).validate_json(answer)
    return objects.ObjectView(**vars(shown.object), custody=shown.custody, timeline=shown.timeline)


def _proved(site: Client, path: str, version: int | None, *, every: bool) -> ObjectView:
    """The object, whose versions a worker has proved; what was not proved when Ctrl-C came is not read."""
    kind = operations.objects.fixity.CustodyProof
    recorded = _view(site, path, version, every=every).custody
    proofs = []
    with acting.shown(acting.bytes_read) as run:
        asked = [site.post(f"{path}/proofs", kind, {"version": number}) for number in recorded.versions]
        for first in asked:
            for proof in _waited(site, f"{path}/proofs", first, run.should_stop):
                run.on_progress(proof.bytes_read, proof.bytes_total)
            proofs.append(proof)
    view = _view(site, path, version, every=every)
    if problem := next((proof.message for proof in proofs if proof.ended and proof.custody is None), ""):
        is_damaged = view.fixity is not None and view.fixity.damaged
        error = f"{view.ark} could not be proved: {problem}"
        raise ArklineError(error, code=codes.REMOTE_DAMAGE) if is_damaged else ServiceUnreachable(error)
    results = [proof.custody for proof in proofs if proof.custody is not None]
    return dataclasses.replace(view, custody=joined(recorded, results))


def _waited(site: Client, path: str, asked: Asked, stopped: Callable[[], bool]) -> Iterator[Asked]:
    """The request as it is, again and again until it has ended, or the wait for it."""
    yield asked
    while asked.ended is None and not stopped():
        time.sleep(ASKED_AGAIN)
        asked = site.get(f"{path}/{asked.id}", type(asked))
        yield asked


def _write(pieces: Iterable[bytes], file: Path) -> None:
    """Write a document; the file is complete or absent. UsageRefused if it cannot be written."""
    # write to a pipe or a device such as /dev/stdout: replacing it would remove it for everyone
    special = file.exists() and (file.is_symlink() or not file.is_file())
    draft = file if special else file.with_name(f".{file.name}.partial-{secrets.token_hex(4)}")
    try:
        with draft.open("wb" if special else "xb") as out:
            for piece in pieces:
                out.write(piece)
        if not special:
            draft.replace(file)
    except OSError as error:
        raise UsageRefused(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        if not special:
            with suppress(OSError):  # of a read-only file system, which has none
                draft.unlink(missing_ok=True)


@command("arkline export ark:/99999/fk4abc --output harbour-master")
def export(
    ark: ObjectName,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=1, help="Export this version; default: the current one."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="The new folder; default: named after the ARK, here."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write an object as a BagIt bag.

    Every file is compared with its recorded digest during the copy, and over the API with the bag's manifests
    again. Exit 4 without a bag if storage is damaged. The folder gets its name when the bag is complete.
    metadata/premis.xml has the events of the object, and the export becomes one of them.
    """
    over_api = api.client() is not None and not reach.is_own_stack()
    bag = (_received if over_api else _exported)(ark, version, output)
    if bag.not_entered:
        screen.note(f"the bag is complete, but the inventory has no event of this export: {bag.not_entered}")
    if json:
        screen.emit(bag)
        return
    amount = f"{humanize.counted(bag.files, 'file')}, {capacity.in_units(bag.bytes)}"
    screen.say(f"{bag.ark} version {bag.version} is a bag in {bag.folder}: {amount}, verified", "green")


def _received(name: str, version: int | None, output: Path | None) -> objects.Export:
    """The bag as the site sends it; the site enters the event."""
    path = _path_of(name)
    with api.site(record=False) as site:
        view = _view(site, path, version, every=False)
        (number,) = objects.versions_to_prove(view, version, every=False)
        folder = output or Path(objects.bag_name(view, number))
        with acting.shown(acting.bytes_read) as run:
            on_read = objects.until_stopped(run.adding(size_of(view, (number,))), run.should_stop, folder)
            bag = f"{path}/versions/{number}/bag"
            pieces = downloading.received(site, bag, acting.back_off(), lambda *_: None, has_manifest=True)
            files, size = received_bag.receive_bag(pieces, folder, on_read)
    return objects.Export(view.ark, number, str(folder), files, size, not_entered="")


def _exported(name: str, version: int | None, output: Path | None) -> objects.Export:
    settings = context.settings()
    context.quiet_logs()
    inventory = context.own_inventory(settings)
    known, number = objects.object_to_export(inventory, name, version)
    folder = output or Path(objects.bag_name(known, number))
    storage = operations.site.storage_of(settings, inventory)
    request = objects.ExportRequest(known, number, folder, context.principal().name)
    with acting.shown(acting.bytes_read) as run:
        on_read = run.adding(size_of(known, (number,)))
        return objects.export(request, settings, inventory, storage, on_read, run.should_stop)


@command("arkline fixity report")
def fixity_report(json: Json = False) -> None:
    """Show the last checks, overdue objects and all damage.

    Exit 4 if there is damage.
    """
    with api.site(record=False) as site:
        answer = site.request("GET", "/v1/fixity")
    report = pydantic.TypeAdapter(operations.objects.fixity.FixityReport).validate_json(answer)
    screen.emit(report) if json else custody.fixity_report(report)
    raise typer.Exit(exit_codes.BROKEN_CUSTODY if report.counts.damaged else 0)


@command("arkline fixity check ark:/99999/fk4abc", "by", "json")
def fixity_check(
    options: SharedOptions,
    arks: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARK", help="Objects to check; default: those that are due."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Check every object.")] = False,
) -> None:
    """Read stored objects again now, and record the proof or the damage.

    Every version is read, at the rate of ARKLINE_FIXITY_RATE. Exit 4 if an object is damaged, 3 if one could
    not be read. Ctrl-C stops the reading; the next check continues it.
    """
    if every and arks:
        raise UsageRefused("name objects or add --all, not both")
    with context.site() as site, acting.shown(acting.bytes_read) as run:
        context.existing_inventory(site.settings)
        checked = operations.objects.fixity.check_fixity(
            site,
            context.principal(options.by),
            arks or (),
            every=every,
            on_check=lambda outcome: None if options.json else custody.checked(outcome),
            run=run,
        )
    screen.emit(checked) if options.json else custody.fixity_summary(checked)
    raise typer.Exit(exit_codes.of_fixity(checked))


@command("arkline recheck ark:/99999/fk4abc --check pronom", "by", "json")
def recheck(
    options: SharedOptions,
    arks: Annotated[list[str], typer.Argument(metavar="ARK...", help="Objects to check.")],
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="NAME", help="This check only; default: all of the profile."),
    ] = None,
) -> None:
    """Check stored objects again by the checks of their profile.

    All versions are checked now, as the collection's current profile says: beside the stack on this host,
    over the API by a worker. The findings are recorded beside the earlier ones. Exit 1 if a check found
    something, 3 if a version could not be read or checked. Ctrl-C stops the work, or the wait for the worker;
    the same command continues it.
    """

    def show(outcome: operations.objects.recheck.Outcome) -> None:
        if options.json:
            return
        if isinstance(outcome, operations.objects.recheck.CheckedVersion):
            check_runs.checked_again(outcome)
        else:
            check_runs.not_checked(outcome)

    if api.client() is not None and not reach.is_own_stack():
        with api.site(options.by, record=False) as client:
            done = _by_workers(client, arks, check, show)
    else:
        with context.site() as site, acting.shown(acting.bytes_read) as run:
            context.existing_inventory(site.settings)
            done = operations.objects.recheck.recheck(
                site,
                context.principal(options.by),
                arks,
                check,
                on_outcome=show,
                run=run,
            )
    if options.json:
        screen.emit(done)
    elif not done.complete:
        screen.note("interrupted: the same command continues")
    raise typer.Exit(exit_codes.of_recheck(done))


def _by_workers(
    site: Client,
    arks: list[str],
    check: str | None,
    show: Callable[[operations.objects.recheck.Outcome], None],
) -> operations.objects.recheck.RecheckRun:
    """Ask for all objects, then wait for each, and show its outcomes; Ctrl-C ends the wait."""
    kind = operations.objects.recheck.Recheck
    paths = [f"{_path_of(ark)}/rechecks" for ark in dict.fromkeys(arks)]
    asked = [site.post(path, kind, {"check": check}) for path in paths]
    ended = []
    with screen.interruptible() as interrupted:
        for path, last in zip(paths, asked, strict=True):
            *_, one = _waited(site, path, last, interrupted)
            if one.ended is None:
                break
            if one.message:
                raise ServiceUnreachable(f"{one.ark} was not checked: {one.message}")
            for checked in one.checked:
                show(checked)
            for problem in one.not_checked:
                show(problem)
            ended.append(one)
    return operations.objects.recheck.RecheckRun(
        checked=tuple(version for one in ended for version in one.checked),
        not_checked=tuple(version for one in ended for version in one.not_checked),
        complete=len(ended) == len(asked),
    )
