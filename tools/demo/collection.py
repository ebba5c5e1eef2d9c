"""The sample collection, made ready to be served: addresses put into manifests, folders packed into zips."""

import shutil
import zipfile
from pathlib import Path

BASE = "{base}"
"""Stands for the server's address in a manifest under examples/."""

CONTAINERS = "containers"


def prepare(source: Path, target: Path, base: str) -> None:
    """Copy the collection in `source` to `target`, for a server whose address is `base`."""
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
