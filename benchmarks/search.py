"""Searches of a depositor who sees one object in a hundred, while deposits are entered.

`ARKLINE_BENCH_OBJECTS` (100,000) objects of nine files; 200 queries for each database, of rare, common,
absent and half-typed words. `DEPOSITS` versions a second are entered at the same time by another process.
`same_hits`: both databases found the same for all queries, before the deposits began. PostgreSQL is left out
where it is not installed, or with `ARKLINE_BENCH_POSTGRESQL=0`.
"""

import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles
from typing import Any

from sqlalchemy import Connection

from benchmarks._options import option
from benchmarks._output import tell
from pipeline.fixity import StoredFile
from pipeline.inventory import recording
from pipeline.inventory.base import Recording
from pipeline.inventory.finding_search import FindingSearch
from pipeline.inventory.sight import Sight
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.inventory.tables import portions
from tests.servers import postgresql
from tests.support import recordings

OBJECTS = option("OBJECTS", 100_000)
QUERIES = option("QUERIES", 200)
DEPOSITS = option("DEPOSITS", 10)
"""A second."""

DEPOSITORS = 100
PAGE = 50
AT_A_TIME = 200
"""Objects in one transaction while the inventory is filled."""

OWN = Sight(depositor="token:depositor-7")
_WORDS = random.Random(7)
WORDS = ["".join(_WORDS.choices("abcdefghijklmnoprstuvwz", k=_WORDS.randint(3, 10))) for _ in range(20_000)]


def stored(number: int) -> Recording:
    """An object of nine files whose words are as unevenly frequent as those of a language."""
    chosen = random.Random(number)

    def word() -> str:
        return WORDS[min(len(WORDS), int(chosen.paretovariate(0.7))) - 1]

    files = tuple(
        StoredFile(
            f"producer/scan_{number:07d}_{page:03d}.jpg", 10, f"{chosen.getrandbits(512):0128x}", added=True
        )
        for page in range(1, 10)
    )
    return recordings.recording(
        f"ark:/99999/fk4{number:09d}",
        jid=f"jid{number:010d}",
        files=files,
        local_id=(f"MUE-{number:07d}",),
        erc=(
            ("who", f"{word()}, {word()}"),
            ("what", " ".join(word() for _ in range(6))),
            ("when", str(1700 + number % 300)),
        ),
        bid=f"bid{number // 100:010d}",
        submitted=recordings.FIRST_DAY + timedelta(seconds=number),
        depositor=f"token:depositor-{number % DEPOSITORS}",
    )


def enter_all(connection: Connection, entries: list[Recording]) -> None:
    for entry in entries:
        recording.enter(connection, entry)


def fill(inventory: SqlInventory, first: int, last: int) -> float:
    """Enter the objects; returns the seconds."""
    began = time.monotonic()
    for portion in portions(map(stored, range(first, last + 1)), AT_A_TIME):
        inventory.database.write(partial(enter_all, entries=portion))
    return time.monotonic() - began


def queries() -> Iterator[tuple[str, str]]:
    """(kind, query), in turn."""
    chosen = random.Random(11)
    while True:
        number = chosen.randrange(OBJECTS // DEPOSITORS) * DEPOSITORS + 7
        yield "rare", f"MUE-{number:07d}"
        yield "rare", chosen.choice(WORDS[5_000:])
        yield (
            "common",
            chosen.choice(("jpg", "scan jpg", WORDS[0], f"{WORDS[0]} {WORDS[1]}", "demo", "99999")),
        )
        yield "common", f"{chosen.choice(WORDS[:50])} {chosen.choice(WORDS[:50])}"
        yield "none", chosen.choice(("zzzz", f"{WORDS[0]} qqqq", "jpg 2099", f"mue-{OBJECTS * 2}"))
        yield "prefix", chosen.choice(("sc", "scan_0", "scan_000", "fk4000", "mue-000", "ark:/99999/fk400"))
        yield "prefix", chosen.choice(WORDS)[:3]
        yield "prefix", f"{chosen.choice(WORDS[:50])} {chosen.choice(WORDS[:200])[:2]}"


def hits(inventory: SqlInventory, query: str) -> tuple[Any, ...]:
    matching = inventory.objects_by_text(query, FindingSearch(), OWN, PAGE + 1)
    return inventory.found_by(
        query, inventory.found_objects(FindingSearch(), [hit.key for hit in matching[:PAGE]])
    )


def deposit(url: str, first: int, stop: Event) -> None:
    """Enter DEPOSITS objects a second until the end."""
    inventory = open_inventory(url)
    due = time.monotonic()
    for number in range(first, first + 1_000_000):
        if stop.wait(max(0.0, due - time.monotonic())):
            return
        inventory.record(stored(number))
        due = max(due + 1 / DEPOSITS, time.monotonic() - 1)


def timed(inventory: SqlInventory, url: str, asked: list[tuple[str, str]]) -> dict[str, Any]:
    stop = multiprocessing.Event()
    depositing = multiprocessing.Process(target=deposit, args=(url, OBJECTS + 1, stop))
    depositing.start()
    try:
        spent: dict[str, list[float]] = {}
        began = time.monotonic()
        for kind, query in asked:
            start = time.monotonic()
            hits(inventory, query)
            spent.setdefault(kind, []).append(time.monotonic() - start)
        elapsed = time.monotonic() - began
    finally:
        stop.set()
        depositing.join()
    every = [one for of in spent.values() for one in of]
    return {
        "p95_s": round(quantiles(every, n=20)[-1], 4),
        "slowest_s": round(max(every), 4),
        "elapsed_s": round(elapsed, 1),
        **{f"{kind}_p95_s": round(quantiles(of, n=20)[-1], 4) for kind, of in spent.items()},
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_servers:
        urls = {"sqlite": f"sqlite:///{Path(folder)}/inventory.sqlite"}
        if os.environ.get("ARKLINE_BENCH_POSTGRESQL", "1") != "0":
            try:
                urls["postgresql"] = open_servers.enter_context(postgresql.running()).new_schema()
            except postgresql.PostgresqlMissing as missing:
                tell({"left_out": str(missing)})
        asked = [one for one, _ in zip(queries(), range(QUERIES), strict=False)]
        figures: dict[str, Any] = {"objects": OBJECTS, "queries": QUERIES, "deposits_per_second": DEPOSITS}
        results = {}
        for name, url in urls.items():
            inventory = open_inventory(url)
            figures[f"{name}_fill_s"] = round(fill(inventory, 1, OBJECTS), 1)
            results[name] = [[(one.ark, one.file) for one in hits(inventory, query)] for _, query in asked]
            figures |= {f"{name}_{key}": value for key, value in timed(inventory, url, asked).items()}
            inventory.database.close()
        first, *others = results.values()
        figures["hits"] = sum(map(len, first))
        if others:
            figures["same_hits"] = all(one == first for one in others)
        tell(figures)


if __name__ == "__main__":
    main()
