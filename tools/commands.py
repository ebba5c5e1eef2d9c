"""The commands of `./dev` as data: `./dev help` lists them before anything is installed.

Standard library only. `tests/unit/test_dev.py` compares the table with the commands of tools/dev/app.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One command: its purpose, and whether it runs ZooKeeper and therefore needs Java."""

    name: str
    help: str
    needs_zookeeper: bool = False


ENTRIES = (
    Entry("demo", "ingest a sample collection through the real stack", True),
    Entry("up", "start the stack and print its addresses", True),
    Entry("down", "stop a stack that runs in the background"),
    Entry("test", "run the tests; arguments go to pytest", True),
    Entry("check", "format, lint, types, imports, lock files, secrets"),
    Entry("bench", "run benchmarks on this machine", True),
    Entry("chaos", "inject faults and check that no object is lost or doubled", True),
    Entry("simulate", "replay histories of the real code in a simulated world, by their seeds"),
    Entry("storm", "hostile deposits among honest ones, which must all complete", True),
    Entry("load", "one depositor's worst against the web process, beside 20 others", True),
    Entry("containers", "run the image and the compose file on podman"),
    Entry("fuzz", "try the readers of foreign bytes with many more examples"),
    Entry("audit", "ask the package index for known faults of the locked packages"),
    Entry("record", "draw the README's picture from a real session", True),
    Entry("lock", "update requirements.lock from pyproject.toml"),
    Entry("release", "build the wheel, check it outside the checkout, tag", True),
)
BY_NAME = {entry.name: entry for entry in ENTRIES}
USAGE = "\n".join(
    (
        "usage: ./dev COMMAND",
        "",
        *(f"  {entry.name:<10} {entry.help}" for entry in ENTRIES),
        "",
        "./dev COMMAND --help describes a command. The first run installs what is missing.",
    )
)
