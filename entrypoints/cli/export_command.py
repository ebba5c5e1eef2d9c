"""`arkline export`: hands an object out again as a BagIt bag."""

from pathlib import Path
from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli import object_command
from entrypoints.cli.options import Json, command
from entrypoints.cli.render import humanize
from operations import export as exporting
from operations import site
from pipeline.preservation import proof
from pipeline.working_storage import capacity


@command("arkline export ark:/99999/fk4abc --output harbour-master")
def export(
    ark: Annotated[str, typer.Argument(metavar="ARK", help="ARK of the object, such as ark:/99999/fk4abc.")],
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

    Every file is compared with its recorded digest during the copy. Exit 4 without a bag if storage is
    damaged. The folder gets its name when the bag is complete. metadata/premis.xml has the events of the
    object, and the export becomes one of them.
    """
    settings = opened.settings()
    inventory = opened.own_inventory(settings)
    known, number = exporting.object_to_export(inventory, ark, version)
    folder = output or Path(exporting.bag_name(known, number))
    with (
        screen.interruptible() as interrupted,
        object_command.reading_progress(proof.size_of(known, (number,))) as on_read,
    ):
        request = exporting.ExportRequest(known, number, folder, opened.principal().name)
        bag = exporting.export(request, inventory, site.storage_of(settings, inventory), on_read, interrupted)
    if bag.not_entered:
        screen.note(f"the bag is complete, but the inventory has no event of this export: {bag.not_entered}")
    if json:
        screen.emit(bag)
        return
    amount = f"{humanize.counted(bag.files, 'file')}, {capacity.in_units(bag.bytes)}"
    screen.say(f"{bag.ark} version {bag.version} is a bag in {bag.folder}: {amount}, verified", "green")
