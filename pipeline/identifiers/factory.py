"""Opening of the minters that settings and profiles choose: a plugin's, EZID's, or the local one."""

from collections.abc import Callable
from typing import TypeAlias

from pipeline import plugins
from pipeline.identifiers.ezid import EzidMinter
from pipeline.identifiers.minter import Minter
from pipeline.profiles.profile import Profile
from pipeline.settings import Settings

MinterOpener: TypeAlias = Callable[[Settings], Minter]
"""The type of the plugins in the group `arkline.minter`."""

MinterOf: TypeAlias = Callable[[Profile], Minter]
"""The minter for the objects of a profile's collection."""


def open_minters(settings: Settings) -> MinterOf:
    """A plugin's minter for the profiles that name none, and ours for those that do."""
    ours = EzidMinter(settings)
    opener: MinterOpener | None = plugins.chosen(plugins.MINTER)
    if opener is None:
        return lambda _profile: ours
    sites = opener(settings)
    return lambda profile: sites if profile.minter is None else ours
