"""Settings from the environment: `ARKLINE_` and the field's name in capitals, or an alias of the field.

The package pydantic-settings does this too, and takes a tenth of a second to load: asyncio, clouds.
"""

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from pipeline.errors import UsageRefused

PREFIX = "ARKLINE_"

SECRETS = "ARKLINE_SECRETS"
"""Variable with a folder of settings that are secret: the file arkline_zk_password has that setting."""


class EnvironmentSettings(BaseModel):
    """The caller gives a value, or the variable has it, or the file of secrets, or it is the default."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        validate_default=True,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,  # it may be a secret
    )

    def __init__(self, **given: Any) -> None:
        fields = type(self).model_fields
        folder = os.environ.get(SECRETS)
        read = {**dict(_of_files(folder, fields) if folder else ()), **dict(_of_environment(fields))}
        unset = {name: value for name, value in read.items() if given.keys().isdisjoint(_keys(name, fields))}
        super().__init__(**unset, **given)


def _keys(name: str, fields: Mapping[str, FieldInfo]) -> tuple[str, ...]:
    """The aliases of the field, and its name."""
    alias = fields[name].validation_alias
    aliases = alias.choices if isinstance(alias, AliasChoices) else ()
    return (*(str(choice) for choice in aliases), name)


def _variables(fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, list[str]]]:
    """Name -> the variables in lower case, any of which may have the value: an alias goes before the name."""
    for name in fields:
        *aliases, own = _keys(name, fields)
        yield name, [variable.lower() for variable in (*aliases, f"{PREFIX}{own}")]


def _of_environment(fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, str]]:
    given = {name.lower(): value for name, value in os.environ.items()}
    for name, variables in _variables(fields):
        if values := [given[variable] for variable in variables if variable in given]:
            yield name, values[0]


def _of_files(folder: str, fields: Mapping[str, FieldInfo]) -> Iterator[tuple[str, str]]:
    """Names and values of the files; a file that is a link to somewhere else is not read."""
    place = Path(folder).expanduser()
    if not place.exists():
        warnings.warn(f"{SECRETS}: there is no folder {place}", stacklevel=3)
        return
    if not place.is_dir():
        raise UsageRefused(
            f"{SECRETS} is '{place}', which is no folder: name the folder of the secrets' files"
        )
    files = {path.name.lower(): path for path in place.iterdir()}
    for name, variables in _variables(fields):
        for path in filter(None, map(files.get, variables)):
            if path.is_file() and place.resolve() in path.resolve().parents:
                yield name, path.read_text("utf-8").strip()
                break
            warnings.warn(f"{SECRETS}: {path} is no file of this folder and was not read", stacklevel=3)
