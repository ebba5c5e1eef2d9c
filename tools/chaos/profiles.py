"""The collections of a run: a plain one, two whose files are checked, and one whose jobs are reviewed."""

from importlib.util import find_spec
from pathlib import Path

from plugins.clamav.samples import eicar
from tests.servers import clamd

PROFILE = "chaos"
SCANNED = "chaos-scanned"
"""A virus stops the job."""
WARNED = "chaos-warned"
"""A virus is remarked, and stored."""
REVIEWED = "chaos-reviewed"

CHECKED = frozenset({SCANNED, WARNED})
CHECKS = ("clamav", "pronom")

WITHOUT_CHECKS = (PROFILE, REVIEWED)
ALL = (PROFILE, SCANNED, WARNED, REVIEWED, SCANNED)
"""In the order in which deposits take turns."""

_TEXT = """\
name: {name}
owner: ark:/99999/fk4chaos
collections: ["ark:/99999/fk4chaoscollection"]
naan: "99999"
shoulder: fk4
notification: [archivist@example.org]
callback_url: {callback}
{more}
"""

_CHECKS = """\
checks:
  - name: clamav
    found: {found}
    settings: {{clamd: "{clamd}"}}
  - name: pronom
    unchecked: note
"""


def write_profiles(folder: Path, callback: str, scanner: clamd.Server | None) -> None:
    more = {PROFILE: "", REVIEWED: "review: true"}
    if scanner is not None:
        more[SCANNED] = _CHECKS.format(found="stop", clamd=scanner.unix)
        more[WARNED] = _CHECKS.format(found="warn", clamd=scanner.unix)
    folder.mkdir(parents=True)
    for name, lines in more.items():
        (folder / f"{name}.yaml").write_text(_TEXT.format(name=name, callback=callback, more=lines))


def prepare_scanner(folder: Path) -> clamd.Server | None:
    """A clamd that finds EICAR's test file; None if this machine cannot run both checks."""
    if find_spec("pygfried") is None:
        return None
    folder.mkdir(parents=True)
    try:
        return clamd.Server(folder, {}, eicar())
    except clamd.ClamdMissing:
        return None
