"""The description of an object as people get it."""

from pydantic import BaseModel, ConfigDict


class ObjectDescription(BaseModel):
    """Creator, title, date, and identifiers or places, each in one text.

    Fields of another release stay in it.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
    who: str = ""
    what: str = ""
    when: str = ""
    where: str = ""
