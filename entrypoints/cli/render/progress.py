"""The progress of a download, in one line."""

from __future__ import annotations

from pipeline.attempt import Progress
from pipeline.working_storage.capacity import in_units


def progress(download: Progress) -> str:
    """`Downloaded 3.2 MB of 10 MB at 1.1 MB/s, 2 of 5 files; now a/b.tif from example.org`."""
    size = f" of {in_units(download.bytes_expected)}" if download.bytes_expected is not None else ""
    rate = f" at {in_units(round(download.bytes_per_second))}/s" if download.bytes_per_second else ""
    files = (
        f", {download.files} of {download.files_expected} files"
        if download.files_expected is not None
        else ""
    )
    now = f"; now {download.file} from {download.host}" if download.file else ""
    return f"Downloaded {in_units(download.bytes)}{size}{rate}{files}{now}"
