"""The minter as the suite gets it: `pytest --arkline-minter=conforming_minters:resolver`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from archive_guest.resolver import ResolverMinter

from pipeline.profiles.profile import Profile
from plugins.conformance.subjects import MinterPlace, Registry

PROFILE = Profile(name="demo", owner="ark:/99999/owner", collections=("ark:/99999/collection",))


@contextmanager
def resolver(folder: Path) -> Iterator[MinterPlace]:
    names, aside = folder / "names", folder / "aside"
    names.mkdir()

    def known(ark: str) -> str | None:
        file = names / f"{quote(ark, safe='')}.json"
        return file.read_text() if file.exists() else None

    @contextmanager
    def away() -> Iterator[None]:
        names.rename(aside)
        yield
        aside.rename(names)

    @contextmanager
    def refuses() -> Iterator[None]:
        names.rename(aside)
        names.touch()  # a file, in which no file can be
        yield
        names.unlink()
        aside.rename(names)

    yield MinterPlace(lambda: ResolverMinter(names), PROFILE, Registry(known, away, refuses))
