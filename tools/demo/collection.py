"""Prepares the sample collection for serving: puts addresses into manifests, and packs folders into zips."""

import shutil
import zipfile
from pathlib import Path

BASE = "{base}"
"""Placeholder for the server's address in manifests under examples/."""

CONTAINERS = "containers"


def prepare(source: Path, target: Path, base: str) -> None:
    """Copy the collection in `source` to `target`, for a server at `base`."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(CONTAINERS))
    for manifest in sorted(target.rglob("*.checkm")):
        manifest.write_text(manifest.read_text().replace(BASE, base))
    containers = target / CONTAINERS
    containers.mkdir()
    for folder in sorted(path for path in (source / CONTAINERS).iterdir() if path.is_dir()):
        _pack(folder, containers / f"{folder.name}.zip")


def _pack(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            bundle.write(path, path.relative_to(folder))
