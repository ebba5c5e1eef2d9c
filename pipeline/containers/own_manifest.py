"""A container's own manifest, `mrt-manifest.txt`: it lists all other files of the container."""

from collections.abc import Iterator

from pipeline.containers.declared import Declared, UnpackedContainer, refuse
from pipeline.manifests import lines
from pipeline.manifests.checkm import ManifestProfile, Row, parse_rows
from pipeline.names import quote_name

NAME = "mrt-manifest.txt"


def check_manifest(unpacked: UnpackedContainer) -> str | None:
    """A sentence if the manifest is correct; None without one, StepFailed(content) if it is not correct."""
    if NAME not in unpacked.files:
        return None
    title = f"producer/{NAME}"
    lines.check_size(unpacked.producer / NAME, title)
    data, most = (unpacked.producer / NAME).read_bytes(), max(lines.LIST_ENTRIES, len(unpacked.files))
    # Names that clash were refused when the container was unpacked, by the rules of the collection.
    rows = parse_rows(data, title, ManifestProfile.OBJECT, case_fold=False, most=most)
    refuse(title, _problems(unpacked, rows))
    return f"{title} lists the container's {len(rows):,} other files, with their sizes and digests"


def _problems(unpacked: UnpackedContainer, rows: tuple[Row, ...]) -> Iterator[str]:
    yield from unpacked.problems(
        Declared(
            f"line {row.line}",
            row.name,
            (row.digest,) if row.digest else (),
            row.size,
            by=f"{NAME} line {row.line}",
        )
        for row in rows
    )
    listed = {row.name for row in rows} | {NAME}
    composed = {unpacked.composed_otherwise(name) for name in listed - unpacked.files.keys()}
    for path in sorted(unpacked.files):
        if path not in listed and path not in composed:
            yield f"{quote_name(path)} is in the container, but not in the manifest"
