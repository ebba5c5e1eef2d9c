"""Collection profiles: who owns what is submitted, how it is named, kept and told."""

from pathlib import Path
from typing import Annotated

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field, StringConstraints

from pipeline.errors import UsageRefused

Ark = Annotated[str, StringConstraints(pattern=r"^ark:/?\d{5,9}/\S+$")]


class UnknownProfile(UsageRefused):
    """No profile of that name."""


class Profile(BaseModel):
    """One collection's rules."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
    description: str = ""
    owner: Ark
    collections: tuple[Ark, ...] = Field(min_length=1)
    naan: Annotated[str, StringConstraints(pattern=r"^\d{5,9}$")] = "99999"
    shoulder: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]*$")] = "fk4"
    notification: tuple[str, ...] = ()
    confirmation_mail: bool = False
    callback_url: AnyHttpUrl | None = None
    priority: Annotated[int, Field(ge=0, le=99)] | None = None
    object_type: str = "MRT-curatorial"
    object_role: str = "MRT-content"
    aggregate_role: str = "MRT-none"
    suppress_dublin_core_local_id: bool = False


class Profiles:
    """The profiles in a folder of YAML files, read when asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str) -> Profile:
        raise NotImplementedError

    def names(self) -> tuple[str, ...]:
        raise NotImplementedError
