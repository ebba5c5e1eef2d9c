"""How far a download is, in one line."""

from __future__ import annotations

from pipeline.attempt import Progress
from pipeline.working_storage.capacity import in_units


def progress(found: Progress) -> str:
    """`Downloaded 3.2 MB of 10 MB at 1.1 MB/s, 2 of 5 files; now a/b.tif from example.org`."""
    size = f" of {in_units(found.bytes_expected)}" if found.bytes_expected is not None else ""
    rate = f" at {in_units(round(found.bytes_per_second))}/s" if found.bytes_per_second else ""
    files = f", {found.files} of {found.files_expected} files" if found.files_expected is not None else ""
    now = f"; now {found.file} from {found.host}" if found.file else ""
    return f"Downloaded {in_units(found.bytes)}{size}{rate}{files}{now}"
