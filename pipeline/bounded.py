"""Numbers of the record: finite, not negative, and small enough for every reader."""

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=0, le=2**53)]
"""A count or a number of bytes; every JSON reader reads it exactly (RFC 8259, section 6)."""

Seconds = Annotated[float, Field(ge=0, le=1e8)]
"""A delay: at most three years, far above every limit of a setting or of a peer."""
