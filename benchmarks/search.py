"""Searches of people who see one object in a hundred, while deposits are entered.

`ARKLINE_BENCH_OBJECTS` (100,000) objects of nine files; `ARKLINE_BENCH_QUERIES` (200) queries in each
database: rare, common, absent and half-typed words of titles, creators, dates, identifiers, file names and
digests. They are asked by a depositor, by a viewer of one collection, and by the staff, who see everything;
the goal is that of the depositor. `ARKLINE_BENCH_DEPOSITS` (10) versions a second are recorded by another
process at the same time. `same_hits`: both databases found the same objects and files in the same order,
before the deposits began.

`ARKLINE_BENCH_FOLDER`: the objects stay there for later runs; a million need 22 GB and half an hour.
PostgreSQL is left out where it is not installed, or with `ARKLINE_BENCH_POSTGRESQL=0`.
"""

import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks._options import option
from benchmarks._output import run, tell
from benchmarks._planted_inventories import (
    DEPOSITORS,
    FILES,
    WORDS,
    digest_of,
    inventories,
    level,
    plant,
    stored,
    year_of,
)
from pipeline.inventory.search.by_findings import FindingSearch
from pipeline.inventory.sight import EVERYTHING, Sight
from pipeline.inventory.sql import SqlInventory, open_inventory

OBJECTS = option("OBJECTS", 100_000)
QUERIES = option("QUERIES", 200)
DEPOSITS = option("DEPOSITS", 10)
"""A second."""

GOAL = 0.3
"""Seconds, of 95 of 100 searches of the depositor."""

PAGE = 50
OWN = 7
SIGHTS = {
    "depositor": Sight(depositor=f"token:depositor-{OWN}"),
    "viewer": Sight(collections=frozenset({f"demo-{OWN:02d}"})),
    "staff": EVERYTHING,
}


def queries() -> Iterator[tuple[str, str]]:
    """(kind, query), in turn."""
    chosen = random.Random(11)
    often, most = WORDS[:50], f"{WORDS[0]} {WORDS[1]}"
    while True:
        number = chosen.randrange(OBJECTS // DEPOSITORS) * DEPOSITORS + OWN
        page = chosen.randint(1, FILES)
        yield "rare", f"MUE-{number:07d}"
        yield "rare", f"ark:/99999/fk4{number:09d}"
        yield "rare", f"fk4{number:09d}"
        yield "rare", f"scan_{number:07d}_{page:03d}.jpg"
        yield "rare", f"sha512:{digest_of(number, page)}"
        yield "rare", chosen.choice(WORDS[5_000:])
        yield "rare", f"{chosen.choice(WORDS)} {year_of(number)}"
        yield "common", chosen.choice(("jpg", "scan jpg", WORDS[0], most, "demo", "99999", "4blocks.checkm"))
        yield "common", f"{chosen.choice(often)} {chosen.choice(often)}"
        yield "common", f"{most} {year_of(number)}"
        yield "none", chosen.choice(("zzzz", f"{WORDS[0]} qqqq", "jpg 2099", f"mue-{OBJECTS * 2}"))
        yield "none", f"{'0' * 128}"
        yield "prefix", chosen.choice(("sc", "scan_0", "scan_000", "fk4000", "mue-000", "ark:/99999/fk400"))
        yield "prefix", chosen.choice(WORDS)[:3]
        yield "prefix", f"{chosen.choice(often)} {chosen.choice(WORDS[:200])[:2]}"
        yield "prefix", f"MUE-{number:07d}"[:-2]


def hits(inventory: SqlInventory, query: str, sight: Sight) -> tuple[Any, ...]:
    """A page, as the API reads it."""
    matching = inventory.objects_by_text(query, FindingSearch(), sight, PAGE + 1)
    page = inventory.found_objects(FindingSearch(), [hit.key for hit in matching[:PAGE]])
    inventory.indexing()
    return inventory.found_by(query, page)


def deposit(url: str, first: int, stop: Event) -> None:
    """Enter DEPOSITS objects a second until the end."""
    inventory = open_inventory(url)
    due = time.monotonic()
    for number in range(first, first + 1_000_000):
        if stop.wait(max(0.0, due - time.monotonic())):
            return
        inventory.record(stored(number))
        due = max(due + 1 / DEPOSITS, time.monotonic() - 1)


def timed(inventory: SqlInventory, url: str, asked: list[tuple[str, str]], next_one: int) -> dict[str, Any]:
    stop = multiprocessing.Event()
    depositing = multiprocessing.Process(target=deposit, args=(url, next_one, stop))
    depositing.start()
    figures: dict[str, Any] = {}
    try:
        for name, sight in SIGHTS.items():
            spent: dict[str, list[float]] = {}
            for kind, query in asked:
                start = time.monotonic()
                hits(inventory, query, sight)
                spent.setdefault(kind, []).append(time.monotonic() - start)
            every = [one for of in spent.values() for one in of]
            figures[f"{name}_p95_s"] = _p95(every)
            figures[f"{name}_slowest_s"] = round(max(every), 4)
            figures |= {f"{name}_{kind}_p95_s": _p95(of) for kind, of in spent.items()}
    finally:
        stop.set()
        depositing.join()
    return figures


def _p95(spent: list[float]) -> float:
    return round(quantiles(spent, n=20)[-1], 4)


def measured(folder: Path) -> dict[str, Any]:
    asked = list(islice(queries(), QUERIES))
    with inventories(folder, with_postgresql=os.environ.get("ARKLINE_BENCH_POSTGRESQL") != "0") as urls:
        began = time.monotonic()
        plant(urls, OBJECTS)
        figures: dict[str, Any] = {"planted_s": round(time.monotonic() - began, 1)}
        opened = {name: open_inventory(url) for name, url in urls.items()}
        highest = level(opened.values())
        answers = {
            name: [
                [(one.ark, one.file) for one in hits(inventory, query, sight)]
                for sight in SIGHTS.values()
                for _, query in asked
            ]
            for name, inventory in opened.items()
        }
        first, *others = answers.values()
        figures |= {"objects": highest, "hits": sum(map(len, first))}
        if others:
            figures["same_hits"] = all(one == first for one in others)
        for name, inventory in opened.items():
            spent = timed(inventory, urls[name], asked, highest + 1)
            figures |= {f"{name}_{key}": value for key, value in spent.items()}
            inventory.database.close()
    return figures


def main() -> None:
    place = os.environ.get("ARKLINE_BENCH_FOLDER", "")
    if place:
        figures = measured(Path(place))
    else:
        # not the user's own folder: that may be closed to PostgreSQL's user
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            figures = measured(Path(folder))
    slowest = max(value for name, value in figures.items() if name.endswith("depositor_p95_s"))
    tell({"benchmark": "search", "p95_s": slowest, "goal_s": GOAL, "met": slowest < GOAL, **figures})


if __name__ == "__main__":
    run(main, __doc__)
