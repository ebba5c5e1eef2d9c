"""How the whole stands, drawn: what is stopped, who works, who was promised what."""

from collections.abc import Mapping

from entrypoints.cli import console as screen
from entrypoints.cli.console import Column
from entrypoints.cli.render.humanize import counted
from operations.working_storage import CleanUp, SpaceView
from pipeline.working_storage.capacity import in_units


def workers(found: Mapping[str, tuple[str, ...]]) -> None:
    if not found:
        screen.note("no worker answers")
    for name, queues in sorted(found.items()):
        screen.say(f"{name} takes from {', '.join(queues)}." if queues else f"{name} takes nothing new.")


def space(found: SpaceView) -> None:
    limit = None if found.total is None else found.total * found.threshold // 100
    screen.facts(
        (
            ("folder", found.folder if limit is not None else f"{found.folder} (not on this machine)"),
            ("size", in_units(found.total) if found.total is not None else ""),
            ("used", in_units(found.used) if found.used is not None else ""),
            ("threshold", f"{found.threshold} %" + (f", {in_units(limit)}" if limit is not None else "")),
            ("reserved", f"{in_units(found.reserved)} by {counted(len(found.reservations), 'job')}"),
            ("waiting", counted(found.waiting, "job") if found.waiting else ""),
        )
    )
    if found.reservations:
        screen.table(
            (
                Column("job"),
                Column("reserved", right=True),
                Column("state"),
                Column("batch", wide=True),
                Column("collection", wide=True),
            ),
            (
                (
                    reservation.jid,
                    in_units(reservation.bytes),
                    screen.state(reservation.state or "no such job"),
                    reservation.bid,
                    reservation.profile,
                )
                for reservation in found.reservations
            ),
        )


def cleaned(found: CleanUp) -> None:
    would = "would be " if found.dry_run else ""
    screen.say(f"{counted(found.jobs, 'completed job')} {would}cleaned up.")
    screen.say(f"{counted(len(found.batches), 'batch', 'batches')} {would}moved to the archive.")
    screen.say(f"{counted(len(found.folders), 'working directory', 'working directories')} {would}removed.")
    for folder in found.folders:
        screen.say(f"  {folder}")
    if found.busy:
        screen.note("beat is removing old batches at this moment, so none was removed here")
