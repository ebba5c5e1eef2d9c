"""One entry of a container, whatever its format."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from pipeline.fixity import READ_CHUNK


@dataclass(frozen=True)
class Entry:
    """One entry: its name as given, why it cannot be taken if so, and its bytes."""

    name: str
    is_folder: bool
    refused: str | None
    open: Callable[[], IO[bytes]]
    piece: int = READ_CHUNK
