"""Loads what plugins add to the core, by the entry points of installed packages.

A plugin has a name of its own (`s3`), under which it stands in each group where it adds something; its extra
has the same name. What each group expects is in docs/developers/extending.md.
"""

from importlib.metadata import entry_points
from typing import Any

from pipeline.errors import UsageRefused

STORAGE = "arkline.storage"
INVENTORY = "arkline.inventory"
LOGIN = "arkline.login"
ROUTES = "arkline.routes"
EXPORTER = "arkline.exporter"


def load(group: str, name: str, setting: str) -> Any:
    """What the plugin `name` adds to the group; UsageRefused, which names the setting, if it cannot."""
    points = tuple(entry_points(group=group, name=name))
    if not points:
        raise UsageRefused(lacking(setting, f"plugin {name}", name))
    try:
        return points[0].load()
    except ModuleNotFoundError as error:
        raise UsageRefused(lacking(setting, f"package {error.name}", name)) from error


def load_all(group: str) -> tuple[Any, ...]:
    """What all installed plugins add to the group, in the order of their names."""
    return tuple(point.load() for point in sorted(entry_points(group=group), key=lambda point: point.name))


def lacking(setting: str, what: str, extra: str) -> str:
    """The sentence for the person who chose a plugin that is not installed, or not completely."""
    return f"{setting} is set, but the {what} is not installed on this host: pip install 'arkline[{extra}]'"
