"""The profiles as an operator sees them."""

from pydantic import Field

from pipeline.principal import Principal
from pipeline.profiles.profile import Profile, ProfileError, Profiles, read
from pipeline.records import Record


class ProfileLine(Record):
    """A profile in a list; one that cannot be used has `faults` and its name alone."""

    name: str
    file: str
    description: str = ""
    collections: tuple[str, ...] = ()
    ark_prefixes: tuple[str, ...] = ()
    """The beginnings of the ARKs of the collection's new objects."""
    new_versions: bool = False
    """Whether a deposit may add a version to an object without saying so."""
    limits: dict[str, int] = Field(default_factory=dict)
    """Those of the profile; the settings have the others."""
    faults: tuple[str, ...] = ()


class ProfileLines(Record):
    profiles: tuple[ProfileLine, ...]


class ProfileView(Record):
    """A profile with all its values, also those that its file leaves out; no secret."""

    file: str
    values: dict[str, object]
    set_in_file: tuple[str, ...]
    """The fields that the file sets."""
    ignored: tuple[str, ...]
    """Warnings about fields that arkline does not use."""


def listed(profiles: Profiles, principal: Principal | None = None) -> tuple[ProfileLine, ...]:
    """The profiles that the principal may see, without the paths of this server; all without a principal."""
    lines = tuple(_line(profiles, name) for name in profiles.names())
    if principal is None:
        return lines
    allowed = principal.collections
    own = (line for line in lines if allowed is None or line.name in allowed)
    return tuple(line.model_copy(update={"file": ""}) for line in own)


def shown(profiles: Profiles, name: str) -> ProfileView:
    """UnknownProfile or ProfileError if there is no such profile, or it cannot be used."""
    path = profiles.file(name)
    profile, ignored = read(path)
    return ProfileView(
        file=str(path),
        values=profile.public(),
        set_in_file=tuple(field for field in Profile.model_fields if field in profile.model_fields_set),
        ignored=ignored,
    )


def _line(profiles: Profiles, name: str) -> ProfileLine:
    try:
        path = profiles.file(name)
    except ProfileError as error:
        return ProfileLine(name=name, file="", faults=error.faults)
    try:
        profile, _ = read(path)
    except ProfileError as error:
        return ProfileLine(name=name, file=str(path), faults=error.faults)
    return ProfileLine(
        name=name,
        file=str(path),
        description=profile.description,
        collections=profile.collections,
        ark_prefixes=profile.ark_prefixes,
        new_versions=profile.new_versions,
        limits=profile.limits.model_dump(exclude_none=True),
    )
