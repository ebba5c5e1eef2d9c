"""`arkline init`: gives record, storage root and inventory one deployment id."""

from typing import Annotated

import typer

from entrypoints.cli import console as screen
from entrypoints.cli import context as opened
from entrypoints.cli.options import Json, command
from entrypoints.cli.render.remedies import hints
from operations import deployment
from pipeline.errors import Action, Remedy


@command("arkline init")
def init(
    missing: Annotated[
        bool,
        typer.Option(
            "--missing",
            help="Give the id also to a store that is lost, and starts empty, or that an older release made.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Give record, storage root and inventory one deployment id.

    Workers do this themselves when all three are empty. Stores that have an id are compared, and nothing is
    changed. Run this where the workers run.
    """
    with opened.session() as (session, settings):
        view = deployment.initialize(session, settings, missing=missing)
    if json:
        screen.emit(view)
        return
    screen.say(f"Deployment {view.id}, since {view.created:%Y-%m-%d %H:%M} UTC.")
    for store in view.stores:
        done = "got this id" if store.initialized else "has this id"
        screen.say(f"  {store.service}: {store.place} {done}")
    if view.outdated:
        screen.note(f"jobs wait: {view.outdated}")
        for hint in hints((Remedy(Action.RECONCILE),)):
            screen.note(f"try {hint}", "")
