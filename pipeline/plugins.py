"""Loading of plugins by the entry points of installed packages.

A storage, an inventory, a minter, a login or an exporter is loaded only if it is chosen: its entry point has
the name of the setting that chooses it. docs/developers/guests.md says what a group expects.
"""

import os
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pipeline.errors import UsageRefused
from pipeline.settings import SECRETS, Settings

STORAGE = "arkline.storage"
INVENTORY = "arkline.inventory"
MINTER = "arkline.minter"
LOGIN = "arkline.login"
EXPORTER = "arkline.exporter"
ROUTES = "arkline.routes"
CHECKS = "arkline.checks"

OURS = {
    STORAGE: {"storage_service_url": "merritt", "inventory_service_url": "merritt", "s3_root": "s3"},
    INVENTORY: {"inventory_service_url": "merritt"},
    MINTER: {},
    LOGIN: {"oidc_issuer": "oidc"},
    EXPORTER: {"otlp_endpoint": "otel"},
}
"""Setting that chooses a plugin of this repository -> its extra; known even where the plugin is absent."""


def chosen(group: str) -> Any:
    """Load the chosen plugin; None if none is chosen, UsageRefused with the remedy if it is absent."""
    name = choosing(group)
    if name is None:
        return None
    extra = OURS[group].get(name)
    point = _points(group).get(name)
    if point is None:
        raise UsageRefused(lacking(name, f"plugin {extra}", f"arkline[{extra}]"))
    try:
        return point.load()
    except ModuleNotFoundError as error:
        wheel = f"arkline[{extra}]" if extra else str(error.name)
        raise UsageRefused(lacking(name, f"package {error.name}", wheel)) from error


def choosing(group: str) -> str | None:
    """The setting that chooses a plugin for this group; of several, one of ours is preferred."""
    given = _given() - Settings.model_fields.keys()
    if not given:
        return None  # skips the search of packages, which takes a tenth of a second
    return next((name for name in (*OURS[group], *sorted(_points(group))) if name in given), None)


def load_all(group: str) -> tuple[Any, ...]:
    """Load all plugins of the group, in the order of their names."""
    return tuple(point.load() for _, point in sorted(_points(group).items()))


def named(group: str, name: str) -> Any:
    """What the installed plugin of this name adds to the group; None if there is none."""
    point = _points(group).get(name)
    return None if point is None else point.load()


def names(group: str) -> tuple[str, ...]:
    """The names of the installed plugins of the group."""
    return tuple(sorted(_points(group)))


def lacking(setting: str, what: str, wheel: str) -> str:
    """The message about a chosen plugin that is not installed, or not completely."""
    return (
        f"ARKLINE_{setting.upper()} is set, but the {what} is not installed on this host: "
        f"pip install '{wheel}'"
    )


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def _given() -> set[str]:
    """The lower-case names of the settings that have a value; a variable takes precedence over a file."""
    folder = os.environ.get(SECRETS)
    files = Path(folder).expanduser().glob("arkline_*") if folder else ()
    values = {file.name: "in the file" for file in files}
    values |= {name.lower(): value for name, value in os.environ.items()}
    prefix = "arkline_"
    return {name[len(prefix) :] for name, value in values.items() if value and name.startswith(prefix)}
