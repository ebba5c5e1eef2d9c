"""The preview of a deposit of 10,000 rows (`ARKLINE_BENCH_ROWS`), and a correction of one of its values.

Each round previews a new draft whose table no process has read, with the names of all files, and then
corrects a value, without them. Bodies are read and answers written as the API does. The figures are CPU
seconds of this process; `ratio` compares a correction with Python's `csv` reading the same table.
"""

import csv
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks._options import option
from benchmarks._output import report, run
from operations.deposits import draft, uploads
from operations.site import Site
from pipeline.principal import Interface, Principal, Role
from pipeline.settings import Settings
from pipeline.uploads.draft import Draft
from pipeline.uploads.stored import Declared
from tests.servers import zookeeper
from zkstate.connection.session import connect

ROWS = option("ROWS", 10_000)
ROUNDS = option("ROUNDS", 5)

GOAL = 2.0
"""Seconds, from the choice of the files to the preview."""

DORA = Principal(name="dora", role=Role.DEPOSITOR, interface=Interface.WEB)
PROFILES = Path(__file__).parent.parent / "examples" / "profiles"


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(site: Site, number: int) -> dict[str, float]:
    rows = [f"scans/{row}.tif,Sheet {row} of round {number},Müller,1911,M-{row}" for row in range(ROWS)]
    table = "File,Title,Author,Date,Call Number\n" + "\n".join(rows)
    upload = uploads.begin_upload(site, DORA).id
    uploads.receive_file(site, DORA, upload, Declared(name="list.csv"), io.BytesIO(table.encode()))
    given = {"profile": "demo", "objects": "table", "table": "list.csv"}
    files = [
        {"name": f"scans/{row}.tif", "size": 10_000_000, "sha512": f"{row:0128x}"} for row in range(ROWS)
    ]
    bodies = {
        "preview": json.dumps({**given, "files": files}).encode(),
        "correction": json.dumps({**given, "values": {"2:title": "Harbour"}}).encode(),
    }

    def save(body: bytes) -> str:
        return draft.save(site, DORA, upload, Draft.model_validate_json(body)).model_dump_json()

    spent = {name: cpu(lambda body=body: save(body)) for name, body in bodies.items()}  # type: ignore[misc]
    return {
        **spent,
        "csv": cpu(lambda: list(csv.reader(io.StringIO(table)))),
        "bytes": len(bodies["correction"]),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, zookeeper.running(Path(folder) / "zookeeper") as server:
        settings = Settings(
            zk_hosts=server.hosts, zk_root="/benchmark", home=Path(folder) / "home", profiles=PROFILES
        )
        with connect(settings) as session:
            site = Site(settings, session)
            rounds = [measure(site, number) for number in range(ROUNDS)]
    ratios = [one["correction"] / one["csv"] for one in rounds]
    slowest = max(one["preview"] for one in rounds)
    report(
        "drafts",
        ratios,
        GOAL,
        slowest < GOAL,
        {
            "rows": ROWS,
            **{
                f"{name}_cpu_s": round(median(one[name] for one in rounds), 3)
                for name in ("preview", "correction")
            },
            "slowest_preview_cpu_s": round(slowest, 3),
            "correction_bytes": rounds[0]["bytes"],
        },
    )


if __name__ == "__main__":
    run(main, __doc__)
