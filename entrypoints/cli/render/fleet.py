"""How the whole stands, drawn: what is stopped, who works, who was promised what."""

from collections.abc import Mapping

from entrypoints.cli import console as screen
from entrypoints.cli.console import Column
from operations.holds import Stopped
from operations.wording import by_whom, counted
from operations.working_storage import SpaceView, Tidied
from pipeline.working_storage.capacity import in_units


def stopped(found: Stopped) -> None:
    hold = found.hold
    if found.note:
        screen.note(found.note)
    elif hold is not None:
        screen.say(f"{found.name} is stopped{by_whom(hold.by, hold.reason, hold.at)}.")
    else:
        screen.say(f"{found.name} goes on.")


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
            ("promised", f"{in_units(found.promised)} to {counted(len(found.promises), 'job')}"),
            ("waiting", counted(found.waiting, "job") if found.waiting else ""),
        )
    )
    if found.promises:
        screen.table(
            (
                Column("job"),
                Column("promised", right=True),
                Column("state"),
                Column("batch", wide=True),
                Column("collection", wide=True),
            ),
            (
                (
                    promise.jid,
                    in_units(promise.bytes),
                    screen.state(promise.state or "no such job"),
                    promise.bid,
                    promise.profile,
                )
                for promise in found.promises
            ),
        )


def tidied(found: Tidied) -> None:
    would = "would be " if found.dry_run else ""
    screen.say(f"{counted(found.jobs, 'completed job')} {would}cleaned up.")
    screen.say(f"{counted(len(found.batches), 'batch', 'batches')} {would}moved to the archive.")
    screen.say(f"{counted(len(found.folders), 'working directory', 'working directories')} {would}removed.")
    for folder in found.folders:
        screen.say(f"  {folder}")
    if found.busy:
        screen.note("beat is removing old batches just now: they were left to it")
