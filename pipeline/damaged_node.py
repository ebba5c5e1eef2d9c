"""What an auditor needs of a znode that could not be read and was replaced."""

from hashlib import sha256

from pydantic import BaseModel, ConfigDict

EXCERPT = 2000
"""Characters of a damaged znode that are kept: a status has some 500, and a history entry stays small."""


class DamagedNode(BaseModel):
    """The znode that was replaced: its path, its size, its digest and the beginning of its bytes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    path: str
    size: int
    sha256: str = ""
    """Empty if the znode was missing."""
    excerpt: str = ""
    """The first characters; bytes that are not UTF-8 are written as `\\xNN`."""

    @classmethod
    def of(cls, path: str, data: bytes | None) -> "DamagedNode":
        if data is None:
            return cls(path=path, size=0)
        text = data[: 4 * EXCERPT].decode("utf-8", "backslashreplace")[:EXCERPT]
        return cls(path=path, size=len(data), sha256=sha256(data).hexdigest(), excerpt=text)
