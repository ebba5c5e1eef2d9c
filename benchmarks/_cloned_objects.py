"""A storage root with many valid objects: those of a stored deposit, each with its own identifier.

The files of content are hard links, since many folders slow a root down, and not many bytes; the inventories
are written anew.
"""

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks._deposits import Deposits
from benchmarks._source import SMALL
from pipeline.inventory.tables import portions
from pipeline.storage.ocfl.objects import object_path, root_files, sidecar

LINKS = 30_000
"""Links of one file; ext4 allows 65,000."""


def clone(source: str, root: Path, arks: Iterable[str]) -> None:
    """Add the objects that the root lacks, with the content of deposits of one file from the source."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in root_files().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    missing = (ark for ark in arks if not (root / object_path(ark)).exists())
    for portion in portions(missing, LINKS):
        with tempfile.TemporaryDirectory(dir=root.parent) as folder:
            template = _stored(source, Path(folder))
            for ark in portion:
                _copy(template, root / object_path(ark), ark)


def _stored(source: str, folder: Path) -> Path:
    """The folder of an object that is stored as a worker stores it."""
    deposits = Deposits(folder)
    job = deposits.one_file(f"{source}{SMALL}1", 10_000)
    deposits.download(job)
    deposits.process(job)
    (stored,) = folder.glob("site/ocfl/???/???/???/*")
    return stored


def _copy(template: Path, target: Path, ark: str) -> None:
    known = (template / "inventory.json").read_bytes()
    inventory = known.replace(json.loads(known)["id"].encode(), ark.encode())
    draft = target.with_name("draft")
    for path in sorted(template.rglob("*")):
        own = draft / path.relative_to(template)
        if path.is_dir():
            own.mkdir(parents=True)
        elif path.name == "inventory.json":
            own.parent.mkdir(parents=True, exist_ok=True)
            own.write_bytes(inventory)
            own.with_name("inventory.json.sha512").write_bytes(sidecar(inventory))
        elif path.name != "inventory.json.sha512":
            own.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, own)
    draft.rename(target)
