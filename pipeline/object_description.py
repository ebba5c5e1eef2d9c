"""The description of an object as people get it, and how much of it was stored."""

from pydantic import BaseModel, ConfigDict, Field


class ObjectDescription(BaseModel):
    """Creator, title, date, and identifiers or places, each in one text.

    Fields of another release stay in it.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    who: str = ""
    what: str = ""
    when: str = ""
    where: str = ""


class Deposited(BaseModel):
    """What deposits added to storage; a version has no bytes of its own for a file that did not change."""

    model_config = ConfigDict(frozen=True, extra="allow")
    files: int = Field(0, ge=0, le=2**53)
    bytes: int = Field(0, ge=0, le=2**53)

    def __add__(self, other: "Deposited") -> "Deposited":
        return Deposited(files=self.files + other.files, bytes=self.bytes + other.bytes)
